//! Parts of keys as columns: what the bytes of a key (`keys.rs`) are in SQL, and back. Columns sort as the bytes do.
//!
//! SQL has no numbers up to 2⁶⁴ and no times that far away. A bound of a range beyond what a column can hold becomes the
//! largest the column has; a *row* beyond it is refused, for it would come back as another.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// What goes into a column or comes out of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
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

/// One value, or a column of them.
#[derive(Clone, Debug)]
pub(super) enum Param {
    One(Cell),
    Many(Vec<Cell>),
}

/// What a part of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A name of fifteen digits, or a place in the ledger.
    Number,
    /// Eight bytes of chance: a gateway's name. All of its 64 bits count.
    Holder,
    Time,
    Day,
    /// 32 bytes: a fingerprint or a hash.
    Print,
    Text,
    /// Which of a few.
    Which,
}

/// What a column beside key, version and body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Number,
    Time,
    Text,
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// 2000-01-01, from which the server counts.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i64 = 10_957;
/// The server's times end before this, in the year 294277.
const END_MICROS: i64 = 9_223_371_331_200_000_000;
/// The server's days end before this, in the year 5874898.
const END_DAYS: i64 = 2_145_031_949;

// === impl Part ===

impl Part {
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

    /// Takes the part from the front of a key's bytes: the cell, and whether it says exactly the same.
    pub(super) fn read(self, input: &mut &[u8]) -> Option<(Cell, bool)> {
        Some(match self {
            Self::Number => {
                let number = u64::from_be_bytes(take(input)?);
                let cell = i64::try_from(number).unwrap_or(i64::MAX);
                (Cell::Number(cell), cell < i64::MAX)
            }
            Self::Holder => (Cell::Bytes(take::<8>(input)?.to_vec()), true),
            Self::Print => (Cell::Bytes(take::<32>(input)?.to_vec()), true),
            Self::Time => {
                let millis = u64::from_be_bytes(take(input)?);
                let cell = time(millis);
                (Cell::Time(cell), cell < i64::MAX || millis == u64::MAX)
            }
            Self::Day => {
                let number = u32::from_be_bytes(take(input)?);
                let cell = day(number);
                (Cell::Day(cell), cell < i32::MAX || number == u32::MAX)
            }
            Self::Text => {
                let end = input.iter().position(|byte| *byte == 0)?;
                let text = std::str::from_utf8(&input[..end]).ok()?.to_owned();
                *input = &input[end + 1..];
                (Cell::Text(text), true)
            }
            Self::Which => (Cell::Small(i16::from(take::<1>(input)?[0])), true),
        })
    }

    /// Appends the part's bytes.
    pub(super) fn write(self, cell: &Cell, out: &mut Vec<u8>) -> Option<()> {
        match (self, cell) {
            (Self::Number, Cell::Number(number)) => {
                out.extend_from_slice(&u64::try_from(*number).ok()?.to_be_bytes());
            }
            (Self::Holder | Self::Print, Cell::Bytes(bytes)) => out.extend_from_slice(bytes),
            (Self::Time, Cell::Time(i64::MAX)) => out.extend_from_slice(&u64::MAX.to_be_bytes()),
            (Self::Time, Cell::Time(micros)) => {
                let millis = u64::try_from(micros.checked_add(EPOCH_MICROS)? / 1000).ok()?;
                out.extend_from_slice(&millis.to_be_bytes());
            }
            (Self::Day, Cell::Day(i32::MAX)) => out.extend_from_slice(&u32::MAX.to_be_bytes()),
            (Self::Day, Cell::Day(days)) => {
                let number = u32::try_from(i64::from(*days) + EPOCH_DAYS).ok()?;
                out.extend_from_slice(&number.to_be_bytes());
            }
            (Self::Text, Cell::Text(text)) => {
                out.extend_from_slice(text.as_bytes());
                out.push(0);
            }
            (Self::Which, Cell::Small(which)) => out.push(u8::try_from(*which).ok()?),
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

/// Milliseconds since 1970 as the server counts; what it cannot hold is `infinity`.
pub(super) fn time(millis: u64) -> i64 {
    let micros = i64::try_from(millis).ok().and_then(|millis| millis.checked_mul(1000));
    micros.map(|micros| micros - EPOCH_MICROS).filter(|at| *at < END_MICROS).unwrap_or(i64::MAX)
}

fn day(number: u32) -> i32 {
    let days = i64::from(number) - EPOCH_DAYS;
    i32::try_from(days).ok().filter(|_| days < END_DAYS).unwrap_or(i32::MAX)
}

// === impl Sort ===

impl Sort {
    pub(super) fn ty(self) -> Type {
        match self {
            Self::Number => Type::INT8,
            Self::Time => Type::TIMESTAMPTZ,
            Self::Text => Type::TEXT,
        }
    }
}

/// The type of a column of these.
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

// === impl Cell ===

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            // The server's forms of times and days are their numbers.
            Self::Number(number) | Self::Time(number) => return number.to_sql(&Type::INT8, out),
            Self::Day(number) => return number.to_sql(&Type::INT4, out),
            Self::Small(number) => number.to_sql(ty, out)?,
            Self::Bytes(bytes) => bytes.to_sql(ty, out)?,
            Self::Text(text) => text.to_sql(ty, out)?,
        };
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(match *ty {
            Type::INT8 => Self::Number(i64::from_sql(ty, raw)?),
            Type::INT2 => Self::Small(i16::from_sql(ty, raw)?),
            Type::TIMESTAMPTZ => Self::Time(i64::from_sql(&Type::INT8, raw)?),
            Type::DATE => Self::Day(i32::from_sql(&Type::INT4, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            Type::TEXT => Self::Text(String::from_sql(ty, raw)?),
            _ => return Err(format!("a column of the unknown type {ty}").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Param {
    fn to_sql(&self, ty: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        match self {
            Self::One(cell) => cell.to_sql(ty, out),
            Self::Many(cells) => cells.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 4] = [Part::Number, Part::Holder, Part::Time, Part::Day];

    fn number_of(cell: &Cell) -> Vec<u8> {
        // As the server compares them.
        match cell {
            Cell::Number(n) | Cell::Time(n) => (i128::from(*n) + (1 << 64)).to_be_bytes().to_vec(),
            Cell::Day(n) => (i64::from(*n) + (1 << 32)).to_be_bytes().to_vec(),
            Cell::Bytes(bytes) => bytes.clone(),
            Cell::Null | Cell::Small(_) | Cell::Text(_) => panic!("{cell:?}"),
        }
    }

    fn bytes_of(part: Part, number: u64) -> Vec<u8> {
        if part == Part::Day {
            return u32::try_from(number >> 32).unwrap().to_be_bytes().to_vec();
        }
        number.to_be_bytes().to_vec()
    }

    proptest::proptest! {
        #[test]
        fn columns_sort_as_the_bytes_do_and_come_back(a: u64, b: u64, shift_a in 0..64, shift_b in 0..64) {
            for part in PARTS {
                // Small numbers are as likely as large ones; a day uses the upper half.
                let (a, b) = if part == Part::Day { (a, b) } else { (a >> shift_a, b >> shift_b) };
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
                    // As bounds they may fall together, and never the other way round.
                    assert!(order.is_eq() || order == a.cmp(&b), "{part:?}");
                }
            }
        }
    }

    #[test]
    fn the_ends_of_time_are_kept() {
        for (part, number) in [(Part::Time, u64::MAX), (Part::Time, 0), (Part::Day, u64::MAX)] {
            let bytes = bytes_of(part, number);
            let (cell, is_exact) = part.read(&mut bytes.as_slice()).unwrap();
            let mut back = Vec::new();
            part.write(&cell, &mut back).unwrap();
            assert_eq!((back, is_exact), (bytes, true), "{part:?}");
        }
        assert_eq!(time(1_763_337_600_000), 816_652_800_000_000);
    }

    #[test]
    fn what_no_column_holds_is_said() {
        for (part, number) in [
            (Part::Number, u64::MAX),
            (Part::Number, i64::MAX as u64),
            (Part::Time, u64::MAX - 1),
            (Part::Day, u64::MAX - (1 << 32)),
        ] {
            let bytes = bytes_of(part, number);
            assert!(!part.read(&mut bytes.as_slice()).unwrap().1, "{part:?}");
        }
    }
}
