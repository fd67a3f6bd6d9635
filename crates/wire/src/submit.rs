//! in.php: a worker's form becomes a challenge, a challenge becomes the provider's form; and the replies.
//!
//! Every challenge is made by `assemble`, whichever door it came through, so that equal challenges have equal fingerprints. The
//! written form of a challenge parses back to the same challenge.

use std::collections::BTreeMap;

use domain::{
    challenge::{BadChallenge, Challenge, ChallengeParts, Kind, RESERVED},
    id::TaskId,
    retry::Code,
    secret::Secret,
    site::{BadPageUrl, PageUrl},
};

use crate::{ReplyStyle, code, form::Form, is_set, worker_key};

mod kind;
mod picture;
mod reply;

pub use kind::in_php_names;
pub use reply::{read_reply, write_reply, write_reply_int_id};

/// A worker's request to in.php.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    pub challenge: Challenge,
    /// The idempotency key as sent; `KeyHash::named` validates it.
    pub idempotency_key: Option<String>,
    pub style: ReplyStyle,
    pub worker_key: Option<Secret>,
}

/// The parts of a challenge on the v1 door and on the command line.
#[derive(Clone, Default)]
pub struct V1Parts {
    /// The site's public key, whatever its name at the provider.
    pub sitekey: Option<String>,
    pub pageurl: Option<String>,
    /// All other parameters by the provider's names.
    pub params: BTreeMap<String, String>,
    /// The decoded image.
    pub image: Option<Vec<u8>>,
}

/// Why the parts are not a challenge.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPart {
    #[error(transparent)]
    Challenge(#[from] BadChallenge),
    #[error(transparent)]
    PageUrl(#[from] BadPageUrl),
    #[error("there is nothing to solve: no `method`, no picture and no `textcaptcha`")]
    Nothing,
    #[error("{0:?} is a kind, not a method; the methods are those of the provider")]
    Method(String),
    #[error("these parameters describe {means}, not {given}; write that kind, or leave them out")]
    OtherKind { given: Kind, means: Kind },
    #[error("`{0}` is given twice; leave one out")]
    Twice(String),
    #[error("a file cannot be sent as `{0}`; use `file` or `file_1`, `file_2` …")]
    FileName(String),
    #[error("`{0}` is not a picture in base64")]
    Picture(String),
    #[error("the pictures have more than 1 MiB together")]
    PictureSize,
}

/// A provider's variant of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// `method=geetest&version=4`.
    #[default]
    CaptchaAi,
    /// `method=geetest_v4`.
    TwoCaptcha,
}

/// The reply of in.php.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitReply {
    /// A task exists.
    Accepted(TaskId),
    /// A definite refusal: no task exists.
    Refused(Code),
}

type Fields = BTreeMap<String, String>;
type Files = BTreeMap<String, Vec<u8>>;

/// Why a form is refused: the code for the worker's program, and the reason in words. It costs nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedForm {
    pub code: Code,
    pub why: BadPart,
}

/// Parses a worker's form.
pub fn read(form: &Form) -> Result<Submit, RefusedForm> {
    let is_part = |name: &str| name == "method" || !RESERVED.contains(&name);
    let parts = form.fields().iter().filter(|(name, _)| is_part(name));
    let mut fields: Fields = parts.map(|(n, v)| (n.clone(), v.clone())).collect();
    // unicaps sends `geetest_v4 `.
    if let Some(method) = fields.get_mut("method") {
        *method = method.trim().to_owned();
    }
    if let Some(pageurl) = fields.get_mut("pageurl") {
        // A space was a plus sign that the client did not encode. In a host it is still refused, as a percent sign.
        *pageurl = pageurl.replace(' ', "%20");
    }
    let challenge = assemble(fields, form.files().clone())
        .map_err(|why| RefusedForm { code: code_of(&why, form), why })?;
    Ok(Submit {
        challenge,
        idempotency_key: form.get("idempotency_key").map(str::to_owned),
        style: ReplyStyle::of(form),
        worker_key: worker_key(form),
    })
}

/// Makes a challenge with the same fingerprint as the equivalent form of in.php.
pub fn challenge(kind: Kind, parts: V1Parts) -> Result<Challenge, BadPart> {
    let V1Parts { sitekey, pageurl, params: mut fields, image } = parts;
    if let Some(name) = RESERVED.into_iter().find(|name| fields.contains_key(*name)) {
        return Err(BadChallenge::Reserved(name.to_owned()).into());
    }
    kind::mark(&kind, &mut fields);
    let given = [(kind::sitekey_name(&kind), sitekey), ("pageurl", pageurl)];
    for (name, value) in given {
        if let Some(value) = value
            && fields.insert(name.to_owned(), value).is_some()
        {
            return Err(BadPart::Twice(name.to_owned()));
        }
    }
    let files = image.map(|bytes| (picture::MAIN.to_owned(), bytes)).into_iter().collect();
    let method = fields.get("method").map(String::as_str);
    let means = kind::from_fields(method, &fields, &files)?;
    if means == kind {
        assemble(fields, files)
    } else {
        Err(BadPart::OtherKind { given: kind, means })
    }
}

/// The fields to send for a challenge, without `key`, `json` and the like.
pub fn fields(challenge: &Challenge) -> Vec<(String, String)> {
    fields_in(Dialect::default(), challenge)
}

/// The fields in a provider's dialect.
pub fn fields_in(dialect: Dialect, challenge: &Challenge) -> Vec<(String, String)> {
    let kind = challenge.kind();
    let (method, version) = kind::method(kind, dialect);
    let mut fields = vec![("method".to_owned(), method.to_owned())];
    let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
    if let Some(version) = version {
        add(kind::VERSION, version.to_owned());
    }
    if let Some(sitekey) = challenge.sitekey() {
        add(kind::sitekey_name(kind), sitekey.to_owned());
    }
    if let Some(pageurl) = challenge.pageurl() {
        add("pageurl", pageurl.as_str().to_owned());
    }
    for (name, value) in challenge.params() {
        if version.is_none() || name != kind::VERSION {
            add(name, value.clone());
        }
    }
    for (name, bytes) in challenge.files() {
        add(name, picture::encode(kind, name, bytes));
    }
    fields
}

/// Makes the challenge that the fields describe. All challenges are made here.
fn assemble(mut fields: Fields, files: Files) -> Result<Challenge, BadPart> {
    let method = fields.remove("method");
    let kind = kind::from_fields(method.as_deref(), &fields, &files)?;
    let sitekey_name = kind::sitekey_name(&kind);
    let sitekey = fields.remove(sitekey_name);
    let pageurl = fields.remove("pageurl").map(|page| PageUrl::parse(&page)).transpose()?;
    kind::unmark(&kind, &mut fields);
    let files = picture::take(&kind, &mut fields, files)?;
    Ok(Challenge::new(kind, ChallengeParts { sitekey, pageurl, params: fields, files })?)
}

/// The code for the worker, the same as the provider's.
fn code_of(bad: &BadPart, form: &Form) -> Code {
    let code = match bad {
        BadPart::Challenge(BadChallenge::Missing { kind, part }) => missing(kind, part, form),
        BadPart::Challenge(BadChallenge::SiteKey) => code::ERROR_GOOGLEKEY,
        BadPart::PageUrl(_) => code::ERROR_PAGEURL,
        BadPart::Picture(_) | BadPart::FileName(_) => code::ERROR_UPLOAD,
        BadPart::PictureSize => code::ERROR_TOO_BIG_CAPTCHA_FILESIZE,
        BadPart::Challenge(
            BadChallenge::Kind { .. }
            | BadChallenge::UnknownKind { .. }
            | BadChallenge::Reserved(_)
            | BadChallenge::Name(_)
            | BadChallenge::Value { .. }
            | BadChallenge::TooLarge,
        )
        | BadPart::Nothing
        | BadPart::Method(_)
        | BadPart::OtherKind { .. }
        | BadPart::Twice(_) => code::ERROR_BAD_PARAMETERS,
    };
    code.into()
}

fn missing(kind: &Kind, part: &str, form: &Form) -> &'static str {
    let sitekey_name = kind::sitekey_name(kind);
    match (part, sitekey_name) {
        ("pageurl", _) => code::ERROR_PAGEURL,
        ("sitekey", "captcha_id") => code::ERROR_CAPTCHA_ID,
        ("sitekey", "googlekey" | "sitekey") if form.get(sitekey_name).is_some() => {
            code::ERROR_GOOGLEKEY
        }
        ("sitekey", "googlekey" | "sitekey") => code::ERROR_WRONG_GOOGLEKEY,
        ("proxy" | "proxytype", _) => code::ERROR_PROXY_FORMAT,
        ("body", _) => code::ERROR_ZERO_CAPTCHA_FILESIZE,
        _ => code::ERROR_BAD_PARAMETERS,
    }
}
