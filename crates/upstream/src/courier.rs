//! Tells callbacks and alerts to their receivers: signed, once per call, to public addresses only unless the operator
//! named the host. Deliberately absent: retries (the outbox has them), redirects, proxies from the environment.
//! A redirect would be a second address; that none is followed is how each address is checked.

mod config;
mod place;
mod public;
mod resolver;
mod sign;
#[cfg(test)]
mod tests;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use domain::ports::{AddressRefused, Clock, Courier, Fault, NotTold, Parcel};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use url::Host;

use crate::{
    connect::{Tls, dial, tls_connector},
    counted::{Counted, Sent},
    line::Line,
};

pub use config::{BadHooks, HooksConfig};

use self::{
    place::{Place, Trusted},
    resolver::{Resolver, System},
    sign::Signer,
};

/// So many of a name's addresses are tried at most; all of them are checked.
const TRIED: usize = 4;

/// Whoever gives us an address waits for its check no longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest text about a failure.
const LONGEST_WHY: usize = 200;

/// The courier of callbacks and alerts.
pub struct Hooks {
    signer: Signer,
    trusted: Vec<Trusted>,
    user_agent: HeaderValue,
    tls: TlsConnector,
    resolver: Arc<dyn Resolver>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

// === impl Hooks ===

impl Hooks {
    /// Checks the configuration; connects to nobody yet.
    pub fn new(config: HooksConfig, clock: Arc<dyn Clock>) -> Result<Self, BadHooks> {
        Self::with_resolver(config, clock, Arc::new(System::new()))
    }

    fn with_resolver(
        config: HooksConfig,
        clock: Arc<dyn Clock>,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, BadHooks> {
        let HooksConfig { secret, trusted, user_agent, extra_root_pem, timeout } = config;
        Ok(Self {
            signer: Signer::new(&secret)?,
            trusted: trusted.iter().map(|host| Trusted::parse(host)).collect::<Result<_, _>>()?,
            user_agent: user_agent.parse().map_err(|_| BadHooks::UserAgent)?,
            tls: tls_connector(extra_root_pem.as_deref())?,
            resolver,
            clock,
            timeout,
        })
    }

    fn place(&self, url: &str) -> Result<Place, AddressRefused> {
        Place::parse(url, &self.trusted)
    }

    /// The addresses behind a place; none when its name does not resolve now. One that is not public spoils them all:
    /// which of them a connection would go to is the name's owner's choice, not ours.
    async fn addresses(&self, place: &Place) -> Result<Vec<SocketAddr>, AddressRefused> {
        let addresses = match place.host() {
            Host::Ipv4(ip) => vec![(*ip, place.port()).into()],
            Host::Ipv6(ip) => vec![(*ip, place.port()).into()],
            Host::Domain(name) => self.resolver.resolve(name, place.port()).await,
        };
        if !place.is_trusted() {
            let bad = addresses.iter().find_map(|address| public::why_not(address.ip()));
            if let Some(what) = bad {
                return Err(place.refuse_address(what));
            }
        }
        Ok(addresses)
    }

    /// Opens a line to an address that was just checked; the name is not resolved again.
    async fn open(&self, place: &Place) -> Result<Line, NotTold> {
        let mut addresses = self.addresses(place).await.map_err(|refused| NotTold(refused.0))?;
        if addresses.is_empty() {
            return Err(NotTold("the host of the address has no address now".to_owned()));
        }
        addresses.truncate(TRIED);
        let tls = place.is_tls().then(|| Tls { connector: self.tls.clone(), name: place.name() });
        let stream =
            dial(&addresses, tls.as_ref(), self.timeout).await.map_err(|fault| not_told(&fault))?;
        Line::new(Counted::new(stream, Sent::default())).await.map_err(|fault| not_told(&fault))
    }

    fn request(&self, place: &Place, parcel: &Parcel) -> Result<Request<Full<Bytes>>, NotTold> {
        let unfit = |what: &str| NotTold(format!("the notice cannot be sent: {what}"));
        let body = serde_json::to_vec(&parcel.notice).map_err(|_| unfit("it is not JSON"))?;
        let seconds = self.clock.now().millis() / 1000;
        let signature = self.signer.sign(&parcel.id, seconds, &body);
        Request::post(place.target())
            .header(header::HOST, place.authority())
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &parcel.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| unfit("its id does not fit into a header"))
    }
}

#[async_trait]
impl Courier for Hooks {
    async fn check(&self, url: &str) -> Result<(), AddressRefused> {
        let place = self.place(url)?;
        // Whatever a host resolves to that the operator named, it may be told; it need not be up for that.
        if place.is_trusted() {
            return Ok(());
        }
        // A name that does not resolve now is known to be neither good nor bad; it is checked again when it is told.
        timeout(self.timeout.min(PATIENCE), self.addresses(&place))
            .await
            .map_or(Ok(()), |found| found.map(drop))
    }

    async fn tell(&self, parcel: &Parcel) -> Result<(), NotTold> {
        let deadline = Instant::now() + self.timeout;
        let place = self.place(&parcel.url).map_err(|refused| NotTold(refused.0))?;
        let request = self.request(&place, parcel)?;
        let opened = timeout_at(deadline, self.open(&place)).await;
        let line = opened.map_err(|_| NotTold("no connection within the timeout".to_owned()))??;
        taken(line.tell(request, deadline).await.map_err(|fault| not_told(&fault))?)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("trusted", &self.trusted)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn taken(status: StatusCode) -> Result<(), NotTold> {
    if status.is_success() {
        return Ok(());
    }
    let code = status.as_u16();
    Err(NotTold(if status.is_redirection() {
        format!(
            "the receiver answered HTTP {code}; redirects are not followed: give the final address"
        )
    } else {
        format!("the receiver answered HTTP {code}; only 2xx means that it has taken the notice")
    }))
}

/// What was seen may quote the other side's certificate: bounded and printable.
fn not_told(fault: &Fault) -> NotTold {
    let printable = |c: &char| c.is_ascii_graphic() || *c == ' ';
    NotTold(fault.why.chars().filter(printable).take(LONGEST_WHY).collect())
}
