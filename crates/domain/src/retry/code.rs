//! Error codes: the provider's, and our own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error code of the provider, or one of ours where it has none. Bounded and printable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Code(String);

/// Our own codes, for failures that the provider has no code for.
pub mod own {
    /// No byte of the submission was sent.
    pub const NOT_SENT: &str = "NOT_SENT";
    /// The submission was sent and its reply was lost.
    pub const AMBIGUOUS: &str = "AMBIGUOUS";
    /// The provider answered with HTTP status 429.
    pub const HTTP_429: &str = "HTTP_429";
    /// The caller's deadline passed.
    pub const DEADLINE: &str = "DEADLINE";
    /// The caller's deadline passed while submissions were paused.
    pub const PAUSED: &str = "PAUSED";
    /// The provider was unreachable, or answered that it cannot work.
    pub const PROVIDER_AWAY: &str = "PROVIDER_AWAY";
    /// The token expired before anybody fetched it.
    pub const TOKEN_EXPIRED: &str = "TOKEN_EXPIRED";
    /// The provider kept the task for its whole retention without an answer.
    pub const NEVER_READY: &str = "NEVER_READY";
    /// Too many gateways died while they submitted it.
    pub const POISON: &str = "POISON";
    /// The last claim was withdrawn.
    pub const WITHDRAWN: &str = "WITHDRAWN";
    /// Its claim was served by a token of another solve before this one was submitted.
    pub const NOT_NEEDED: &str = "NOT_NEEDED";
    /// The provider named a task that belongs to another solve.
    pub const DUPLICATE_TASK: &str = "DUPLICATE_TASK";
    /// The claim was revived and its worker cannot fetch it, so its token went to another claim for the same challenge.
    pub const PASSED_ON: &str = "PASSED_ON";
    /// No declaration covers the page. Callers see this code, so it is spelled like the provider's.
    pub const SITE_NOT_DECLARED: &str = "ERROR_SITE_NOT_DECLARED";
    /// A budget had no room for another attempt. Callers see this code, so it is spelled like the provider's.
    pub const BUDGET_EXCEEDED: &str = "ERROR_BUDGET_EXCEEDED";

    /// Whether it is one of our codes. A provider never sends one.
    pub fn contains(code: &str) -> bool {
        [
            NOT_SENT,
            AMBIGUOUS,
            HTTP_429,
            DEADLINE,
            PAUSED,
            PROVIDER_AWAY,
            TOKEN_EXPIRED,
            NEVER_READY,
            POISON,
            WITHDRAWN,
            NOT_NEEDED,
            DUPLICATE_TASK,
            PASSED_ON,
            SITE_NOT_DECLARED,
            BUDGET_EXCEEDED,
        ]
        .contains(&code)
    }
}

// === impl Code ===

impl Code {
    /// Keeps at most 256 printable characters. That is more than any code has; some providers send a URL instead.
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
