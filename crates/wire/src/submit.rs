//! in.php: a worker's form becomes a challenge, a challenge becomes the provider's form, and the reply either way.

use std::collections::BTreeMap;

use domain::{
    challenge::{BadChallenge, Challenge, Kind},
    id::TaskId,
    retry::Code,
    secret::Secret,
    site::BadPageUrl,
};

use crate::{Garbled, ReplyStyle, form::Form};

/// What a worker asks of in.php.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// What has to be solved.
    pub challenge: Challenge,
    /// The worker's own name for the claim, as sent; `KeyHash::named` checks it.
    pub idempotency_key: Option<String>,
    /// How it wants its reply.
    pub style: ReplyStyle,
    /// The key it shows.
    pub worker_key: Option<Secret>,
}

/// The parts of a challenge as the v1 door and the command line have them.
#[derive(Clone, Default)]
pub struct V1Parts {
    /// The site's public key, whatever the provider calls it for the kind.
    pub sitekey: Option<String>,
    /// The page, as given.
    pub pageurl: Option<String>,
    /// All other parameters, by the provider's names.
    pub params: BTreeMap<String, String>,
    /// The decoded picture.
    pub image: Option<Vec<u8>>,
}

/// Why the parts make no challenge.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPart {
    /// Checked by the domain.
    #[error(transparent)]
    Challenge(#[from] BadChallenge),
    /// The page URL is not taken.
    #[error(transparent)]
    PageUrl(#[from] BadPageUrl),
}

/// How a provider words what two of them word differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// `method=geetest&version=4`.
    #[default]
    CaptchaAi,
    /// `method=geetest_v4`.
    TwoCaptcha,
}

/// What in.php replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A task exists, by this name.
    Accepted(TaskId),
    /// A definite refusal: no task exists.
    Refused(Code),
}

/// Reads a worker's form. The error is the code the worker gets; nothing was spent.
pub fn read(form: &Form) -> Result<Submit, Code> {
    unimplemented!("{form:?}")
}

/// The challenge of these parts: the same value, and so the same fingerprint, as in.php's form for the same thing.
pub fn challenge(kind: Kind, parts: V1Parts) -> Result<Challenge, BadPart> {
    unimplemented!("{kind:?}{:?}", parts.sitekey)
}

/// The provider's form of a challenge, without `key`, `json` and the like.
pub fn fields(challenge: &Challenge) -> Vec<(String, String)> {
    fields_in(Dialect::default(), challenge)
}

/// The form of a challenge in a provider's own dialect.
pub fn fields_in(dialect: Dialect, challenge: &Challenge) -> Vec<(String, String)> {
    unimplemented!("{dialect:?}{challenge:?}")
}

/// Reads the provider's reply to a submission.
pub fn read_reply(body: &[u8]) -> Result<Reply, Garbled> {
    unimplemented!("{body:?}")
}

/// Writes the reply to a submission; ids are JSON strings.
pub fn write_reply(reply: &Reply, json: bool) -> String {
    unimplemented!("{reply:?}{json}")
}

/// Writes the reply as CaptchaAI does for `userrecaptcha`: JSON, the id a number where it can be one.
pub fn write_reply_int_id(reply: &Reply) -> String {
    unimplemented!("{reply:?}")
}
