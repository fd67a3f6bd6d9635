//! Rows of earlier releases, which lack what was appended since, are completed when they are read.

use super::*;

/// The value of a dead letter as 0.1.0 wrote it.
const OLD_DEAD_LETTER: &str = "0701f9beb7b088891c0e636865636b6f75742d746573747308636865636b6f7574097475726e7374696c650106307834414141000d4552524f525f5041474555524c01000100000100e0eaebf8a83300";

fn row_with<T: Table>(key: &T::Key, value: &[u8]) -> Vec<u8> {
    let mut row = [&[1, 0, 0, 0, 0], value].concat();
    correct_checksum(&key_bytes::<T>(key), &mut row);
    row
}

fn solve() -> Solve {
    let (worker, project) = names();
    let at = Timestamp::from_millis(1_763_337_500_000);
    Solve {
        id: SolveId::from_number(7),
        origin: Origin::Claim(claim().id),
        fingerprint: Fingerprint::from_bytes([3; 32]),
        kind: Kind::Turnstile,
        worker,
        project,
        claims: vec![claim().id],
        stage: Stage::Submitted,
        fence: Fence::default(),
        holder: None,
        attempt: 1,
        nonce: None,
        task: Some(TaskId::new("71200").unwrap()),
        opened_at: at,
        wanted_until: at,
        accepted_at: Some(at),
        due: at,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: Some(Money::from_micros(1_000)),
        policy: Policy::default(),
        ended_at: None,
        reservations: Reservations::default(),
    }
}

#[test]
fn a_solve_of_0_1_0_holds_no_reservation() {
    let (id, mut solve) = (solve().id, solve());
    let bytes = postcard::to_stdvec(&solve).unwrap();
    // 0.1.0 had no reservations; everything before them is unchanged.
    let (earlier, appended) = bytes.split_at(bytes.len() - Solves::APPENDED);
    assert!(appended.iter().all(|byte| *byte == 0));
    let read = |value: &[u8]| decode::<Solves>(codec(&[]), &id, &row_with::<Solves>(&id, value));
    assert_eq!(read(earlier), Ok(solve.clone()));
    assert_eq!(read(&bytes), Ok(solve.clone()));
    let reservation = Reservation { day: Day::from_number(20_000), price: None };
    solve.reservations = Reservations { open: Some(reservation), assumed: vec![(1, reservation)] };
    assert_eq!(read(&postcard::to_stdvec(&solve).unwrap()), Ok(solve));
}

#[test]
fn a_dead_letter_of_0_1_0_is_one_of_a_failure() {
    let (worker, project) = names();
    let mut letter = DeadLetter {
        id: SolveId::from_number(7),
        claims: vec![claim().id],
        worker,
        project,
        kind: Kind::Turnstile,
        sitekey: Some("0x4AAA".into()),
        pageurl: None,
        code: "ERROR_PAGEURL".into(),
        attempts: 1,
        causes: Vec::new(),
        generation: 1,
        revives: None,
        earlier: Vec::new(),
        cost: Some(Money::ZERO),
        died_at: Timestamp::from_millis(1_763_337_500_000),
        closed: None,
        class: DeadLetterClass::Failed,
    };
    let id = letter.id;
    let read =
        |value: &[u8]| decode::<DeadLetters>(codec(&[]), &id, &row_with::<DeadLetters>(&id, value));
    let bytes = postcard::to_stdvec(&letter).unwrap();
    // 0.1.0 had no class; everything before it is unchanged.
    let (earlier, appended) = bytes.split_at(bytes.len() - DeadLetters::APPENDED);
    assert_eq!((appended, hex(earlier).as_str()), (&[0][..], OLD_DEAD_LETTER));
    assert_eq!(read(earlier), Ok(letter.clone()));
    letter.class = DeadLetterClass::Lapsed;
    assert_eq!(read(&postcard::to_stdvec(&letter).unwrap()), Ok(letter));
}

#[test]
fn what_a_worker_had_opened_under_0_1_0_is_what_is_reserved() {
    let key = (Day::from_number(20_000), Text::new("ann"));
    let opened = postcard::to_stdvec(&(7_u64, Money::from_micros(3_000))).unwrap();
    let row = row_with::<Spending>(&key, &opened);
    let reserved = Amount { solves: 7, cost: Money::from_micros(3_000) };
    let month = BudgetUse { reserved, ..BudgetUse::default() };
    let book = BudgetBook { month, days: Vec::new() };
    assert_eq!(decode::<Spending>(codec(&[]), &key, &row), Ok(book.clone()));
    let now = postcard::to_stdvec(&book).unwrap();
    assert_eq!(now.len(), opened.len() + Spending::APPENDED);
}

/// A row of the daily sums as release e5175a5 wrote it.
const OLD_TOTAL: &str = include_str!("../golden/totals-e5175a5.txt");

fn old_total() -> (<Totals as Table>::Key, Vec<u8>) {
    let key = (Day::from_number(20_400), Text::new("checkout-tests/checkout/turnstile"));
    (key, row_of(OLD_TOTAL, Totals::NAME))
}

#[test]
fn the_sums_of_an_earlier_release_are_converted_and_add_up() {
    let (key, row) = old_total();
    let read = decode::<Totals>(codec(&[]), &key, &row).unwrap();
    // It counted 53 requests, 13 of them repeated ones, and lapsed claims as failed.
    let outcomes = Outcomes { claims: 40, served: 35, failed: 4, withdrawn: 1, ..NO_OUTCOMES };
    assert_eq!(read.counts.outcomes(), outcomes);
    let counts = read.counts;
    assert_eq!((counts.attempts, counts.unknown_costs(), counts.costed()), (30, 27, 30));
    assert_eq!(
        (counts.net_cost(), counts.saved),
        (Money::from_micros(3_000), Money::from_micros(20_000))
    );
    assert_eq!((counts.savings(), counts.times.percentile(50)), (20, None));
    // What is written from now on is read as it is.
    let rewritten = row_with::<Totals>(&key, &postcard::to_stdvec(&read).unwrap());
    assert_eq!(decode::<Totals>(codec(&[]), &key, &rewritten), Ok(read.clone()));
    let mut more = read.clone();
    more.counts.add(&read.counts);
    let rewritten = row_with::<Totals>(&key, &postcard::to_stdvec(&more).unwrap());
    assert_eq!(decode::<Totals>(codec(&[]), &key, &rewritten), Ok(more));
}

#[test]
fn a_row_of_sums_is_completed_with_as_many_bytes_as_were_appended() {
    let (_, row) = old_total();
    let (worker, project) = names();
    let day = Day::from_number(20_400);
    let empty = Total::new(day, worker, project, Kind::Turnstile, Counts::default());
    let written = postcard::to_stdvec(&empty).unwrap();
    let (earlier, appended) = written.split_at(written.len() - Totals::APPENDED);
    assert!(appended[..Totals::APPENDED - 1].iter().all(|byte| *byte == 0));
    // The 19 counters of the old row follow the same head.
    let head = earlier.len() - 19;
    assert_eq!(row[5..5 + head], earlier[..head]);
}

const NO_OUTCOMES: Outcomes =
    Outcomes { claims: 0, served: 0, failed: 0, lapsed: 0, withdrawn: 0, waiting: 0 };
