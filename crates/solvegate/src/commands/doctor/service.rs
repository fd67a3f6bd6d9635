//! Checks the paid service: DNS, connection, TLS, clock, key and threads. The simulator is checked in the same way.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    ports::{Clock, Fault, Provider, Threads},
    retry::{Class, Effect, RetryTable},
    time::Timestamp,
};
use engine::Slots;
use http::{HeaderMap, Request, header};
use http_body_util::Full;
use stores::Finding;
use tokio::{net::TcpStream, time::timeout};
use upstream::{Stream, Upstream};
use url::Url;

use super::Check;
use crate::{
    assemble,
    chance::SystemChance,
    client,
    clock::SystemClock,
    config::{Config, Service},
    endpoint::Endpoint,
    exit::{Exit, Failure},
};

/// For each step of the connection.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Above this difference, days and declarations begin at different times for us and the service.
const RISKY_SKEW: Duration = Duration::from_secs(5);
/// Above this difference, receivers refuse our callbacks as too old.
const BAD_SKEW: Duration = Duration::from_secs(300);

pub(super) async fn examine(config: &Config) -> Result<Vec<Check>, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let (wanted, sim) = assemble::find_service(config, &clock, &chance).await?;
    let url = Url::parse(&wanted.url).map_err(Failure::of(Exit::Usage))?;
    let provider = Upstream::new(wanted, Arc::clone(&clock)).map_err(Failure::of(Exit::Usage))?;
    let mut checks = Vec::new();
    let is_simulated = config.upstream.service == Service::Simulator;
    if let Some(headers) = connect(url, is_simulated, &mut checks).await? {
        checks.push(Check::new("clock", compare(&headers, clock.now())));
        checks.extend(account(config, &provider).await);
    }
    if let Some(sim) = sim {
        sim.stop().await;
    }
    Ok(checks)
}

/// Connects step by step and stops at the first step that fails.
async fn connect(
    url: Url,
    is_simulated: bool,
    checks: &mut Vec<Check>,
) -> Result<Option<HeaderMap>, Failure> {
    let endpoint = Endpoint::new(url, None).map_err(Failure::of(Exit::Failed))?;
    let name = if is_simulated { "the simulator" } else { endpoint.authority() };
    let addresses = match in_time(endpoint.resolve()).await {
        Ok(addresses) => addresses,
        Err(error) => {
            let what = format!("{name} cannot be resolved: {error}");
            let remedy = "check [upstream] url and the DNS settings of this machine";
            checks.push(Check::outside("service name", Finding::bad(what, remedy)));
            return Ok(None);
        }
    };
    let ips: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let found = Finding::good(format!("{name} resolves to {}", ips.join(", ")));
    checks.push(Check::outside("service name", found));
    let answer = async {
        let stream = in_time(TcpStream::connect(&*addresses)).await.map_err(|error| {
            let remedy =
                "check [upstream] url, and that a firewall allows connections to that port";
            Finding::bad(format!("connection to {name} failed: {error}"), remedy)
        })?;
        let stream = in_time(endpoint.handshake(stream)).await.map_err(|error| {
            let remedy =
                "check [upstream] url, this machine's clock, and whether a proxy intercepts TLS";
            Finding::bad(format!("TLS with {name} fails: {error}"), remedy)
        })?;
        request_headers(stream, endpoint.authority()).await.map_err(|error| {
            let what = format!("{name} does not speak HTTP: {error}");
            Finding::bad(what, "check [upstream] url")
        })
    };
    let how = if endpoint.is_tls() { "over TLS" } else { "on this machine, without TLS" };
    let (finding, headers) = match answer.await {
        Ok(headers) => (Finding::good(format!("{name} answers {how}")), Some(headers)),
        Err(finding) => (finding, None),
    };
    checks.push(Check::outside("service", finding));
    Ok(headers)
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(STEP_TIMEOUT, step).await.unwrap_or_else(|_| Err(io::Error::other("no answer in 5 s")))
}

/// Sends a request without a key, for the headers of the answer.
async fn request_headers(stream: Box<dyn Stream>, authority: &str) -> Result<HeaderMap, Failure> {
    let request = Request::head("/").header(header::HOST, authority);
    let request = request.body(Full::<Bytes>::default()).map_err(Failure::of(Exit::Usage))?;
    let reply = timeout(STEP_TIMEOUT, client::exchange(stream, request)).await;
    reply
        .map_err(|_| Failure::new(Exit::Unreachable, "no answer in 5 s"))?
        .map(|reply| reply.headers)
}

/// Compares our clock with the `Date` of the answer.
fn compare(headers: &HeaderMap, now: Timestamp) -> Finding {
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let Some(theirs) = date.and_then(read_date) else {
        return Finding::good("the service does not report its time");
    };
    let apart = now.since(theirs).max(theirs.since(now));
    let side = if now > theirs { "ahead of" } else { "behind" };
    let what = format!("{} s {side} the service", apart.as_secs());
    let remedy = "synchronise the clock of this machine with NTP (timedatectl set-ntp true)";
    match apart {
        apart if apart <= RISKY_SKEW => Finding::good("agrees with the clock of the service"),
        apart if apart <= BAD_SKEW => Finding::risky(what, remedy),
        _ => Finding::bad(what, remedy),
    }
}

fn read_date(text: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    u64::try_from(date.timestamp().as_millisecond()).ok().map(Timestamp::from_millis)
}

/// Repeated requests with a wrong key get the address banned, so the first refusal ends the checks.
async fn account(config: &Config, provider: &dyn Provider) -> Vec<Check> {
    let check = |about, finding| Check { exit: Exit::Refused, ..Check::new(about, finding) };
    let (is_accepted, key) = match provider.balance().await {
        Ok(balance) => (true, Finding::good(format!("accepted; the balance is {balance}"))),
        Err(fault) => refused(&config.retry, &fault),
    };
    let mut checks = vec![check("key", key)];
    if is_accepted {
        let threads = provider.threads().await.ok();
        checks.push(check("threads", enough(threads, config.upstream.slots)));
    }
    checks
}

/// Judges a refusal by its line in the retry table, and says whether the key was accepted.
fn refused(table: &RetryTable, fault: &Fault) -> (bool, Finding) {
    let what = fault.to_string();
    let Some(code) = &fault.code else {
        let remedy = "run doctor again later; if it persists, contact the service";
        return (false, Finding::risky(format!("not checked: {what}"), remedy));
    };
    let rule = table.rule(code);
    match (rule.effect, rule.class) {
        (Effect::MaybeNoSlot, _) => {
            let remedy = "top up the account, or wait for a free thread; claims stay queued";
            (true, Finding::risky(what, remedy))
        }
        (Effect::StopPolling, _) => {
            let wait = rule.floor.as_secs();
            let wait = if wait == 0 { String::new() } else { format!(", then wait {wait} s") };
            let remedy = format!(
                "check [upstream] key or CAPTCHAAI_API_KEY, and that the account allows the address of this machine{wait}"
            );
            (false, Finding::bad(what, remedy))
        }
        (_, Class::Account) => {
            (false, Finding::bad(what, "check [upstream] key or CAPTCHAAI_API_KEY, and the plan"))
        }
        (_, Class::Transient | Class::Permanent | Class::TaskOver | Class::Wait) => (
            true,
            Finding::good(format!("accepted; the service does not report a balance ({code})")),
        ),
    }
}

fn enough(threads: Option<Threads>, slots: Slots) -> Finding {
    let Some(Threads { total, working }) = threads else {
        return Finding::good(
            "the service does not report them; slots are learned or as configured",
        );
    };
    if total == 0 {
        return Finding::bad("the plan has none", "renew the plan at the service");
    }
    match slots {
        Slots::Fixed(wanted) if wanted > total as usize => Finding::risky(
            format!(
                "the plan has {total}, but [upstream] slots is {wanted}: the service refuses the rest"
            ),
            format!("write slots = {total}, or slots = \"auto\""),
        ),
        Slots::Fixed(_) | Slots::Auto => Finding::good(format!("{total}, {working} in use")),
    }
}
