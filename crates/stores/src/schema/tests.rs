//! Stored rows: those of earlier releases are still read, and sealed ones give nothing away and cannot be changed or moved.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use domain::{
    budget::{Amount, BudgetBook, BudgetUse, Reservation, Reservations},
    callback::Callback,
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Claim, ClaimState, Door, Source},
    dead_letter::{DeadLetter, DeadLetterClass},
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    ledger::{Counts, Outcomes, Total},
    money::Money,
    pool::{Level, Pool, StandingOrder},
    ports::Chance,
    secret::Secret,
    site::PageUrl,
    solve::{Origin, Policy, Solve, Stage},
    time::{Day, Timestamp},
    token::{Answer, Token},
};

use super::{
    codec::{Codec, key_bytes, sealed_with},
    keys::Text,
    seal::{BadEncryptionKey, EncryptionKey, Keyring},
    tables::{
        Callbacks, Challenges, Claims, DeadLetters, Pools, Solves, Spending, Stock, Stocked, Table,
        Totals,
    },
};
use crate::tx::RowKey;

/// Numbers that are all different.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Chance for Counter {
    fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

mod appended;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER_KEY: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
/// As 0.1.0 wrote them. These never change.
const OLD_ROWS: &str = include_str!("golden/rows-0.1.0.txt");
/// As the first release with encryption wrote them, before claims had generations. These never change.
const OLD_SEALED_ROWS: &str = include_str!("golden/rows-sealed-1.txt");
const SEALED_ROWS: &str = include_str!("golden/rows-sealed.txt");

fn key(text: &str) -> EncryptionKey {
    EncryptionKey::parse(&Secret::new(text)).unwrap()
}

fn codec(keys: &[&str]) -> Codec {
    let keys: Vec<EncryptionKey> = keys.iter().map(|text| key(text)).collect();
    let ring = |first| Keyring::new(first, keys.get(1), Arc::new(Counter::default()));
    Codec { keys: keys.first().map(ring), ..Codec::plain("test") }
}

// === the samples ===

fn names() -> (WorkerName, Project) {
    (WorkerName::new("checkout-tests").unwrap(), Project::new("checkout").unwrap())
}

fn challenge() -> Arc<Challenge> {
    let params = [("proxy", "user:canary@10.0.0.1:3128"), ("cookies", "sid=canary")];
    let parts = ChallengeParts {
        sitekey: Some("0x4AAA".into()),
        pageurl: Some(PageUrl::parse("https://shop.example.com/login").unwrap()),
        params: params.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        files: BTreeMap::from([("body".to_owned(), b"canary".to_vec())]),
    };
    Arc::new(Challenge::new(Kind::Turnstile, parts).unwrap())
}

fn token() -> Token {
    let extras = Some(Secret::new(r#"{"useragent":"canary"}"#));
    Token {
        answer: Answer { text: Secret::new("canary-token"), is_json: false, extras },
        solve: SolveId::from_number(7),
        task: TaskId::new("71200").unwrap(),
        ready_lower: Timestamp::from_millis(1_763_337_600_000),
        expires_at: Timestamp::from_millis(1_763_337_900_000),
        usable_until: Timestamp::from_millis(1_763_337_850_000),
        cost: Some(Money::from_micros(1_000)),
    }
}

fn claim() -> Claim {
    let (worker, project) = names();
    let at = Timestamp::from_millis;
    Claim {
        id: ClaimId::from_number(123_456_789_012_345),
        worker,
        project,
        door: Door::V1,
        kind: Kind::Turnstile,
        sitekey: Some("0x4AAA".into()),
        pageurl: Some("https://shop.example.com/login".into()),
        basis: "own shop".into(),
        fingerprint: Fingerprint::from_bytes([3; 32]),
        key: Some(KeyHash::from_bytes([4; 32])),
        solve: Some(SolveId::from_number(7)),
        state: ClaimState::Served,
        source: Some(Source::Upstream),
        opened_at: at(1_763_337_500_000),
        deadline: at(1_763_337_700_000),
        ended_at: Some(at(1_763_337_600_500)),
        delivered_at: None,
        token: Some(token()),
        code: None,
        attempts: 1,
        polls: 4,
        cost: Some(Money::from_micros(1_000)),
        callback_url: Some(Secret::new("https://hooks.example.com/canary")),
        revives: None,
        report: None,
        reopened: 0,
        may_have_paid: false,
    }
}

fn stocked() -> Stocked {
    let (worker, project) = names();
    Stocked { token: token(), kind: Kind::Turnstile, worker, project }
}

fn callback() -> Callback {
    Callback::for_claim(&claim(), Timestamp::from_millis(1_763_337_600_500)).unwrap()
}

fn pool() -> Pool {
    let (worker, project) = names();
    let order = StandingOrder {
        challenge: challenge(),
        worker,
        project,
        basis: "own shop".into(),
        level: Level::Fixed(3),
        most: 5,
        waste: 100,
        is_declared: true,
    };
    Pool::new(Fingerprint::from_bytes([3; 32]), order, Timestamp::from_millis(1_763_337_500_000))
}

fn stock_key() -> <Stock as Table>::Key {
    (Fingerprint::from_bytes([3; 32]), token().usable_until, token().solve)
}

/// Calls a macro with every sample: its table, key and value.
macro_rules! for_each_sample {
    ($use:ident) => {
        $use!(Claims, claim().id, claim());
        $use!(Challenges, SolveId::from_number(7), challenge());
        $use!(Stock, stock_key(), stocked());
        $use!(Callbacks, claim().id, callback());
        $use!(Pools, pool().fingerprint, pool());
    };
}

fn encode<T: Table>(codec: Codec, key: &T::Key, value: &T::Value) -> Vec<u8>
where
    T::Value: Sync,
{
    let key = key_bytes::<T>(key);
    let key = RowKey {
        bytes: &key,
        table: T::NAME,
        is_plain: false,
        holds_secret: T::holds_secret(value),
    };
    let mut bytes = Vec::new();
    codec.write_row(key, value, &mut bytes).unwrap();
    bytes
}

fn decode<T: Table>(codec: Codec, key: &T::Key, bytes: &[u8]) -> Result<T::Value, String> {
    codec.read_row::<T>(&key_bytes::<T>(key), bytes).map_err(|error| error.to_string())
}

// === golden rows ===

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn row_of(golden: &str, table: &str) -> Vec<u8> {
    let line = golden.lines().find_map(|line| line.strip_prefix(table)?.strip_prefix(' '));
    let digits = line.unwrap_or_else(|| panic!("no row of {table}")).as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(byte).collect()
}

#[test]
fn rows_of_0_1_0_are_still_read_with_and_without_a_key() {
    for codec in [codec(&[]), codec(&[KEY])] {
        macro_rules! check {
            ($table:ident, $key:expr, $value:expr) => {
                let row = row_of(OLD_ROWS, $table::NAME);
                assert_eq!(decode::<$table>(codec, &$key, &row), Ok($value));
            };
        }
        for_each_sample!(check);
    }
}

#[test]
fn sealed_rows_of_before_are_still_read() {
    let codec = codec(&[KEY]);
    macro_rules! check {
        ($table:ident, $key:expr, $value:expr) => {
            let row = row_of(OLD_SEALED_ROWS, $table::NAME);
            assert_eq!(decode::<$table>(codec, &$key, &row), Ok($value));
        };
    }
    for_each_sample!(check);
    // Both are of the first generation, and nothing is known to be lost.
    let row = row_of(OLD_SEALED_ROWS, Claims::NAME);
    let read = decode::<Claims>(codec, &claim().id, &row).unwrap();
    assert_eq!((read.generation(), read.may_have_paid), (1, false));
}

#[test]
fn sealed_rows_keep_their_form() {
    let codec = codec(&[KEY]);
    let mut written = String::new();
    macro_rules! write_it {
        ($table:ident, $key:expr, $value:expr) => {
            let row = encode::<$table>(codec, &$key, &$value);
            writeln!(written, "{} {}", $table::NAME, hex(&row)).unwrap();
        };
    }
    for_each_sample!(write_it);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/golden/rows-sealed.txt");
        std::fs::write(path, &written).unwrap();
        return;
    }
    macro_rules! check {
        ($table:ident, $key:expr, $value:expr) => {
            let row = row_of(SEALED_ROWS, $table::NAME);
            assert_eq!(decode::<$table>(codec, &$key, &row), Ok($value));
        };
    }
    for_each_sample!(check);
    assert_eq!(written, SEALED_ROWS, "the form of sealed rows has changed");
}

// === appended fields ===

// === sealing ===

#[test]
fn a_sealed_row_shows_none_of_its_value_and_no_two_are_equal() {
    let (plain, sealing) = (codec(&[]), codec(&[KEY]));
    macro_rules! check {
        ($table:ident, $key:expr, $value:expr) => {
            let shows = |row: &[u8]| row.windows(6).any(|part| part == b"canary");
            assert!(shows(&encode::<$table>(plain, &$key, &$value)));
            let row = encode::<$table>(sealing, &$key, &$value);
            assert!(!shows(&row), "{}", $table::NAME);
            assert_ne!(row, encode::<$table>(sealing, &$key, &$value));
            assert_eq!(sealed_with(&row), Some(key(KEY).id()));
        };
    }
    for_each_sample!(check);
}

#[test]
fn a_row_without_a_secret_is_not_sealed() {
    let mut claim = claim();
    claim.callback_url = None;
    claim.token.as_mut().unwrap().answer.drop_text();
    let row = encode::<Claims>(codec(&[KEY]), &claim.id, &claim);
    assert_eq!(sealed_with(&row), None);
    assert_eq!(decode::<Claims>(codec(&[]), &claim.id, &row), Ok(claim));
}

#[test]
fn a_sealed_value_cannot_be_moved_to_another_row_or_table() {
    let codec = codec(&[KEY]);
    let mut row = encode::<Claims>(codec, &claim().id, &claim());
    let other = ClaimId::from_number(1);
    correct_checksum(&key_bytes::<Claims>(&other), &mut row);
    let refused = decode::<Claims>(codec, &other, &row).unwrap_err();
    assert!(refused.contains("altered, or moved"), "{refused}");
    correct_checksum(&key_bytes::<Callbacks>(&claim().id), &mut row);
    let refused = decode::<Callbacks>(codec, &claim().id, &row).unwrap_err();
    assert!(refused.contains("altered, or moved"), "{refused}");
}

#[test]
fn a_bit_that_changed_anywhere_in_a_sealed_row_is_found() {
    let codec = codec(&[KEY]);
    let row = encode::<Callbacks>(codec, &claim().id, &callback());
    for at in 0..row.len() {
        for bit in 0..8 {
            let mut changed = row.clone();
            changed[at] ^= 1 << bit;
            // Somebody who changes a row on purpose also corrects its checksum.
            correct_checksum(&key_bytes::<Callbacks>(&claim().id), &mut changed);
            let read = decode::<Callbacks>(codec, &claim().id, &changed);
            assert!(read.is_err() || (1..5).contains(&at), "bit {bit} of byte {at}");
        }
    }
    for end in 0..row.len() {
        let mut cut = row[..end].to_vec();
        if end > 4 {
            correct_checksum(&key_bytes::<Callbacks>(&claim().id), &mut cut);
        }
        assert!(decode::<Callbacks>(codec, &claim().id, &cut).is_err(), "cut at {end}");
    }
}

fn correct_checksum(key: &[u8], row: &mut [u8]) {
    let sum = crc32fast::hash(&[key, &row[5..]].concat());
    row[1..5].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_row_of_an_unknown_key_names_the_key_and_the_remedy() {
    let row = encode::<Claims>(codec(&[KEY]), &claim().id, &claim());
    let id = key(KEY).id().to_string();
    let without = decode::<Claims>(codec(&[]), &claim().id, &row).unwrap_err();
    assert!(without.contains(&id) && without.contains("is not set"), "{without}");
    let wrong = decode::<Claims>(codec(&[OTHER_KEY]), &claim().id, &row).unwrap_err();
    let other = key(OTHER_KEY).id().to_string();
    assert!(wrong.contains(&id) && wrong.contains(&other) && wrong.contains("second"), "{wrong}");
    // While keys are being replaced, gateways have both.
    assert_eq!(decode::<Claims>(codec(&[OTHER_KEY, KEY]), &claim().id, &row), Ok(claim()));
}

// === keys ===

#[test]
fn a_key_is_32_random_bytes_as_hex_or_base64() {
    assert_eq!(key(KEY), key(&KEY.to_uppercase()));
    assert_eq!(key(KEY), key("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="));
    assert_eq!(key(OTHER_KEY), key(OTHER_KEY.trim_end_matches('=')));
    let url_safe = key("-_7DxMXGx8jJysvMzc7P0NHS09TV1tfY2drb3N3e3-A");
    assert_eq!(url_safe, key("+/7DxMXGx8jJysvMzc7P0NHS09TV1tfY2drb3N3e3+A"));
    let parse = |text: &str| EncryptionKey::parse(&Secret::new(text)).map(drop);
    let long = format!("{KEY}00");
    for bad in ["", "hunter2", &KEY[2..], &long, &KEY.replace('0', "+"), &KEY.replace("00", "é")] {
        assert_eq!(parse(bad), Err(BadEncryptionKey::Form), "{bad}");
    }
    for weak in ["00".repeat(32), "deadbeef".repeat(8)] {
        assert_eq!(parse(&weak), Err(BadEncryptionKey::Guessable), "{weak}");
    }
    assert_eq!(format!("{:?}", key(KEY)), "…");
}
