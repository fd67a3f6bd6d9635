//! What went wrong, in the provider's words or in ours.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The provider's word for what went wrong, or one of ours for what has none. Bounded and printable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Code(String);

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
    /// The claim was brought back and nobody can ask for it: its token is for whoever wants one like it.
    pub const PASSED_ON: &str = "PASSED_ON";
    /// No declaration covers the page. Callers see it, so it is spelled as the provider spells its codes.
    pub const SITE_NOT_DECLARED: &str = "ERROR_SITE_NOT_DECLARED";

    /// Whether it is a code of ours. A provider never sends one.
    pub fn contains(code: &str) -> bool {
        [
            NOT_SENT,
            AMBIGUOUS,
            HTTP_429,
            DEADLINE,
            NEVER_READY,
            POISON,
            WITHDRAWN,
            NOT_NEEDED,
            DUPLICATE_TASK,
            PASSED_ON,
            SITE_NOT_DECLARED,
        ]
        .contains(&code)
    }
}

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
