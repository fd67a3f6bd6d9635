//! Every way real clients put parameters on the wire, merged into one form. Before: a door. After: submit.rs, fetch.rs.

use std::{collections::BTreeMap, fmt};

use domain::retry::Code;

/// The parameters of one request: query and body together, each name once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Form {
    fields: BTreeMap<String, String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// Why the request has no readable form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForm {
    /// The same name twice: two readers could choose differently.
    #[error("the parameter {0:?} is given more than once")]
    Repeated(String),
    /// Not what it claims to be.
    #[error("the request cannot be read: {0}")]
    Malformed(&'static str),
    /// More parameters than any challenge has.
    #[error("the request has more than 80 parameters")]
    TooMany,
    /// More bytes than any challenge has.
    #[error("the request is larger than 2 MiB")]
    TooLarge,
}

// === impl Form ===

impl Form {
    /// Reads query and body.
    pub fn read(
        query: Option<&str>,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<Self, BadForm> {
        unimplemented!("{query:?}{content_type:?}{body:?}")
    }

    /// A form of these fields.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, BadForm> {
        let mut form = Self::default();
        for (name, value) in pairs {
            form.fields.insert(name.into(), value.into());
        }
        Ok(form)
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// All text fields.
    pub fn fields(&self) -> &BTreeMap<String, String> {
        &self.fields
    }

    /// All uploaded files, by the name of their field.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }
}

/// Values may be keys, proxies and cookies: only names are shown.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form")
            .field("fields", &self.fields.keys())
            .field("files", &self.files.keys())
            .finish()
    }
}

// === impl BadForm ===

/// What a worker is told.
impl From<BadForm> for Code {
    fn from(bad: BadForm) -> Self {
        match bad {
            BadForm::Repeated(_) | BadForm::Malformed(_) | BadForm::TooMany => {
                "ERROR_BAD_PARAMETERS".into()
            }
            BadForm::TooLarge => "ERROR_TOO_BIG_CAPTCHA_FILESIZE".into(),
        }
    }
}
