//! What the operator says about the provider, and why it may be refused.

use std::{fmt, time::Duration};

use domain::secret::Secret;
use wire::submit::Dialect;

/// Shorter secrets can be guessed.
const SECRET_LEAST: usize = 16;

/// The provider's account and how patient we are with it.
#[derive(Clone)]
pub struct UpstreamConfig {
    /// `https://host[:port][/path]`; `http://` only for this machine.
    pub url: String,
    /// The account's key.
    pub key: Secret,
    /// For name, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From the connection to the first byte of the answer to a submission.
    pub first_byte_timeout: Duration,
    /// For a whole submission.
    pub submit_timeout: Duration,
    /// For a whole question of any other sort.
    pub poll_timeout: Duration,
    /// Authorities to trust besides the usual ones, as PEM.
    pub extra_root_pem: Option<Vec<u8>>,
    /// How we introduce ourselves.
    pub user_agent: String,
    /// Where the provider may tell that a task is over.
    pub pingback: Option<Pingback>,
    /// Ask with `get2`, which also tells the price. Not every provider has it.
    pub priced: bool,
    /// How this provider words what others word differently.
    pub dialect: Dialect,
}

/// Where the provider may call us; `wire::pingback` says what is added to the address.
#[derive(Clone)]
pub struct Pingback {
    /// `https://gateway.example.com/-/pingback/`: the last part of the address is added to it.
    pub base: String,
    /// What the address is proved with; the door that takes the calls has the same.
    pub secret: Secret,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadUpstream {
    /// Not a URL of a provider.
    #[error("`upstream.url` cannot be used: {0}; write it as https://host")]
    Url(String),
    /// No key, no account.
    #[error("`upstream.key` is empty; give the account's API key, best as env:NAME or file:PATH")]
    NoKey,
    /// The key would travel in the clear.
    #[error(
        "`upstream.url` is http:// and {0} is not this machine, so the key could be read on the way; use https://"
    )]
    Insecure(String),
    /// The additional authorities cannot be read.
    #[error("the additional root certificates cannot be used: {0}; give certificates in PEM form")]
    Roots(String),
    /// No TLS to be had.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// Nobody could call us there, or anybody could.
    #[error("the address for pingbacks cannot be used: {0}")]
    Pingback(&'static str),
    /// A value that does not fit into an HTTP header.
    #[error("`{0}` has characters that HTTP does not allow; use plain ASCII")]
    Header(&'static str),
}

// === impl UpstreamConfig ===

impl UpstreamConfig {
    /// The defaults for a provider at `url`.
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
    /// Something is going to be added to the base, and the secret has to be one.
    pub(crate) fn check(&self) -> Result<(), BadUpstream> {
        let url = url::Url::parse(&self.base)
            .map_err(|_| BadUpstream::Pingback("it is not a URL; write https://host/path/"))?;
        let refuse = |why| Err(BadUpstream::Pingback(why));
        if !matches!(url.scheme(), "https" | "http") || !url.path().ends_with('/') {
            return refuse("it is not https://host/path/ with a slash at the end");
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return refuse("it has a user, a query or a fragment; leave that out");
        }
        if self.secret.expose().len() < SECRET_LEAST {
            return refuse("its secret is shorter than 16 characters; draw a longer one");
        }
        Ok(())
    }
}

/// Neither the URL (it may hold a password until it is checked) nor the pingback (whoever knows it can forge one).
impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConfig")
            .field("key", &self.key)
            .field("connect_timeout", &self.connect_timeout)
            .field("first_byte_timeout", &self.first_byte_timeout)
            .field("submit_timeout", &self.submit_timeout)
            .field("poll_timeout", &self.poll_timeout)
            .field("user_agent", &self.user_agent)
            .field("priced", &self.priced)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
