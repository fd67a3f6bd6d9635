//! The configuration of webhooks, and why it may be refused.

use std::time::Duration;

use domain::secret::Secret;

use crate::tls::BadRoots;

/// The signing secret, and the hosts that may receive webhooks although they are not public.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The signing secret: `whsec_` and the base64 of 24 to 64 bytes.
    pub secret: Secret,
    /// The secret before it, while receivers change to the new one: messages then carry both signatures.
    pub previous: Option<Secret>,
    /// Hosts the operator listed, `host` or `host:port`: they may be private, without TLS, on any port.
    pub trusted: Vec<String>,
    pub unlisted: UnlistedHosts,
    pub user_agent: String,
    /// Root certificates to trust besides the public ones, as PEM.
    pub extra_root_pem: Option<Vec<u8>>,
    /// For one delivery, DNS included.
    pub timeout: Duration,
}

/// Which hosts may receive webhooks although the operator did not list them. All of them must be public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnlistedHosts {
    Any,
    /// Only this address: that of the operator's own alerts.
    Only(Option<Secret>),
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadWebhookConfig {
    #[error(
        "secret: {0}; expected whsec_ and the base64 of 24 to 64 random bytes, best as env:NAME or file:PATH"
    )]
    Secret(&'static str),
    #[error("hosts: {0:?} is not a host; expected host or host:port")]
    Host(String),
    #[error("the user agent contains characters that HTTP does not allow; use plain ASCII")]
    UserAgent,
    #[error("the additional root certificates cannot be used: {0}")]
    Roots(#[from] BadRoots),
}

// === impl WebhookConfig ===

impl WebhookConfig {
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            previous: None,
            trusted: Vec::new(),
            unlisted: UnlistedHosts::Any,
            user_agent: concat!("solvegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            extra_root_pem: None,
            timeout: Duration::from_secs(5),
        }
    }
}
