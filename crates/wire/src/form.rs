//! Merges the parameters of a request into one form, in every encoding that real clients use. Its users are submit.rs and
//! fetch.rs.
//!
//! Query and body are merged. A body that starts with `{` is JSON whatever its content type, because clients send it as
//! `text/plain` and as multipart without a boundary. Any other body is multipart if it says so, and urlencoded otherwise.
//! Values become strings, as in a query; `null` counts as absent. A repeated name is refused, because the provider could pick
//! another value than we do.

use std::{collections::BTreeMap, fmt};

use domain::retry::Code;

use crate::{
    code,
    json::{self, Members, Shape},
};

mod key_search;
mod multipart;

pub use key_search::find_key;

/// The parameters of a request: query and body together, each name once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Form {
    fields: BTreeMap<String, String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// Why a request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForm {
    #[error("the parameter {0:?} is given more than once")]
    Repeated(String),
    #[error("the request cannot be read: {0}")]
    Malformed(&'static str),
    #[error("the request has more than {FIELDS_MAX} parameters")]
    TooMany,
    #[error("the request is larger than 2 MiB")]
    TooLarge,
}

/// How a body has to be read.
enum Encoding<'b> {
    Json(&'b [u8]),
    Multipart,
    Urlencoded(&'b [u8]),
    /// It says that it is JSON, but it is not an object.
    NotAnObject,
}

/// 64 parameters of a challenge, plus the protocol's own fields.
const FIELDS_MAX: usize = 80;
/// An image of 1 MiB in base64, plus the rest.
const BYTES_MAX: usize = 2 * 1024 * 1024;
const NAME_MAX: usize = 100;

// === impl Form ===

impl Form {
    pub fn read(
        query: Option<&str>,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<Self, BadForm> {
        let query = query.unwrap_or_default();
        if query.len() + body.len() > BYTES_MAX {
            return Err(BadForm::TooLarge);
        }
        let mut form = Self::default();
        form.add_urlencoded(query.as_bytes())?;
        form.add_body(content_type.unwrap_or_default(), body)?;
        Ok(form)
    }

    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, BadForm> {
        let mut form = Self::default();
        for (name, value) in pairs {
            form.add(name.into(), value.into())?;
        }
        Ok(form)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub fn fields(&self) -> &BTreeMap<String, String> {
        &self.fields
    }

    /// The uploaded files by field name.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    fn add_body(&mut self, content_type: &str, body: &[u8]) -> Result<(), BadForm> {
        match Encoding::of(content_type, body) {
            None => Ok(()),
            Some(Encoding::Json(text)) => self.add_json(text),
            Some(Encoding::Multipart) => self.add_multipart(content_type, body),
            Some(Encoding::NotAnObject) => {
                Err(BadForm::Malformed("the JSON body is not an object"))
            }
            Some(Encoding::Urlencoded(text)) => self.add_urlencoded(text),
        }
    }

    fn add_urlencoded(&mut self, text: &[u8]) -> Result<(), BadForm> {
        for (name, value) in form_urlencoded::parse(text) {
            // The decoder replaces invalid UTF-8 with this character.
            if name.contains('\u{fffd}') || value.contains('\u{fffd}') {
                return Err(BadForm::Malformed("a parameter is not UTF-8"));
            }
            self.add(name.into_owned(), value.into_owned())?;
        }
        Ok(())
    }

    fn add_json(&mut self, body: &[u8]) -> Result<(), BadForm> {
        let text =
            str::from_utf8(body).map_err(|_| BadForm::Malformed("the JSON body is not UTF-8"))?;
        let members = Members::read(text).map_err(|repeated| match repeated {
            Some(name) => BadForm::Repeated(shortened(&name)),
            None => BadForm::Malformed("the JSON body is not a JSON object"),
        })?;
        for (name, value) in members.iter() {
            let value = match json::shape(value) {
                Some(Shape::Null) => continue,
                // The protocol's flags are 0 and 1.
                Some(Shape::Bool(flag)) => u8::from(flag).to_string(),
                Some(Shape::Number(number)) => number.to_owned(),
                Some(Shape::Text(text)) => text,
                Some(Shape::Nested(text)) => {
                    json::compact(text).ok_or(BadForm::Malformed("the JSON body is too deep"))?
                }
                None => return Err(BadForm::Malformed("a JSON string cannot be read")),
            };
            self.add(name.to_owned(), value)?;
        }
        Ok(())
    }

    fn add_multipart(&mut self, content_type: &str, body: &[u8]) -> Result<(), BadForm> {
        for part in multipart::parts(content_type, body)? {
            match part.content {
                multipart::Content::Text(text) => self.add(part.name, text)?,
                multipart::Content::File(bytes) => {
                    self.check_new(&part.name)?;
                    self.files.insert(part.name, bytes);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, name: String, value: String) -> Result<(), BadForm> {
        self.check_new(&name)?;
        self.fields.insert(name, value);
        Ok(())
    }

    fn check_new(&self, name: &str) -> Result<(), BadForm> {
        if self.fields.contains_key(name) || self.files.contains_key(name) {
            return Err(BadForm::Repeated(shortened(name)));
        }
        if name.len() > NAME_MAX {
            return Err(BadForm::Malformed("a parameter's name is too long"));
        }
        let count = self.fields.len() + self.files.len();
        if count < FIELDS_MAX { Ok(()) } else { Err(BadForm::TooMany) }
    }
}

// === impl Encoding ===

impl<'b> Encoding<'b> {
    /// `None` for an empty body.
    fn of(content_type: &str, body: &'b [u8]) -> Option<Self> {
        let content = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
        let says = |start: &str| {
            content_type.get(..start.len()).is_some_and(|s| s.eq_ignore_ascii_case(start))
        };
        Some(match content.first()? {
            b'{' => Self::Json(content),
            _ if says("multipart/") => Self::Multipart,
            _ if says("application/json") => Self::NotAnObject,
            _ => Self::Urlencoded(content),
        })
    }
}

/// Shows only names, because values may be keys, proxies and cookies.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form")
            .field("fields", &self.fields.keys())
            .field("files", &self.files.keys())
            .finish()
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

// === impl BadForm ===

/// The code the worker gets.
impl From<BadForm> for Code {
    fn from(bad: BadForm) -> Self {
        match bad {
            BadForm::Repeated(_) | BadForm::Malformed(_) | BadForm::TooMany => {
                code::ERROR_BAD_PARAMETERS.into()
            }
            BadForm::TooLarge => code::ERROR_TOO_BIG_CAPTCHA_FILESIZE.into(),
        }
    }
}
