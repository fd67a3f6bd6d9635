use proptest::prelude::*;

use super::*;

/// Always draws the same number.
#[derive(Debug)]
struct Drawn(u64);
impl Chance for Drawn {
    fn draw(&self) -> u64 {
        self.0
    }
}

const SOMETHING: Drawn = Drawn(u64::MAX / 3);
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn failure(code: &str) -> Failure {
    Failure { attempt: 1, at: Timestamp::default(), code: code.into(), cost: None }
}

fn verdict_of(table: &RetryTable, code: &str, times: usize) -> Verdict {
    let chain = vec![failure(code); times];
    let at = RetryMoment { now: NOW, retry_after: None, chance: &SOMETHING };
    table.verdict(&code.into(), &chain, at)
}

fn verdict(code: &str, times: usize) -> Verdict {
    verdict_of(&RetryTable::in_php(Profile::Default), code, times)
}

fn with(overrides: &[(&str, Override)]) -> Result<RetryTable, OverrideRefused> {
    let overrides = overrides.iter().map(|(code, change)| (Code::from(*code), *change)).collect();
    RetryTable::new(IN_PHP, Profile::Default.backoff(), Jitter::Full, &overrides)
}

fn refusal(code: &str, change: Override) -> String {
    with(&[(code, change)]).unwrap_err().to_string()
}

fn class(class: Class) -> Override {
    Override { class: Some(class), ..Override::default() }
}

fn max(max: u32) -> Override {
    Override { max: Some(max), ..Override::default() }
}

/// The codes of protocol.md §4.1 to §4.3, and ours of §4.4.
const PROTOCOL: &str = "
    ERROR_WRONG_USER_KEY account
    ERROR_KEY_DOES_NOT_EXIST account
    ERROR_ZERO_BALANCE account
    ERROR_NO_SLOT_AVAILABLE wait
    ERROR_SERVER_ERROR transient
    ERROR_INTERNAL_SERVER_ERROR transient
    ERROR_TOO_MUCH_REQUESTS transient
    MAX_USER_TURN transient
    ERROR:_1001 account
    ERROR:_1002 account
    ERROR:_1003 account
    ERROR:_1004 account
    ERROR:_1005 account
    IP_BANNED account
    ERROR_IP_BANNED account
    ERROR_IP_NOT_ALLOWED account
    ERROR_PAGEURL permanent
    ERROR_GOOGLEKEY permanent
    ERROR_WRONG_GOOGLEKEY permanent
    ERROR_BAD_TOKEN_OR_PAGEURL permanent
    ERROR_BAD_PARAMETERS permanent
    ERROR_CAPTCHA_ID permanent
    ERROR_PROXY_FORMAT permanent
    ERROR_BAD_PROXY permanent
    ERROR_ZERO_CAPTCHA_FILESIZE permanent
    ERROR_TOO_BIG_CAPTCHA_FILESIZE permanent
    ERROR_IMAGE_DIMENSIONS_TOO_LARGE permanent
    ERROR_WRONG_FILE_EXTENSION permanent
    ERROR_IMAGE_TYPE_NOT_SUPPORTED permanent
    ERROR_UPLOAD permanent
    ERROR_CAPTCHAIMAGE_BLOCKED permanent
    TOO_MANY_BAD_IMAGES permanent
    ERROR_DOMAIN_NOT_ALLOWED permanent
    CAPCHA_NOT_READY wait
    CAPTCHA_NOT_READY wait
    ERROR_CAPTCHA_UNSOLVABLE task-over
    ERROR_BAD_DUPLICATES task-over
    ERROR_WRONG_CAPTCHA_ID permanent
    ERROR_NO_SUCH_CAPCHA_ID permanent
    ERROR_WRONG_ID_FORMAT permanent
    ERROR_PROXY_CONNECTION_FAILED permanent
    ERROR_TOKEN_EXPIRED permanent
    ERROR_EMPTY_ACTION permanent
    ERROR_REPORT_NOT_RECORDED permanent
    REPORT_NOT_RECORDED permanent
    ERROR_DUPLICATE_REPORT permanent
    ERROR_IP_ADDRES permanent
    HTTP_429 transient
    NOT_SENT transient
    AMBIGUOUS task-over
    NEVER_READY permanent";

#[test]
fn every_code_of_the_protocol_has_one_row_of_its_class() {
    let mut rows: Vec<(&str, &str)> =
        IN_PHP.iter().map(|rule| (&*rule.code, rule.class.name())).collect();
    let protocol = PROTOCOL.lines().skip(1).map(|line| line.trim().split_once(' ').unwrap());
    for (code, class) in protocol {
        let code = code.replace("ERROR:_", "ERROR: ");
        let at = rows.iter().position(|row| *row == (&*code, class));
        rows.remove(at.unwrap_or_else(|| panic!("{code} is not there once, as {class}")));
    }
    assert_eq!(rows, [], "rows the protocol does not have");
}

#[test]
fn each_code_is_retried_as_often_as_the_table_says() {
    for profile in [Profile::Default, Profile::Conservative, Profile::Aggressive] {
        let table = RetryTable::in_php(profile);
        for rule in table.rules().filter(|rule| rule.class.is_counted()) {
            assert!((1..=profile.backoff().most).contains(&rule.max), "{rule}");
            let max = usize::try_from(rule.max).unwrap();
            let last = verdict_of(&table, &rule.code, max - 1);
            assert!(matches!(last, Verdict::Again { counted: true, .. }), "{rule}");
            assert_eq!(verdict_of(&table, &rule.code, max), Verdict::GiveUp, "{rule}");
        }
    }
}

#[test]
fn permanent_and_unknown_codes_are_never_retried() {
    for code in ["ERROR_PAGEURL", "ERROR_WRONG_CAPTCHA_ID", "https://example.com/why", ""] {
        assert_eq!(verdict(code, 0), Verdict::GiveUp, "{code}");
    }
}

#[test]
fn account_trouble_never_uses_up_a_try() {
    for code in ["ERROR_ZERO_BALANCE", "ERROR_KEY_DOES_NOT_EXIST", "ERROR: 1001"] {
        assert!(matches!(verdict(code, 50), Verdict::Again { counted: false, .. }), "{code}");
    }
}

#[test]
fn no_free_slot_is_never_the_end_of_a_solve_and_only_retry_after_holds_it_back() {
    for profile in [Profile::Default, Profile::Conservative, Profile::Aggressive] {
        let table = RetryTable::in_php(profile);
        let at_once = Verdict::Again { due: NOW, counted: false };
        assert_eq!(verdict_of(&table, "ERROR_NO_SLOT_AVAILABLE", 1000), at_once);
        let asked = |wait| {
            let at = RetryMoment { now: NOW, retry_after: Some(wait), chance: &SOMETHING };
            table.verdict(&"ERROR_NO_SLOT_AVAILABLE".into(), &[], at)
        };
        let later = |wait| Verdict::Again { due: NOW.plus(wait), counted: false };
        let (short, day) = (Duration::from_secs(4), Duration::from_secs(86_400));
        assert_eq!(asked(short), later(short));
        assert_eq!(asked(day), later(Duration::from_secs(3600)), "no answer parks a claim");
    }
}

#[test]
fn a_code_without_backoff_is_tried_again_at_once() {
    let at_once = Verdict::Again { due: NOW, counted: true };
    assert_eq!(verdict("ERROR_CAPTCHA_UNSOLVABLE", 1), at_once);
}

#[test]
fn an_override_changes_what_it_names_and_nothing_else() {
    let change = Override { max: Some(7), wait: Some(Duration::from_secs(2)), ..max(7) };
    let table = with(&[("ERROR_CAPTCHA_UNSOLVABLE", change)]).unwrap();
    let usual = RetryTable::in_php(Profile::Default);
    for (rule, was) in table.rules().zip(usual.rules()) {
        let expected = match &*rule.code {
            "ERROR_CAPTCHA_UNSOLVABLE" => {
                Rule { max: 7, floor: Duration::from_secs(2), ..was.clone() }
            }
            _ => was.clone(),
        };
        assert_eq!(*rule, expected);
    }
    let again = verdict_of(&table, "ERROR_CAPTCHA_UNSOLVABLE", 6);
    let due = NOW.plus(Duration::from_secs(2));
    assert_eq!(again, Verdict::Again { due, counted: true }, "7 stands above the profile's 5");
    assert_eq!(verdict_of(&table, "ERROR_CAPTCHA_UNSOLVABLE", 7), Verdict::GiveUp);
}

#[test]
fn a_code_of_another_class_behaves_as_that_class_does() {
    let backoff = Override { backoff: Some(true), ..class(Class::TaskOver) };
    let table = with(&[
        ("ERROR_TOKEN_EXPIRED", backoff),
        ("ERROR_SERVER_ERROR", class(Class::Permanent)),
        ("ERROR_ZERO_BALANCE", class(Class::Wait)),
    ])
    .unwrap();
    let expired = table.rule(&"ERROR_TOKEN_EXPIRED".into());
    assert!(expired.new_attempt && expired.backoff && expired.max == 2, "{expired}");
    assert_eq!(verdict_of(&table, "ERROR_SERVER_ERROR", 0), Verdict::GiveUp);
    let waiting = Verdict::Again { due: NOW, counted: false };
    assert_eq!(verdict_of(&table, "ERROR_ZERO_BALANCE", 9), waiting);
}

#[test]
fn a_code_the_table_does_not_know_is_added_with_its_class() {
    let table = with(&[("ERROR_TEAPOT", class(Class::Transient))]).unwrap();
    assert!(matches!(verdict_of(&table, "ERROR_TEAPOT", 4), Verdict::Again { counted: true, .. }));
    assert_eq!(verdict_of(&table, "ERROR_TEAPOT", 5), Verdict::GiveUp);
    assert_eq!(table.rule(&"ERROR_TEAPOT".into()).charged, None, "nobody knows");
    assert_eq!(table.rules().count(), RetryTable::in_php(Profile::Default).rules().count() + 1);
}

#[test]
fn what_would_make_the_table_unsafe_is_refused_with_the_reason() {
    let wait = |seconds| Override { wait: Some(Duration::from_secs(seconds)), ..max(1) };
    let slow = Override { backoff: Some(false), ..Override::default() };
    let cases = [
        (own::AMBIGUOUS, max(5), "may have been paid for"),
        (own::POISON, max(5), "own code for the end"),
        ("ERROR_ZERO_BALANCE", class(Class::Permanent), "must not fail claims"),
        ("ERROR: 1001", class(Class::TaskOver), "must not fail claims"),
        ("ERROR_WRONG_USER_KEY", class(Class::Transient), "must not fail claims"),
        ("ERROR_ZERO_BALANCE", max(3), "is not counted"),
        ("ERROR_ZERO_BALANCE", slow, "transient and task-over codes only"),
        ("ERROR_NO_SLOT_AVAILABLE", class(Class::Transient), "no claim may fail because of it"),
        ("CAPCHA_NOT_READY", class(Class::Permanent), "no claim may fail because of it"),
        ("ERROR_PAGEURL", max(1), "never retried"),
        ("ERROR_SERVER_ERROR", max(101), "100 at most"),
        ("ERROR_SERVER_ERROR", wait(3601), "an hour at most"),
        ("ERROR_TEAPOT", max(1), "set its class too"),
        ("", class(Class::Transient), "must not be empty"),
    ];
    for (code, change, says) in cases {
        let refusal = refusal(code, change);
        assert!(refusal.starts_with(&format!("{code}: ")) && refusal.contains(says), "{refusal}");
    }
}

#[test]
fn a_rule_prints_everything_about_itself() {
    let table = RetryTable::in_php(Profile::Default);
    let shown = |code: &str| table.rule(&code.into()).to_string();
    assert_eq!(
        shown("MAX_USER_TURN"),
        "MAX_USER_TURN: transient, 5 retries, waits: backoff, at least 10 s, new attempt: no, charged: no"
    );
    assert_eq!(
        shown("ERROR_CAPTCHA_UNSOLVABLE"),
        "ERROR_CAPTCHA_UNSOLVABLE: task-over, 2 retries, waits: none, new attempt: yes, charged: unknown"
    );
    assert_eq!(
        shown("ERROR_ZERO_BALANCE"),
        "ERROR_ZERO_BALANCE: account, retries not counted, waits: for a probe, new attempt: no, charged: no"
    );
    let json = serde_json::to_string(table.rule(&"MAX_USER_TURN".into())).unwrap();
    let expected = r#"{"code":"MAX_USER_TURN","class":"transient","max":5,"backoff":true,"new_attempt":false,"charged":false,"wait_s":10.0}"#;
    assert_eq!(json, expected);
    assert!(table.to_string().starts_with("full jitter in [0, min(60 s, 1 s · 2ⁿ)]"), "{table}");
}

/// The tutorials' schedule as it really is: base·2ⁿ from n = 0, and never above the cap, jitter included.
#[test]
fn additive_waits_are_the_tutorials_and_stay_under_the_cap() {
    let backoff = Profile::Default.backoff();
    let waits = |drawn| (0..8).map(move |n| wait(backoff, Jitter::Additive, n, drawn));
    let seconds = |waits: Vec<Duration>| waits.iter().map(Duration::as_secs).collect::<Vec<_>>();
    assert_eq!(seconds(waits(0).collect()), [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(seconds(waits(1000).collect()), [2, 3, 5, 9, 17, 33, 60, 60]);
}

fn wait(backoff: Backoff, jitter: Jitter, n: u32, drawn: u64) -> Duration {
    backoff.wait(jitter, n, Duration::ZERO, &Drawn(drawn))
}

proptest! {
    #[test]
    fn waits_stay_within_their_bounds_under_both_jitters(
        base_ms in 0u64..600_000,
        cap_ms in 0u64..7_200_000,
        n in 0u32..200,
        floor_ms in 0u64..10_000_000,
        drawn: u64,
    ) {
        let ms = Duration::from_millis;
        let backoff = Backoff { base: ms(base_ms), cap: ms(cap_ms), most: 5 };
        let grown = ms(base_ms.saturating_mul(1 << n.min(20)));
        let full = wait(backoff, Jitter::Full, n, drawn);
        prop_assert!(full <= grown.min(backoff.cap));
        let additive = wait(backoff, Jitter::Additive, n, drawn);
        prop_assert!(additive >= grown.min(backoff.cap));
        prop_assert!(additive <= (grown + ms(1000)).min(backoff.cap));
        let floor = ms(floor_ms).min(ms(3_600_000));
        for (jitter, without) in [(Jitter::Full, full), (Jitter::Additive, additive)] {
            let with = backoff.wait(jitter, n, ms(floor_ms), &Drawn(drawn));
            prop_assert_eq!(with, without.max(floor));
        }
    }

    #[test]
    fn full_jitter_reaches_both_ends(n in 0u32..10) {
        let backoff = Profile::Default.backoff();
        let most = Duration::from_secs(1 << n).min(backoff.cap);
        let last = u64::try_from(most.as_millis()).unwrap();
        prop_assert_eq!(wait(backoff, Jitter::Full, n, 0), Duration::ZERO);
        prop_assert_eq!(wait(backoff, Jitter::Full, n, last), most);
    }
}
