//! Key columns: converts the bytes of a key (`schema/keys.rs`) into column values and back. Columns sort like the bytes.
//!
//! SQL integers end at 2⁶³, and SQL times end earlier than ours. The bound of a range that a column cannot hold becomes the largest
//! value of the column. A *row* with such a key is refused, because it would come back with another key.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SqlValue {
    Null,
    Number(i64),
    Small(i16),
    /// Microseconds since 2000.
    Time(i64),
    /// Days since 2000.
    Day(i32),
    Bytes(Vec<u8>),
    Text(String),
}

/// The type of a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyColumn {
    /// An id of fifteen digits, or a position in the ledger.
    Number,
    /// The random id of a gateway, which uses all of its 64 bits.
    Holder,
    Time,
    Day,
    /// 32 bytes: a fingerprint or a hash.
    Print,
    Text,
    /// One of a few variants.
    Which,
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// 2000-01-01, the epoch of PostgreSQL.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i64 = 10_957;
/// The server's times end before this, in the year 294277.
const END_MICROS: i64 = 9_223_371_331_200_000_000;
/// The server's days end before this, in the year 5874898.
const END_DAYS: i64 = 2_145_031_949;

// === impl KeyColumn ===

impl KeyColumn {
    pub(super) fn ty(self) -> Type {
        match self {
            Self::Number => Type::INT8,
            Self::Holder | Self::Print => Type::BYTEA,
            Self::Time => Type::TIMESTAMPTZ,
            Self::Day => Type::DATE,
            Self::Text => Type::TEXT,
            Self::Which => Type::INT2,
        }
    }

    /// Takes the column from the front of a key's bytes. Also returns whether the value represents them exactly.
    pub(super) fn read(self, input: &mut &[u8]) -> Option<(SqlValue, bool)> {
        Some(match self {
            Self::Number => {
                let number = u64::from_be_bytes(take(input)?);
                let value = i64::try_from(number).unwrap_or(i64::MAX);
                (SqlValue::Number(value), value < i64::MAX)
            }
            Self::Holder => (SqlValue::Bytes(take::<8>(input)?.to_vec()), true),
            Self::Print => (SqlValue::Bytes(take::<32>(input)?.to_vec()), true),
            Self::Time => {
                let millis = u64::from_be_bytes(take(input)?);
                let value = time(millis);
                (SqlValue::Time(value), value < i64::MAX || millis == u64::MAX)
            }
            Self::Day => {
                let number = u32::from_be_bytes(take(input)?);
                let value = day(number);
                (SqlValue::Day(value), value < i32::MAX || number == u32::MAX)
            }
            Self::Text => {
                let end = input.iter().position(|byte| *byte == 0)?;
                let text = std::str::from_utf8(&input[..end]).ok()?.to_owned();
                *input = &input[end + 1..];
                (SqlValue::Text(text), true)
            }
            Self::Which => (SqlValue::Small(i16::from(take::<1>(input)?[0])), true),
        })
    }

    pub(super) fn write(self, value: &SqlValue, out: &mut Vec<u8>) -> Option<()> {
        match (self, value) {
            (Self::Number, SqlValue::Number(number)) => {
                out.extend(u64::try_from(*number).ok()?.to_be_bytes());
            }
            (Self::Holder | Self::Print, SqlValue::Bytes(bytes)) => out.extend(bytes),
            (Self::Time, SqlValue::Time(i64::MAX)) => out.extend(u64::MAX.to_be_bytes()),
            (Self::Time, SqlValue::Time(micros)) => {
                let millis = u64::try_from(micros.checked_add(EPOCH_MICROS)? / 1000).ok()?;
                out.extend(millis.to_be_bytes());
            }
            (Self::Day, SqlValue::Day(i32::MAX)) => out.extend(u32::MAX.to_be_bytes()),
            (Self::Day, SqlValue::Day(days)) => {
                out.extend(u32::try_from(i64::from(*days) + EPOCH_DAYS).ok()?.to_be_bytes());
            }
            (Self::Text, SqlValue::Text(text)) => {
                out.extend(text.as_bytes());
                out.push(0);
            }
            (Self::Which, SqlValue::Small(which)) => out.push(u8::try_from(*which).ok()?),
            _ => return None,
        }
        Some(())
    }
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

/// Milliseconds since 1970 as a PostgreSQL timestamp; one that it cannot hold becomes `infinity`.
pub(super) fn time(millis: u64) -> i64 {
    let micros = i64::try_from(millis).ok().and_then(|millis| millis.checked_mul(1000));
    micros.map(|micros| micros - EPOCH_MICROS).filter(|at| *at < END_MICROS).unwrap_or(i64::MAX)
}

fn day(number: u32) -> i32 {
    let days = i64::from(number) - EPOCH_DAYS;
    i32::try_from(days).ok().filter(|_| days < END_DAYS).unwrap_or(i32::MAX)
}

pub(super) fn array_of(ty: &Type) -> Type {
    match *ty {
        Type::INT2 => Type::INT2_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TEXT => Type::TEXT_ARRAY,
        _ => Type::INT8_ARRAY,
    }
}

// === impl SqlValue ===

impl ToSql for SqlValue {
    fn to_sql(&self, ty: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            // On the wire, times and days are integers.
            Self::Number(number) | Self::Time(number) => number.to_sql(&Type::INT8, out),
            Self::Day(number) => number.to_sql(&Type::INT4, out),
            Self::Small(number) => number.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for SqlValue {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(match *ty {
            Type::INT8 => Self::Number(i64::from_sql(ty, raw)?),
            Type::INT2 => Self::Small(i16::from_sql(ty, raw)?),
            Type::TIMESTAMPTZ => Self::Time(i64::from_sql(&Type::INT8, raw)?),
            Type::DATE => Self::Day(i32::from_sql(&Type::INT4, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            Type::TEXT => Self::Text(String::from_sql(ty, raw)?),
            _ => return Err(format!("a column has the unsupported type {ty}").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [KeyColumn; 4] =
        [KeyColumn::Number, KeyColumn::Holder, KeyColumn::Time, KeyColumn::Day];

    fn number_of(value: &SqlValue) -> Vec<u8> {
        // As PostgreSQL compares them.
        match value {
            SqlValue::Number(n) | SqlValue::Time(n) => {
                (i128::from(*n) + (1 << 64)).to_be_bytes().to_vec()
            }
            SqlValue::Day(n) => (i64::from(*n) + (1 << 32)).to_be_bytes().to_vec(),
            SqlValue::Bytes(bytes) => bytes.clone(),
            SqlValue::Null | SqlValue::Small(_) | SqlValue::Text(_) => panic!("{value:?}"),
        }
    }

    fn bytes_of(part: KeyColumn, number: u64) -> Vec<u8> {
        if part == KeyColumn::Day {
            return u32::try_from(number >> 32).unwrap().to_be_bytes().to_vec();
        }
        number.to_be_bytes().to_vec()
    }

    proptest::proptest! {
        #[test]
        fn columns_sort_like_the_key_bytes_and_survive_a_round_trip(a: u64, b: u64, shift_a in 0..64, shift_b in 0..64) {
            for part in PARTS {
                // Small numbers are as likely as large ones; a day uses the upper half.
                let (a, b) = if part == KeyColumn::Day { (a, b) } else { (a >> shift_a, b >> shift_b) };
                let (a, b) = (bytes_of(part, a), bytes_of(part, b));
                let (one, one_is_exact) = part.read(&mut a.as_slice()).unwrap();
                let (other, other_is_exact) = part.read(&mut b.as_slice()).unwrap();
                let order = number_of(&one).cmp(&number_of(&other));
                if one_is_exact && other_is_exact {
                    assert_eq!(a.cmp(&b), order, "{part:?}");
                    let mut back = Vec::new();
                    part.write(&one, &mut back).unwrap();
                    assert_eq!(back, a, "{part:?}");
                } else {
                    // As bounds they may become equal, but never change their order.
                    assert!(order.is_eq() || order == a.cmp(&b), "{part:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_and_the_last_time_survive_a_round_trip() {
        for (part, number) in
            [(KeyColumn::Time, u64::MAX), (KeyColumn::Time, 0), (KeyColumn::Day, u64::MAX)]
        {
            let bytes = bytes_of(part, number);
            let (value, is_exact) = part.read(&mut bytes.as_slice()).unwrap();
            let mut back = Vec::new();
            part.write(&value, &mut back).unwrap();
            assert_eq!((back, is_exact), (bytes, true), "{part:?}");
        }
        assert_eq!(time(1_763_337_600_000), 816_652_800_000_000);
    }

    #[test]
    fn a_key_that_no_column_can_hold_is_not_exact() {
        for (part, number) in [
            (KeyColumn::Number, u64::MAX),
            (KeyColumn::Number, i64::MAX as u64),
            (KeyColumn::Time, u64::MAX - 1),
            (KeyColumn::Day, u64::MAX - (1 << 32)),
        ] {
            let bytes = bytes_of(part, number);
            assert!(!part.read(&mut bytes.as_slice()).unwrap().1, "{part:?}");
        }
    }
}
