//! Points in time: UTC milliseconds that the caller passes in (see `ports::Clock`).

use std::{fmt, str::FromStr, time::Duration};

/// Milliseconds since 1970-01-01T00:00:00Z: RFC 3339 in JSON, a number in stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// One UTC day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

/// The text is not a date (`2026-11-15`) or a time (`2026-11-15T20:00:00Z`).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a date; write it as 2026-11-15")]
pub struct NotADate(String);

const DAY_MS: u64 = 86_400_000;

// === impl Timestamp ===

impl Timestamp {
    /// The time `millis` after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The time `length` later.
    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }

    /// The time `length` earlier.
    #[must_use]
    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(millis(length)))
    }

    /// The time since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The UTC day of this time.
    pub fn day(self) -> Day {
        Day(u32::try_from(self.0 / DAY_MS).unwrap_or(u32::MAX))
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        match shown {
            Some(time) => write!(f, "{time:.3}"),
            None => f.write_str("the end of time"),
        }
    }
}

impl FromStr for Timestamp {
    type Err = NotADate;

    fn from_str(text: &str) -> Result<Self, NotADate> {
        let time: jiff::Timestamp = text.parse().map_err(|_| NotADate(text.to_owned()))?;
        u64::try_from(time.as_millisecond()).map(Self).map_err(|_| NotADate(text.to_owned()))
    }
}

serialize_as_text!(Timestamp, or u64);

// === impl Day ===

impl Day {
    /// The day `number` days after 1970-01-01.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number of days since 1970-01-01.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The first millisecond of the day.
    pub fn start(self) -> Timestamp {
        Timestamp(u64::from(self.0) * DAY_MS)
    }

    /// The first day of its month.
    #[must_use]
    pub fn month(self) -> Self {
        let before = self.date().map_or(0, |date| u32::from(date.day().unsigned_abs()) - 1);
        Self(self.0 - before)
    }

    /// The first day of the next month.
    #[must_use]
    pub fn next_month(self) -> Self {
        let length = self.date().map_or(1, |date| u32::from(date.days_in_month().unsigned_abs()));
        Self(self.month().0.saturating_add(length))
    }

    /// The calendar date; `None` beyond the calendar.
    fn date(self) -> Option<jiff::civil::Date> {
        let epoch = jiff::civil::date(1970, 1, 1);
        epoch.checked_add(jiff::Span::new().try_days(self.0).ok()?).ok()
    }

    /// The first millisecond of the next day.
    pub fn end(self) -> Timestamp {
        Timestamp((u64::from(self.0) + 1) * DAY_MS)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.start().to_string();
        f.write_str(text.get(..10).unwrap_or(&text))
    }
}

impl FromStr for Day {
    type Err = NotADate;

    fn from_str(text: &str) -> Result<Self, NotADate> {
        let refused = || NotADate(text.to_owned());
        let date: jiff::civil::Date = text.parse().map_err(|_| refused())?;
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| refused())?;
        let ms = u64::try_from(midnight.timestamp().as_millisecond()).map_err(|_| refused())?;
        Ok(Timestamp(ms).day())
    }
}

serialize_as_text!(Day, or u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_and_read_back() {
        let day: Day = "2026-11-15".parse().unwrap();
        assert_eq!(day.to_string(), "2026-11-15");
        assert_eq!(day.end().since(day.start()), Duration::from_secs(86_400));
        assert_eq!(day.start().to_string(), "2026-11-15T00:00:00.000Z");
        assert!("15.11.2026".parse::<Day>().is_err());
    }

    #[test]
    fn a_day_belongs_to_a_month() {
        for (day, first, next) in [
            ("2026-11-01", "2026-11-01", "2026-12-01"),
            ("2026-12-31", "2026-12-01", "2027-01-01"),
            ("2028-02-29", "2028-02-01", "2028-03-01"),
            ("1970-01-02", "1970-01-01", "1970-02-01"),
        ] {
            let day: Day = day.parse().unwrap();
            assert_eq!(
                (day.month().to_string(), day.next_month().to_string()),
                (first.into(), next.into())
            );
        }
        let beyond = Day::from_number(u32::MAX);
        assert_eq!((beyond.month(), beyond.next_month()), (beyond, beyond));
    }

    #[test]
    fn time_never_goes_below_zero() {
        assert_eq!(Timestamp::from_millis(5).minus(Duration::from_secs(1)), Timestamp::default());
        assert_eq!(Timestamp::default().since(Timestamp::from_millis(9)), Duration::ZERO);
    }
}
