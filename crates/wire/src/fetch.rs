//! res.php: actions, from workers and to the provider, and their replies.

use std::time::Duration;

use domain::{money::Money, retry::Code, secret::Secret, token::Answer};

use crate::{ReplyStyle, code, form::Form, worker_key};

mod account;
mod many;
mod reply;

pub use account::{
    read_balance, read_report, read_threads, write_balance, write_report, write_threads,
};
pub(crate) use many::one_of_many;
pub use many::{read_many, write_many};
pub use reply::{read_reply, write_reply, write_result};

pub use crate::code::write as write_refusal;

/// An action of res.php. Ids are as sent and not validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `get` with `id`.
    Get(String),
    /// `get` with `ids`.
    GetMany(Vec<String>),
    /// `get2`: the answer and its price.
    GetPriced(String),
    /// `getbalance`.
    Balance,
    /// `threadsinfo`.
    Threads,
    /// `reportgood` or `reportbad`.
    Report {
        id: String,
        /// Whether the site accepted the token.
        good: bool,
    },
    /// Any other action, by its name: pingbacks, statistics.
    Other(String),
}

/// A worker's request to res.php.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub action: Action,
    pub style: ReplyStyle,
    pub worker_key: Option<Secret>,
    /// How long the reply may wait for an answer; whole seconds on the wire.
    pub hold: Option<Duration>,
}

/// The reply to `get` and `get2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchReply {
    NotReady,
    Answer {
        answer: Answer,
        /// The cost, if the reply has it.
        price: Option<Money>,
    },
    Refused(Code),
}

/// The reply to `get` with several ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Many {
    /// One reply for each id, in the order of the ids.
    Each(Vec<FetchReply>),
    /// A code about the account or the service, and not about any id.
    Refused(Code),
    /// The provider does not support several ids.
    Unsupported,
}

/// The reply about the account or to a report: a value or a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountReply<T> {
    Value(T),
    Refused(Code),
}

impl From<Code> for FetchReply {
    fn from(code: Code) -> Self {
        if code::is_not_ready(code.as_str()) { Self::NotReady } else { Self::Refused(code) }
    }
}

/// More ids in one request would cost more than they save.
const IDS_MAX: usize = 100;

/// Parses a worker's form. The error is the code the worker gets.
pub fn read(form: &Form) -> Result<Fetch, Code> {
    let hold = match form.get("hold").map(str::parse::<u16>) {
        None => None,
        Some(Ok(seconds)) => Some(Duration::from_secs(seconds.into())),
        Some(Err(_)) => return Err(code::ERROR_BAD_PARAMETERS.into()),
    };
    Ok(Fetch {
        action: action(form)?,
        style: ReplyStyle::of(form),
        worker_key: worker_key(form),
        hold,
    })
}

fn action(form: &Form) -> Result<Action, Code> {
    let id = || match form.get("id") {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        Some(_) | None => Err(Code::from(code::ERROR_WRONG_ID_FORMAT)),
    };
    Ok(match form.get("action").unwrap_or_default() {
        "" => return Err(code::ERROR_EMPTY_ACTION.into()),
        "get" => match form.get("ids") {
            Some(ids) => Action::GetMany(split(ids)?),
            None => Action::Get(id()?),
        },
        "get2" => Action::GetPriced(id()?),
        "getbalance" => Action::Balance,
        "threadsinfo" => Action::Threads,
        "reportgood" => Action::Report { id: id()?, good: true },
        "reportbad" => Action::Report { id: id()?, good: false },
        other => Action::Other(other.to_owned()),
    })
}

fn split(ids: &str) -> Result<Vec<String>, Code> {
    let ids: Vec<&str> = ids.split(',').map(str::trim).take(IDS_MAX + 1).collect();
    if ids.len() > IDS_MAX {
        return Err(code::ERROR_BAD_PARAMETERS.into());
    }
    if ids.iter().any(|id| id.is_empty()) {
        return Err(code::ERROR_WRONG_ID_FORMAT.into());
    }
    Ok(ids.into_iter().map(str::to_owned).collect())
}

/// The fields to send for an action, without `key` and `json`.
pub fn fields(action: &Action) -> Vec<(String, String)> {
    let (name, id) = match action {
        Action::Get(id) => ("get", Some(("id", id.clone()))),
        Action::GetMany(ids) => ("get", Some(("ids", ids.join(",")))),
        Action::GetPriced(id) => ("get2", Some(("id", id.clone()))),
        Action::Balance => ("getbalance", None),
        Action::Threads => ("threadsinfo", None),
        Action::Report { id, good: true } => ("reportgood", Some(("id", id.clone()))),
        Action::Report { id, good: false } => ("reportbad", Some(("id", id.clone()))),
        Action::Other(name) => (name.as_str(), None),
    };
    let action = ("action".to_owned(), name.to_owned());
    [action].into_iter().chain(id.map(|(name, id)| (name.to_owned(), id))).collect()
}
