//! Text that must never reach a log, an error, a metric or a web page.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroize;

/// A secret prints as `…`, also with `{:?}` and as JSON; only [`Secret::expose`] shows it. Its memory is overwritten when it
/// is dropped.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// What every format for people and web pages shows instead of a secret.
pub(crate) const REDACTED: &str = "…";

impl Secret {
    /// Wraps a text that must not be printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the wire and the store.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Records with secrets are serialised for stores, in a binary format, and could be serialised by mistake as JSON. Formats
/// that people can read get no secret. Code that has to send one writes [`Secret::expose`].
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_for_people = serializer.is_human_readable();
        serializer.serialize_str(if is_for_people { REDACTED } else { self.expose() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints_itself() {
        let secret = Secret::new("canary");
        assert_eq!(format!("{secret} {secret:?}"), "… …");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"…\"");
    }

    #[test]
    fn a_secret_can_be_read_from_json() {
        assert_eq!(serde_json::from_str::<Secret>("\"canary\"").unwrap().expose(), "canary");
    }
}
