//! Outgoing HTTP: the client of the paid service, and the sender of webhooks. It makes each call once and reports exactly
//! what is known about the outcome.
//! Deliberately absent: retries, throttling, redirects, proxies from the environment, a way around certificate checks.
//!
//! # Layout
//! - [`UpstreamConfig`] (config.rs), address.rs, `account_key.rs`: the provider's address and account
//! - [`TlsClient`] (tls.rs), connect.rs, counted.rs, connection.rs, `idle_connections.rs`: connections
//! - submit.rs: in.php, one new connection per submission; fetch.rs: res.php; balance.rs: the cached balance
//! - [`WebhookClient`] (webhook.rs), [`WebhookConfig`]: callbacks and alerts

mod account_key;
mod address;
mod balance;
mod config;
mod connect;
mod connection;
mod counted;
mod fetch;
mod idle_connections;
mod submit;
mod tls;
mod webhook;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use domain::{ports::Clock, retry::Code};
use http::{HeaderValue, Request, header};
use http_body_util::Full;

pub use account_key::NewKey;
pub use config::{BadUpstream, Pingback, UpstreamConfig};
pub use tls::{BadRoots, Stream, TlsClient};
pub use webhook::{
    BadWebhookConfig, UnlistedHosts, WebhookClient, WebhookConfig, WebhooksByWorker,
};

use crate::{
    account_key::AccountKey, address::Address, balance::BalanceCache, connect::Connector,
    idle_connections::IdleConnections,
};

/// The client for one account at one provider.
pub struct Upstream {
    config: UpstreamConfig,
    key: AccountKey,
    user_agent: HeaderValue,
    host: HeaderValue,
    connector: Connector,
    idle: IdleConnections,
    balance: BalanceCache,
    /// Whether the provider has ever answered a batch poll.
    supports_batches: AtomicBool,
}

// === impl Upstream ===

impl Upstream {
    /// Validates the configuration; does not connect yet.
    pub fn new(config: UpstreamConfig, clock: Arc<dyn Clock>) -> Result<Self, BadUpstream> {
        let key = AccountKey::new(config.key.clone())?;
        config.pingback.as_ref().map_or(Ok(()), Pingback::check)?;
        let address = Address::parse(&config.url)?;
        let value = |text: &str, name| text.parse().map_err(|_| BadUpstream::Header(name));
        let user_agent = value(&config.user_agent, "[upstream] user_agent")?;
        let host = value(&address.authority, "[upstream] url")?;
        let extra_roots = config.extra_root_pem.as_deref();
        let connector = Connector::new(address, extra_roots, config.connect_timeout)?;
        let idle = IdleConnections::new(Arc::clone(&clock));
        let balance = BalanceCache::new(clock);
        let supports_batches = AtomicBool::new(false);
        Ok(Self { config, key, user_agent, host, connector, idle, balance, supports_batches })
    }

    /// Replaces the key of the account for all later calls. Tasks in flight are polled with it, so it must be a key of the
    /// same account.
    pub fn set_key(&self, key: NewKey) {
        self.key.replace(key);
    }

    /// A POST to one of the two scripts. The key is sent in the body only: URLs end up in logs.
    fn request(&self, script: &str, fields: Vec<(String, String)>) -> Request<Full<Bytes>> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("key", self.key.current().expose()).append_pair("json", "1");
        let body = Bytes::from(form.extend_pairs(fields).finish());
        Request::post(self.connector.address.path(script))
            .header(header::HOST, &self.host)
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(body))
            .expect("the path comes from a parsed URL and the headers are parsed")
    }

    /// A provider may quote the request in its code; our key must not reach the ledger that way.
    fn redact(&self, code: &Code) -> Code {
        Code::new(self.key.redact(code.as_str()))
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("address", &self.connector.address).finish_non_exhaustive()
    }
}
