//! How many claims a worker may make in a time.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc, time::Duration};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

/// So many in a second, minute or hour: `20/s`, `300/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    per: Per,
}

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate; write it as 20/s, 300/m or 1000/h")]
pub struct BadRate(String);

/// What a worker has used of its rate. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Meter(Arc<DefaultDirectRateLimiter>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

// === impl Rate ===

impl FromStr for Rate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let refused = || BadRate(text.chars().take(40).collect());
        let (count, per) = text.split_once('/').ok_or_else(refused)?;
        let per = match per {
            "s" => Per::Second,
            "m" => Per::Minute,
            "h" => Per::Hour,
            _ => return Err(refused()),
        };
        Ok(Self { count: count.parse().map_err(|_| refused())?, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => 's',
            Per::Minute => 'm',
            Per::Hour => 'h',
        };
        write!(f, "{}/{per}", self.count)
    }
}

// === impl Meter ===

impl Meter {
    pub(crate) fn new(rate: Rate) -> Self {
        let quota = match rate.per {
            Per::Second => Quota::per_second(rate.count),
            Per::Minute => Quota::per_minute(rate.count),
            Per::Hour => Quota::per_hour(rate.count),
        };
        Self(Arc::new(RateLimiter::direct(quota)))
    }

    /// Takes one; or says how long to wait for it.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        self.0.check().map_err(|not_until| not_until.wait_time_from(DefaultClock::default().now()))
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_and_read_back() {
        for text in ["20/s", "300/m", "1000/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for bad in ["", "20", "0/s", "-1/s", "20/d", "99999999999/s", "1.5/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_meter_says_how_long_to_wait() {
        let meter = Meter::new("2/h".parse().unwrap());
        assert!(meter.take().is_ok());
        assert!(meter.take().is_ok());
        let wait = meter.take().unwrap_err();
        assert!(wait > Duration::from_secs(60) && wait <= Duration::from_secs(1800), "{wait:?}");
    }
}
