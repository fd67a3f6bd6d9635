//! Money in whole micros (millionths of the account's currency). An unknown amount is `None`, never zero.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, Sub},
    str::FromStr,
};

/// An amount of money. Sums saturate, so that a total never wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(i64);

/// The currency of the account: three capital letters, such as `USD`. Amounts are not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency([u8; 3]);

/// The text is not a currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected three capital letters such as USD")]
pub struct NotCurrency;

/// The text is not a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an amount of money")]
pub struct NotMoney;

impl Money {
    /// A known amount of nothing.
    pub const ZERO: Self = Self(0);

    /// An amount in millionths.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The amount in millionths.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses a decimal number such as `0.00085`; digits after the sixth are rounded half up.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(part) {
            return None;
        }
        let mut padded = format!("{part:0<7}");
        padded.truncate(7);
        let tenths: i64 = padded.parse().ok()?;
        let micros =
            whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add((tenths + 5) / 10)?;
        Some(Self(if negative { -micros } else { micros }))
    }

    /// The price of one solve when a thousand cost this much.
    #[must_use]
    pub fn per_thousand(self) -> Self {
        Self(self.0 / 1000)
    }
}

impl FromStr for Money {
    type Err = NotMoney;

    fn from_str(text: &str) -> Result<Self, NotMoney> {
        Self::parse(text).ok_or(NotMoney)
    }
}

// Decimal text in JSON, micros in stores.
serialize_as_text!(Money, or i64);

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Money {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let micros = self.0.unsigned_abs();
        let text = format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

// === impl Currency ===

impl FromStr for Currency {
    type Err = NotCurrency;

    fn from_str(text: &str) -> Result<Self, NotCurrency> {
        let letters: [u8; 3] = text.as_bytes().try_into().map_err(|_| NotCurrency)?;
        letters.iter().all(u8::is_ascii_uppercase).then_some(Self(letters)).ok_or(NotCurrency)
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| fmt::Write::write_char(f, char::from(*letter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_text_becomes_micros_and_back() {
        for (text, micros) in
            [("0.00085", 850), ("12.345", 12_345_000), ("-1", -1_000_000), ("0.0000005", 1)]
        {
            assert_eq!(Money::parse(text), Some(Money::from_micros(micros)), "{text}");
        }
        assert_eq!(Money::from_micros(850).to_string(), "0.00085");
        assert_eq!(Money::from_micros(3_000_000).to_string(), "3");
        for bad in ["", "1e5", "NaN", "ERROR", "1.2.3", "99999999999999999999"] {
            assert_eq!(Money::parse(bad), None, "{bad}");
        }
    }
}
