//! Stage one: the values as they were written, each with its type and the place it comes from.
//!
//! `keys` is the only list of keys. `section!` turns each entry into a field of a struct and into a [`Key`], so the file,
//! the environment and the command line are read, unknown keys get a suggestion, a reload knows which changes need a
//! restart, and the reference is printed, all from the same lines. The list is a macro of ours and not `schemars`: a derive would describe the types, but
//! defaults, environment variables, "needs a restart" and the place of each value would still need a table of names
//! beside it.
//!
//! - `section`: what a key is, and the traits that read it; `values`: the types a single value can have
//! - `tree`: values with their origin, from a file; `environment`, `flags`: values put over those of the file
//! - `secret`: `env:NAME` and `file:PATH`; `access_keys`: the keys of a worker or an admin

mod access_keys;
mod environment;
mod flags;
mod keys;
mod secret;
mod section;
mod tree;
mod values;

pub(crate) use access_keys::{KeyList, KeySource, SecretPair, WrittenKey};
pub use environment::Environment;
pub(crate) use environment::variable;
pub use flags::Flags;
pub(crate) use keys::{
    AdminKeys, AlertsKeys, BudgetKeys, CodeKeys, ImagesKeys, Keys, PlanKeys, PollingKeys, PoolKeys,
    RetryKeys, SiteKeys, TlsKeys, TokenKeys, UpstreamKeys, WorkerCallbacksKeys, WorkerKeys,
};
pub(crate) use secret::{Reader, check_mode};
pub(crate) use section::{
    Given, Key, KeyForm, OneOrMany, Section, SectionKeys, ValueType, nearest,
};
pub(crate) use tree::{File, Node, Origin};
pub use values::read_duration;
pub(crate) use values::{
    AutoOr, EncryptionKeys, Mode, NonZeroDuration, Params, PriceName, SingleValue,
};

use section::{Field as _, Source};

use super::ConfigError;

/// Reads the file, then the environment over it, then the command line over both.
pub(crate) fn read(
    file: Option<&File>,
    environment: &Environment,
    flags: &Flags,
) -> Result<Keys, ConfigError> {
    let mut tree = file.map_or_else(|| Ok(Node::empty()), File::parse)?;
    environment::overlay(&mut tree, environment)?;
    flags.overlay(&mut tree)?;
    let (place, reader) = (String::new(), Reader::new(environment, file));
    Keys::read(Source { node: Some(tree), place, default: None, reader: &reader })
}
