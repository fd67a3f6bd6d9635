//! The configuration of the provider's account, and why it may be refused.

use std::{fmt, time::Duration};

use domain::secret::Secret;
use wire::submit::Dialect;

use crate::tls::BadRoots;

/// Shorter secrets can be guessed.
const MIN_SECRET: usize = 16;

/// The provider's address, its account and our timeouts.
#[derive(Clone)]
pub struct UpstreamConfig {
    /// `https://host[:port][/path]`; `http://` only for this machine.
    pub url: String,
    pub key: Secret,
    /// For DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From the open connection to the first byte of the reply to a submission.
    pub first_byte_timeout: Duration,
    /// For a submission, start to end.
    pub submit_timeout: Duration,
    /// For any other call, start to end.
    pub poll_timeout: Duration,
    /// Root certificates to trust besides the public ones, as PEM.
    pub extra_root_pem: Option<Vec<u8>>,
    pub user_agent: String,
    /// Where the provider may announce that a task is over.
    pub pingback: Option<Pingback>,
    /// Poll with `get2`, which also returns the price. Not every provider supports it.
    pub priced: bool,
    pub dialect: Dialect,
}

/// Where the provider may call us; `wire::pingback` makes the last part of the address.
#[derive(Clone)]
pub struct Pingback {
    /// `https://gateway.example.com/-/pingback/`, to which the last part is appended.
    pub base: String,
    /// Signs the address; the door that receives the calls verifies it with the same secret.
    pub secret: Secret,
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadUpstream {
    #[error("[upstream] url: {0}; expected https://host")]
    Url(String),
    #[error("[upstream] key is empty; set the account's API key, best as env:NAME or file:PATH")]
    NoKey,
    #[error("[upstream] url: http:// to {0} would send the key unencrypted; use https://")]
    Insecure(String),
    #[error("the additional root certificates cannot be used: {0}")]
    Roots(#[from] BadRoots),
    #[error("[upstream] {0}")]
    Pingback(&'static str),
    #[error("{0} contains characters that HTTP does not allow; use plain ASCII")]
    Header(&'static str),
}

// === impl UpstreamConfig ===

impl UpstreamConfig {
    /// The default timeouts for a provider at `url`.
    pub fn new(url: impl Into<String>, key: Secret) -> Self {
        Self {
            url: url.into(),
            key,
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: Duration::from_secs(20),
            submit_timeout: Duration::from_secs(20),
            poll_timeout: Duration::from_secs(10),
            extra_root_pem: None,
            user_agent: concat!("solvegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            pingback: None,
            priced: false,
            dialect: Dialect::default(),
        }
    }
}

// === impl Pingback ===

impl Pingback {
    pub(crate) fn check(&self) -> Result<(), BadUpstream> {
        let url = url::Url::parse(&self.base)
            .map_err(|_| BadUpstream::Pingback("pingback_url: expected https://host/path/"))?;
        let refuse = |why| Err(BadUpstream::Pingback(why));
        if !matches!(url.scheme(), "https" | "http") || !url.path().ends_with('/') {
            return refuse("pingback_url: expected https://host/path/ with a slash at the end");
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return refuse("pingback_url: remove the user, the query or the fragment");
        }
        if self.secret.expose().len() < MIN_SECRET {
            return refuse("pingback_secret: shorter than 16 characters; use a longer one");
        }
        Ok(())
    }
}

/// Omits the URL, which may hold a password until it is checked, and the pingback, whose secret allows forging one.
impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConfig")
            .field("priced", &self.priced)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
