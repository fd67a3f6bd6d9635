//! One line of a retry table: the class of a code, the number of retries, the wait before them, whether they cost, and
//! what the code says about the provider.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

/// What a code means for the solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The cause will pass; retry later.
    Transient,
    /// The challenge itself is refused; never retry.
    Permanent,
    /// The account has a problem. The circuit breaker opens, and the claims wait.
    Account,
    /// This task ended without an answer; another attempt may succeed.
    TaskOver,
    /// Not a failure; ask again later.
    Wait,
}

/// What a code says about the provider or the account, beyond the solve that got it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// It concerns this solve only.
    #[default]
    None,
    /// Every slot of the account is taken. The engine waits for one.
    NoSlot,
    /// Every slot may be taken, or the account has a problem. The engine asks the provider which it is.
    MaybeNoSlot,
    /// The account sends too fast. All submissions pause, not only the one that was refused.
    SlowDown,
    /// The provider answers and cannot work. It counts as unreachable.
    ProviderDown,
    /// In reply to a poll, the account must not poll: each further request may prolong a ban. In reply to a submission it says
    /// nothing about polling.
    StopPolling,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The code of the provider, or ours.
    pub code: Cow<'static, str>,
    /// What the code means for the solve.
    pub class: Class,
    /// The most retries of one solve; without effect where failures are not counted.
    pub max: u32,
    /// Whether a retry waits for the backoff.
    pub backoff: bool,
    /// Whether a retry is a new attempt, which costs.
    pub new_attempt: bool,
    /// Whether the failed attempt is charged; `None` when the provider does not say.
    pub charged: Option<bool>,
    /// The shortest wait that the provider asks for.
    pub floor: Duration,
    /// What it says about the provider or the account.
    pub effect: Effect,
}

// === impl Class ===

impl Class {
    /// Every class, for tables and messages.
    pub const ALL: [Self; 5] =
        [Self::Transient, Self::Permanent, Self::Account, Self::TaskOver, Self::Wait];

    /// The name in configuration and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Account => "account",
            Self::TaskOver => "task-over",
            Self::Wait => "wait",
        }
    }

    /// The class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Whether failures are counted, so that a solve may fail with the code.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Transient | Self::TaskOver)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Rule ===

impl Rule {
    /// A line with the defaults of its class.
    pub(super) const fn new(code: Cow<'static, str>, class: Class, max: u32) -> Self {
        let backoff = matches!(class, Class::Transient | Class::Account | Class::Wait);
        let new_attempt = matches!(class, Class::TaskOver);
        let (charged, floor, effect) = (Some(false), Duration::ZERO, Effect::None);
        Self { code, class, max, backoff, new_attempt, charged, floor, effect }
    }

    /// The most retries; `None` when they are not counted.
    pub fn retries(&self) -> Option<u32> {
        match self.class {
            Class::Transient | Class::TaskOver => Some(self.max),
            Class::Permanent => Some(0),
            Class::Account | Class::Wait => None,
        }
    }

    /// What a retry waits for, in words.
    pub fn waits(&self) -> String {
        let word = match (self.class, self.backoff) {
            (Class::Permanent, _) => return "-".into(),
            (Class::Account, _) => "for a probe",
            (Class::Wait, _) => "for its turn",
            (Class::Transient | Class::TaskOver, true) => "backoff",
            (Class::Transient | Class::TaskOver, false) => "none",
        };
        if self.floor.is_zero() {
            return word.into();
        }
        format!("{word}, at least {} s", self.floor.as_secs_f64())
    }
}

/// `ERROR_X: transient, 5 retries, waits: backoff, new attempt: no, charged: no`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is| if is { "yes" } else { "no" };
        write!(f, "{}: {}, ", self.code, self.class)?;
        match self.retries() {
            Some(max) => write!(f, "{max} retries")?,
            None => f.write_str("retries not counted")?,
        }
        let charged = self.charged.map_or("unknown", yes);
        write!(f, ", waits: {}, new attempt: {}", self.waits(), yes(self.new_attempt))?;
        write!(f, ", charged: {charged}")
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Rule", 7)?;
        row.serialize_field("code", &self.code)?;
        row.serialize_field("class", &self.class)?;
        row.serialize_field("max", &self.retries())?;
        row.serialize_field("backoff", &self.backoff)?;
        row.serialize_field("new_attempt", &self.new_attempt)?;
        row.serialize_field("charged", &self.charged)?;
        row.serialize_field("wait_s", &self.floor.as_secs_f64())?;
        row.end()
    }
}
