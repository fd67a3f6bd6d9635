//! The provider: HTTP client of the paid service. Sends what the engine decides, once, and says what is known about it.
//! Deliberately absent: retries, throttles, redirects, proxies from the environment, a way around certificate checks.
//!
//! # Layout
//! - [`UpstreamConfig`] (config.rs), address.rs: who the provider is
//! - connect.rs, counted.rs, line.rs, pool.rs: a connection, what left through it, one exchange, idle connections
//! - [`Hooks`] (courier.rs): the other way out, for callbacks and alerts; [`HooksConfig`]
//! - submit.rs: in.php, one fresh connection per submission; fetch.rs: res.php; account.rs: the balance

mod account;
mod address;
mod config;
mod connect;
mod counted;
mod courier;
mod fetch;
mod line;
mod pool;
mod submit;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use async_trait::async_trait;
use bytes::Bytes;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{BatchRefused, Clock, Fault, Feedback, Polled, Provider, Submission, Threads},
    retry::Code,
};
use http::{HeaderValue, Request, header};
use http_body_util::Full;

pub use config::{BadUpstream, Pingback, UpstreamConfig};
pub use courier::{BadHooks, Hooks, HooksConfig};

use crate::{account::Balance, address::Address, connect::Connector, pool::Pool};

/// One account at one provider.
pub struct Upstream {
    config: UpstreamConfig,
    user_agent: HeaderValue,
    host: HeaderValue,
    connector: Connector,
    pool: Pool,
    balance: Balance,
    /// Whether it ever answered for several tasks at once.
    batches: AtomicBool,
}

// === impl Upstream ===

impl Upstream {
    /// Checks the configuration; connects to nobody yet.
    pub fn new(config: UpstreamConfig, clock: Arc<dyn Clock>) -> Result<Self, BadUpstream> {
        if config.key.expose().trim().is_empty() {
            return Err(BadUpstream::NoKey);
        }
        config.pingback.as_ref().map_or(Ok(()), Pingback::check)?;
        let address = Address::parse(&config.url)?;
        let value = |text: &str, name| text.parse().map_err(|_| BadUpstream::Header(name));
        let user_agent = value(&config.user_agent, "upstream.user_agent")?;
        let host = value(address.authority(), "upstream.url")?;
        let extra_roots = config.extra_root_pem.as_deref();
        let connector = Connector::new(address, extra_roots, config.connect_timeout)?;
        let pool = Pool::new(Arc::clone(&clock));
        let balance = Balance::new(clock);
        let batches = AtomicBool::new(false);
        Ok(Self { config, user_agent, host, connector, pool, balance, batches })
    }

    /// A POST to one of the two scripts. The key travels in the body and nowhere else.
    fn request(&self, script: &str, fields: Vec<(String, String)>) -> Request<Full<Bytes>> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("key", self.config.key.expose()).append_pair("json", "1");
        let body = Bytes::from(form.extend_pairs(fields).finish());
        Request::post(self.connector.address().path(script))
            .header(header::HOST, &self.host)
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(body))
            .expect("the path comes from a parsed URL and the headers are parsed")
    }

    /// A provider that quotes the request in its code must not carry our key into the ledger.
    fn redact(&self, code: &Code) -> Code {
        Code::new(code.as_str().replace(self.config.key.expose(), "…"))
    }
}

#[async_trait]
impl Provider for Upstream {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        self.send(challenge, attempt).await
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.fetch_answer(task).await
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        self.fetch_answers(tasks).await
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        self.send_report(task, feedback).await
    }

    async fn balance(&self) -> Result<Money, Fault> {
        self.balance.get(self.fetch_balance()).await
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        self.fetch_threads().await
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.connector.address();
        f.debug_struct("Upstream").field("address", address).finish_non_exhaustive()
    }
}
