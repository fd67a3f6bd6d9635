//! res.php: what is asked of it, by workers and by us, and what it replies.

use std::time::Duration;

use domain::{money::Money, ports::Threads, retry::Code, secret::Secret, token::Answer};

use crate::{Garbled, ReplyStyle, form::Form};

/// What is asked of res.php. Ids are as sent: whether one can exist is for the reader to say.
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
        /// Of which task or claim.
        id: String,
        /// Whether the token was taken.
        good: bool,
    },
    /// Any other action, by its name.
    Other(String),
}

/// What a worker asks of res.php.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The question.
    pub action: Action,
    /// How it wants its reply.
    pub style: ReplyStyle,
    /// The key it shows.
    pub worker_key: Option<Secret>,
    /// How long the reply may be held back for a solve that is about to land.
    pub hold: Option<Duration>,
}

/// What res.php replies to `get` and `get2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Still at work.
    NotReady,
    /// The answer.
    Answer {
        /// As it came.
        answer: Answer,
        /// What it cost, where told.
        price: Option<Money>,
    },
    /// A code.
    Refused(Code),
}

/// What res.php tells about the account or a report: the thing itself, or a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<T> {
    /// The thing itself.
    Is(T),
    /// A code.
    Refused(Code),
}

/// Reads a worker's form. The error is the code the worker gets.
pub fn read(form: &Form) -> Result<Fetch, Code> {
    unimplemented!("{form:?}")
}

/// The provider's form of a question, without `key` and `json`.
pub fn fields(action: &Action) -> Vec<(String, String)> {
    unimplemented!("{action:?}")
}

/// Reads the reply to `get`, or to `get2` when `priced`.
pub fn read_reply(body: &[u8], priced: bool) -> Result<Reply, Garbled> {
    unimplemented!("{body:?}{priced}")
}

/// Writes the reply to `get`, or to `get2` when `priced`.
pub fn write_reply(reply: &Reply, json: bool, priced: bool) -> String {
    unimplemented!("{reply:?}{json}{priced}")
}

/// Writes an answer as CaptchaAI does for challenge pages and enterprise: `result` instead of `request`, JSON.
pub fn write_result(answer: &Answer) -> String {
    unimplemented!("{answer:?}")
}

/// Reads the reply to `get` with `n` ids.
pub fn read_many(body: &[u8], n: usize) -> Result<Vec<Reply>, Garbled> {
    unimplemented!("{body:?}{n}")
}

/// Writes the reply to `get` with several ids.
pub fn write_many(replies: &[Reply], json: bool) -> String {
    unimplemented!("{replies:?}{json}")
}

/// Reads the reply to `getbalance`.
pub fn read_balance(body: &[u8]) -> Result<Told<Money>, Garbled> {
    unimplemented!("{body:?}")
}

/// Writes the reply to `getbalance`.
pub fn write_balance(balance: Money, json: bool) -> String {
    unimplemented!("{balance}{json}")
}

/// Reads the reply to `threadsinfo`.
pub fn read_threads(body: &[u8]) -> Result<Told<Threads>, Garbled> {
    unimplemented!("{body:?}")
}

/// Writes the reply to `threadsinfo`; it is JSON in either style.
pub fn write_threads(threads: Threads) -> String {
    unimplemented!("{threads:?}")
}

/// Reads the reply to a report.
pub fn read_report(body: &[u8]) -> Result<Told<()>, Garbled> {
    unimplemented!("{body:?}")
}

/// Writes the reply to a report that was taken.
pub fn write_report(json: bool) -> String {
    unimplemented!("{json}")
}

/// Writes a code, as the reply to anything.
pub fn write_refusal(code: &Code, json: bool) -> String {
    unimplemented!("{code}{json}")
}
