//! Rates such as `20/s`: how many claims a worker may make in a period.

use std::{fmt, num::NonZeroU32, str::FromStr};

/// A number of events per second, minute or hour: `20/s`, `300/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many events are allowed in one period.
    pub count: NonZeroU32,
    /// The length of the period.
    pub per: Per,
}

/// The period of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Per {
    Second,
    Minute,
    Hour,
}

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate; write it as 20/s, 300/m or 1000/h")]
pub struct BadRate(String);

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
}
