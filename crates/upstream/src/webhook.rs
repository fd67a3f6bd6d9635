//! Sends callbacks and alerts as signed webhooks, one attempt per call, to public addresses only unless the operator listed
//! the host. Deliberately absent: retries (the outbox has them), proxies from the environment, and redirects: a redirect
//! would lead to an address nobody checked.

mod by_worker;
mod config;
mod public;
mod receiver;
mod resolver;
mod sign;
#[cfg(test)]
mod tests;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use domain::{
    id::WorkerName,
    ports::{AddressRefused, Clock, Fault, Webhook, WebhookError, WebhookSender},
};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use tokio::time::{Instant, timeout, timeout_at};
use url::Host;

use crate::{
    connect::dial,
    connection::Connection,
    counted::{BytesSent, CountedStream},
    tls::TlsClient,
};

pub use by_worker::WebhooksByWorker;
pub use config::{BadWebhookConfig, UnlistedHosts, WebhookConfig};

use self::{
    receiver::{Receiver, TrustedHost},
    resolver::{Resolver, SystemResolver},
    sign::Signer,
};

/// How many of a name's addresses we try to connect to. All of them are checked.
const MAX_TRIED: usize = 4;

/// It says nothing about the host, so that nobody can find out about the network by asking.
const NOT_LISTED: &str = "its host is not listed; ask the operator to add it to [callbacks] hosts";

/// A claim waits at most this long for the check of its callback URL.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest reason we keep of a failed delivery.
const MAX_REASON: usize = 200;

/// Sends callbacks and alerts.
pub struct WebhookClient {
    signer: Signer,
    trusted: Vec<TrustedHost>,
    unlisted: UnlistedHosts,
    user_agent: HeaderValue,
    tls: TlsClient,
    resolver: Arc<dyn Resolver>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

// === impl WebhookClient ===

impl WebhookClient {
    /// Validates the configuration; does not connect yet.
    pub fn new(config: WebhookConfig, clock: Arc<dyn Clock>) -> Result<Self, BadWebhookConfig> {
        Self::with_resolver(config, clock, Arc::new(SystemResolver::new()))
    }

    fn with_resolver(
        config: WebhookConfig,
        clock: Arc<dyn Clock>,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, BadWebhookConfig> {
        let WebhookConfig {
            secret,
            previous,
            trusted,
            unlisted,
            user_agent,
            extra_root_pem,
            timeout,
        } = config;
        Ok(Self {
            signer: Signer::new(std::iter::once(&secret).chain(&previous))?,
            unlisted,
            trusted: trusted
                .iter()
                .map(|host| TrustedHost::parse(host))
                .collect::<Result<_, _>>()?,
            user_agent: user_agent.parse().map_err(|_| BadWebhookConfig::UserAgent)?,
            tls: TlsClient::new(extra_root_pem.as_deref())?,
            resolver,
            clock,
            timeout,
        })
    }

    fn receiver(&self, url: &str) -> Result<Receiver, AddressRefused> {
        let receiver = Receiver::parse(url, &self.trusted)?;
        let is_allowed = receiver.trusted
            || match &self.unlisted {
                UnlistedHosts::Any => true,
                UnlistedHosts::Only(own) => own.as_ref().is_some_and(|own| own.expose() == url),
            };
        if is_allowed { Ok(receiver) } else { Err(receiver::refused(NOT_LISTED)) }
    }

    /// Resolves a receiver; empty when its name does not resolve now. One address that is not public refuses them all, because
    /// the owner of the name decides which of them a connection reaches.
    async fn addresses(&self, receiver: &Receiver) -> Result<Vec<SocketAddr>, AddressRefused> {
        let addresses = match &receiver.host {
            Host::Ipv4(ip) => vec![(*ip, receiver.port).into()],
            Host::Ipv6(ip) => vec![(*ip, receiver.port).into()],
            Host::Domain(name) => self.resolver.resolve(name, receiver.port).await,
        };
        if !receiver.trusted {
            let private = addresses.iter().find_map(|address| public::why_not_public(address.ip()));
            if let Some(what) = private {
                return Err(receiver.refuse_address(what));
            }
        }
        Ok(addresses)
    }

    /// Connects to an address that was just checked, without resolving the name a second time.
    async fn open(&self, receiver: &Receiver) -> Result<Connection, WebhookError> {
        let mut addresses =
            self.addresses(receiver).await.map_err(|refused| WebhookError(refused.0))?;
        if addresses.is_empty() {
            return Err(WebhookError("the host of the address has no address now".to_owned()));
        }
        addresses.truncate(MAX_TRIED);
        let tls = receiver.tls.then_some((&self.tls, &receiver.host));
        let stream =
            dial(&addresses, tls, self.timeout).await.map_err(|fault| not_delivered(&fault))?;
        let stream = CountedStream::new(stream, BytesSent::default());
        Connection::new(stream).await.map_err(|fault| not_delivered(&fault))
    }

    fn request(
        &self,
        receiver: &Receiver,
        webhook: &Webhook,
    ) -> Result<Request<Full<Bytes>>, WebhookError> {
        let unsendable = |what: &str| WebhookError(format!("the notice cannot be sent: {what}"));
        let body = serde_json::to_vec(&webhook.notice).map_err(|_| unsendable("it is not JSON"))?;
        let seconds = self.clock.now().millis() / 1000;
        let signature = self.signer.sign(&webhook.id, seconds, &body);
        Request::post(&receiver.target)
            .header(header::HOST, &receiver.authority)
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &webhook.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| unsendable("its id does not fit into a header"))
    }
}

#[async_trait]
impl WebhookSender for WebhookClient {
    async fn check(&self, _: Option<&WorkerName>, url: &str) -> Result<(), AddressRefused> {
        let receiver = self.receiver(url)?;
        // The operator listed this host, so any address it resolves to is fine, and it need not be up now.
        if receiver.trusted {
            return Ok(());
        }
        // A name that does not resolve now is accepted: delivery checks it again.
        timeout(self.timeout.min(CHECK_TIMEOUT), self.addresses(&receiver))
            .await
            .map_or(Ok(()), |found| found.map(drop))
    }

    async fn send(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        let deadline = Instant::now() + self.timeout;
        let receiver = self.receiver(&webhook.url).map_err(|refused| WebhookError(refused.0))?;
        let request = self.request(&receiver, webhook)?;
        let opened = timeout_at(deadline, self.open(&receiver)).await;
        let connection =
            opened.map_err(|_| WebhookError("no connection within the timeout".to_owned()))??;
        let status = connection.post_and_close(request, deadline).await;
        check_status(status.map_err(|fault| not_delivered(&fault))?)
    }
}

impl fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookClient")
            .field("trusted", &self.trusted)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn check_status(status: StatusCode) -> Result<(), WebhookError> {
    if status.is_success() {
        return Ok(());
    }
    let code = status.as_u16();
    Err(WebhookError(if status.is_redirection() {
        format!(
            "the receiver answered HTTP {code}; redirects are not followed: give the final address"
        )
    } else {
        format!("the receiver answered HTTP {code}; only 2xx counts as delivered")
    }))
}

/// A fault may quote the other side's certificate, so the text is bounded and printable.
fn not_delivered(fault: &Fault) -> WebhookError {
    let printable = |c: &char| c.is_ascii_graphic() || *c == ' ';
    WebhookError(fault.why.chars().filter(printable).take(MAX_REASON).collect())
}
