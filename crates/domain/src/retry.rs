//! What a failure means: one table per provider, as data. Nothing else decides about a retry.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{attempt::Failure, ports::Chance, time::Timestamp};

/// The provider's word for what went wrong, or one of ours for what has none. Bounded and printable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Code(String);

/// What sort of trouble a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Will pass: try again later.
    Transient,
    /// Will not pass for this challenge.
    Permanent,
    /// Concerns the whole account: open the breaker, keep the claims.
    Account,
    /// This task is over, another one may succeed.
    TaskOver,
    /// Not a failure: ask again later.
    Wait,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The provider's code.
    pub code: &'static str,
    /// What sort of trouble it is.
    pub class: Class,
    /// How often a solve may meet it and be tried again.
    pub max: u32,
    /// Whether the next try waits.
    pub backoff: bool,
    /// Whether the next try is a new attempt, which costs.
    pub new_attempt: bool,
    /// Whether the failed attempt is charged; `None` when the provider does not say.
    pub charged: Option<bool>,
    /// The least wait the provider asks for.
    pub floor: Duration,
}

/// How long waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait's upper end.
    pub base: Duration,
    /// No wait is drawn above this.
    pub cap: Duration,
    /// Replaces every `max` above it.
    pub most: u32,
}

/// One provider's table with the profile that is in force.
#[derive(Clone, Copy, Debug)]
pub struct RetryTable {
    rules: &'static [Rule],
    backoff: Backoff,
}

/// What is to be done with the solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Queue it again, not before `due`. `counted` failures enter the cause chain.
    Again {
        /// Not before then.
        due: Timestamp,
        /// Whether it uses up one of the code's tries.
        counted: bool,
    },
    /// End it: a dead letter.
    GiveUp,
}

/// A named pair of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// 1 s doubling to 60 s, five retries at most.
    #[default]
    Default,
    /// 2 s doubling to 120 s, five retries at most.
    Conservative,
    /// 0.5 s doubling to 30 s, two retries at most.
    Aggressive,
}

/// Codes of ours, for what the provider has no word for.
pub mod own {
    /// No byte of the submission left.
    pub const NOT_SENT: &str = "NOT_SENT";
    /// The submission left and its reply was lost.
    pub const AMBIGUOUS: &str = "AMBIGUOUS";
    /// HTTP 429.
    pub const HTTP_429: &str = "HTTP_429";
    /// The caller's deadline passed.
    pub const DEADLINE: &str = "DEADLINE";
    /// The provider's retention passed without a result.
    pub const NEVER_READY: &str = "NEVER_READY";
    /// Recovered from crashes too often.
    pub const POISON: &str = "POISON";
    /// Nobody wants it any more.
    pub const WITHDRAWN: &str = "WITHDRAWN";
    /// Served by another solve's token before it was submitted.
    pub const NOT_NEEDED: &str = "NOT_NEEDED";
    /// The provider gave an answer that another solve already has.
    pub const DUPLICATE_TASK: &str = "DUPLICATE_TASK";
}

const fn rule(code: &'static str, class: Class, max: u32) -> Rule {
    let backoff = matches!(class, Class::Transient | Class::Account | Class::Wait);
    let new_attempt = matches!(class, Class::TaskOver);
    Rule { code, class, max, backoff, new_attempt, charged: Some(false), floor: Duration::ZERO }
}

const fn after(mut rule: Rule, seconds: u64) -> Rule {
    rule.floor = Duration::from_secs(seconds);
    rule
}

const fn charge(mut rule: Rule, charged: Option<bool>) -> Rule {
    rule.charged = charged;
    rule
}

use Class::{Account, Permanent, TaskOver, Transient, Wait};

/// The in.php/res.php family, CaptchaAI's differences included.
static IN_PHP: &[Rule] = &[
    rule("ERROR_NO_SLOT_AVAILABLE", Transient, 5),
    rule("ERROR_SERVER_ERROR", Transient, 3),
    rule("ERROR_INTERNAL_SERVER_ERROR", Transient, 3),
    after(rule("ERROR_TOO_MUCH_REQUESTS", Transient, 5), 3),
    after(rule("MAX_USER_TURN", Transient, 5), 10),
    rule(own::HTTP_429, Transient, 5),
    rule(own::NOT_SENT, Transient, 3),
    charge(rule(own::AMBIGUOUS, TaskOver, 1), None),
    rule("ERROR_ZERO_BALANCE", Account, 0),
    rule("ERROR_KEY_DOES_NOT_EXIST", Account, 0),
    rule("ERROR_WRONG_USER_KEY", Account, 0),
    rule("ERROR_IP_NOT_ALLOWED", Account, 0),
    after(rule("IP_BANNED", Account, 0), 300),
    after(rule("ERROR_IP_BANNED", Account, 0), 300),
    after(rule("ERROR: 1001", Account, 0), 600),
    after(rule("ERROR: 1002", Account, 0), 300),
    after(rule("ERROR: 1003", Account, 0), 30),
    after(rule("ERROR: 1004", Account, 0), 600),
    after(rule("ERROR: 1005", Account, 0), 300),
    rule("ERROR_PAGEURL", Permanent, 0),
    rule("ERROR_GOOGLEKEY", Permanent, 0),
    rule("ERROR_WRONG_GOOGLEKEY", Permanent, 0),
    rule("ERROR_BAD_TOKEN_OR_PAGEURL", Permanent, 0),
    rule("ERROR_BAD_PARAMETERS", Permanent, 0),
    rule("ERROR_CAPTCHA_ID", Permanent, 0),
    rule("ERROR_PROXY_FORMAT", Permanent, 0),
    rule("ERROR_BAD_PROXY", Permanent, 0),
    rule("ERROR_PROXY_CONNECTION_FAILED", Permanent, 0),
    rule("ERROR_ZERO_CAPTCHA_FILESIZE", Permanent, 0),
    rule("ERROR_TOO_BIG_CAPTCHA_FILESIZE", Permanent, 0),
    rule("ERROR_IMAGE_DIMENSIONS_TOO_LARGE", Permanent, 0),
    rule("ERROR_WRONG_FILE_EXTENSION", Permanent, 0),
    rule("ERROR_IMAGE_TYPE_NOT_SUPPORTED", Permanent, 0),
    rule("ERROR_UPLOAD", Permanent, 0),
    rule("ERROR_CAPTCHAIMAGE_BLOCKED", Permanent, 0),
    rule("TOO_MANY_BAD_IMAGES", Permanent, 0),
    rule("ERROR_DOMAIN_NOT_ALLOWED", Permanent, 0),
    rule("ERROR_TOKEN_EXPIRED", Permanent, 0),
    charge(rule("ERROR_WRONG_CAPTCHA_ID", Permanent, 0), Some(true)),
    charge(rule("ERROR_NO_SUCH_CAPCHA_ID", Permanent, 0), Some(true)),
    charge(rule("ERROR_WRONG_ID_FORMAT", Permanent, 0), Some(true)),
    charge(rule(own::NEVER_READY, Permanent, 0), None),
    charge(rule("ERROR_CAPTCHA_UNSOLVABLE", TaskOver, 2), None),
    charge(rule("ERROR_BAD_DUPLICATES", TaskOver, 2), Some(true)),
    rule("CAPCHA_NOT_READY", Wait, u32::MAX),
    rule("CAPTCHA_NOT_READY", Wait, u32::MAX),
];

/// A code nobody knows: visible, never retried blindly.
const UNKNOWN: Rule = charge(rule("(any other code)", Permanent, 0), None);

// === impl Code ===

impl Code {
    /// Keeps at most 256 printable characters: more than any code has, a URL in its place included.
    pub fn new(text: impl AsRef<str>) -> Self {
        let printable = |c: &char| !c.is_control();
        Self(text.as_ref().chars().filter(printable).take(256).collect())
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Code {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Code {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.0
    }
}

// === impl Profile ===

impl Profile {
    /// The waits behind the name.
    pub fn backoff(self) -> Backoff {
        let (base_ms, cap, most) = match self {
            Self::Default => (1_000, 60, 5),
            Self::Conservative => (2_000, 120, 5),
            Self::Aggressive => (500, 30, 2),
        };
        Backoff { base: Duration::from_millis(base_ms), cap: Duration::from_secs(cap), most }
    }
}

// === impl Backoff ===

impl Backoff {
    /// Full jitter: uniform in [0, min(cap, base·2ⁿ)], and never below `floor` (a `Retry-After`), which is capped
    /// at an hour so that no answer can park a claim for ever.
    pub fn wait(&self, n: u32, floor: Duration, chance: &dyn Chance) -> Duration {
        let grown = self.base.saturating_mul(2u32.saturating_pow(n.min(20)));
        let most = u64::try_from(grown.min(self.cap).as_millis()).unwrap_or(u64::MAX - 1);
        let drawn = Duration::from_millis(chance.draw() % (most + 1));
        drawn.max(floor.min(Duration::from_secs(3600)))
    }
}

// === impl RetryTable ===

impl RetryTable {
    /// The in.php/res.php table under a profile.
    pub fn in_php(profile: Profile) -> Self {
        Self { rules: IN_PHP, backoff: profile.backoff() }
    }

    /// The waits in force.
    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// All lines, for people.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        self.rules.iter().copied().chain([UNKNOWN])
    }

    /// The line for a code; an unknown code is permanent.
    pub fn rule(&self, code: &Code) -> Rule {
        let found = self.rules.iter().find(|rule| rule.code == code.as_str());
        let mut rule = found.copied().unwrap_or(UNKNOWN);
        if rule.class != Class::Wait {
            rule.max = rule.max.min(self.backoff.most);
        }
        rule
    }

    /// What `code` means for a solve that has failed before as `chain` tells.
    pub fn verdict(&self, code: &Code, chain: &[Failure], at: RetryMoment<'_>) -> Verdict {
        let rule = self.rule(code);
        let met =
            u32::try_from(chain.iter().filter(|f| f.code == *code).count()).unwrap_or(u32::MAX);
        let floor = rule.floor.max(at.retry_after.unwrap_or_default());
        let due = |n| at.now.plus(self.backoff.wait(n, floor, at.chance));
        match rule.class {
            Class::Permanent => Verdict::GiveUp,
            Class::Account | Class::Wait => {
                Verdict::Again { due: at.now.plus(floor), counted: false }
            }
            Class::Transient | Class::TaskOver if met >= rule.max => Verdict::GiveUp,
            Class::Transient | Class::TaskOver if rule.backoff => {
                Verdict::Again { due: due(met), counted: true }
            }
            Class::Transient | Class::TaskOver => {
                Verdict::Again { due: at.now.plus(floor), counted: true }
            }
        }
    }
}

/// What a verdict depends on besides the code and the chain.
#[derive(Clone, Copy)]
pub struct RetryMoment<'a> {
    /// Now.
    pub now: Timestamp,
    /// The provider's `Retry-After`: a floor.
    pub retry_after: Option<Duration>,
    /// For the jitter.
    pub chance: &'a dyn Chance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Most;
    impl Chance for Most {
        fn draw(&self) -> u64 {
            u64::MAX / 3
        }
    }

    fn failure(code: &str) -> Failure {
        Failure { attempt: 1, at: Timestamp::default(), code: code.into(), cost: None }
    }

    fn verdict(code: &str, times: usize) -> Verdict {
        let chain = vec![failure(code); times];
        let at = RetryMoment { now: Timestamp::default(), retry_after: None, chance: &Most };
        RetryTable::in_php(Profile::Default).verdict(&code.into(), &chain, at)
    }

    #[test]
    fn each_code_is_retried_as_often_as_the_table_says() {
        let table = RetryTable::in_php(Profile::Default);
        for rule in table.rules().filter(|r| matches!(r.class, Class::Transient | Class::TaskOver))
        {
            let max = usize::try_from(rule.max.min(5)).unwrap();
            assert!(
                matches!(verdict(rule.code, max - 1), Verdict::Again { counted: true, .. }),
                "{}",
                rule.code
            );
            assert_eq!(verdict(rule.code, max), Verdict::GiveUp, "{}", rule.code);
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
    fn waits_grow_to_the_cap_and_retry_after_is_a_floor() {
        let backoff = Profile::Default.backoff();
        for n in 0..40 {
            let most = Duration::from_secs(60).min(Duration::from_secs(1 << n.min(6)));
            assert!(backoff.wait(n, Duration::ZERO, &Most) <= most, "{n}");
            let floor = Duration::from_secs(7);
            assert!(backoff.wait(n, floor, &Most) >= floor);
        }
        assert_eq!(backoff.wait(0, Duration::from_secs(86_400), &Most), Duration::from_secs(3600));
    }
}
