//! What the operator says about callbacks, and why it may be refused.

use std::{fmt, time::Duration};

use domain::secret::Secret;

use crate::BadUpstream;

/// How receivers recognise us, and whom we may tell besides the public.
#[derive(Clone)]
pub struct HooksConfig {
    /// What notices are signed with: `whsec_` and the base64 of 24 to 64 bytes.
    pub secret: Secret,
    /// Hosts the operator named, `host` or `host:port`: they may be private, without TLS, on any port.
    pub trusted: Vec<String>,
    /// How we introduce ourselves.
    pub user_agent: String,
    /// Authorities to trust besides the usual ones, as PEM.
    pub extra_root_pem: Option<Vec<u8>>,
    /// For a whole exchange, the name's resolution included.
    pub timeout: Duration,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadHooks {
    /// Nothing to sign with.
    #[error(
        "`callbacks.secret` cannot be used: {0}; write whsec_ and the base64 of 24 to 64 random bytes, best as env:NAME or file:PATH"
    )]
    Secret(&'static str),
    /// Not a host.
    #[error("`callbacks.hosts` holds {0:?}, which is not a host; write host or host:port")]
    Host(String),
    /// A value that does not fit into an HTTP header.
    #[error("the user agent has characters that HTTP does not allow; use plain ASCII")]
    UserAgent,
    /// The additional authorities cannot be read, or there is no TLS.
    #[error(transparent)]
    Tls(#[from] BadUpstream),
}

// === impl HooksConfig ===

impl HooksConfig {
    /// The defaults for a secret.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            trusted: Vec::new(),
            user_agent: concat!("solvegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            extra_root_pem: None,
            timeout: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for HooksConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HooksConfig")
            .field("secret", &self.secret)
            .field("trusted", &self.trusted)
            .field("user_agent", &self.user_agent)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
