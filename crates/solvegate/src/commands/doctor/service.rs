//! The paid service: its name, the way there, its clock, the key, the threads. With the simulator all of that is on
//! this machine.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

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
use tokio::time::timeout;
use upstream::Upstream;
use url::Url;

use super::Line;
use crate::{
    assemble,
    chance::SystemChance,
    client,
    clock::SystemClock,
    config::{Config, Service},
    exit::{Exit, Failure},
    reach::{Reach, Stream},
};

/// For each step on the way.
const PATIENCE: Duration = Duration::from_secs(5);

/// Further apart, days and declarations begin at different moments here and there.
const APART: Duration = Duration::from_secs(5);
/// Further apart, receivers refuse our callbacks as too old.
const FAR_APART: Duration = Duration::from_secs(300);

pub(super) async fn examine(config: &Config) -> Result<Vec<Line>, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let chance = SystemChance::start().map_err(Failure::of(Exit::Failed))?;
    let (wanted, sim) = assemble::find_service(config, &clock, &chance).await?;
    let url = Url::parse(&wanted.url).map_err(Failure::of(Exit::Usage))?;
    let provider = Upstream::new(wanted, Arc::clone(&clock)).map_err(Failure::of(Exit::Usage))?;
    let mut lines = Vec::new();
    let is_simulated = config.upstream.service == Service::Simulator;
    if let Some(headers) = reached(url, is_simulated, &mut lines).await? {
        lines.push(Line::new("clock", compare(&headers, clock.now())));
        lines.extend(account(config, &provider).await);
    }
    if let Some(sim) = sim {
        sim.stop().await;
    }
    Ok(lines)
}

/// Goes there step by step; the first that fails is the last.
async fn reached(
    url: Url,
    is_simulated: bool,
    lines: &mut Vec<Line>,
) -> Result<Option<HeaderMap>, Failure> {
    let reach = Reach::new(url, None).map_err(Failure::of(Exit::Failed))?;
    let name = if is_simulated { "the simulator" } else { reach.authority() };
    let addresses = match in_time(reach.find()).await {
        Ok(addresses) => addresses,
        Err(error) => {
            let what = format!("{name} has no address: {error}");
            let remedy = "check [upstream] url, and this machine's name server";
            lines.push(Line::outside("service name", Finding::bad(what, remedy)));
            return Ok(None);
        }
    };
    lines.push(Line::outside("service name", Finding::good(found(name, &addresses))));
    let answer = async {
        let stream = in_time(reach.connect(&addresses)).await.map_err(|e| unconnected(name, &e))?;
        let stream = in_time(reach.secure(stream)).await.map_err(|e| untrusted(name, &e))?;
        ask(stream, reach.authority()).await.map_err(|e| silent(name, &e))
    };
    match answer.await {
        Ok(headers) => {
            let how = if reach.is_secure() { "by TLS" } else { "on this machine, without TLS" };
            lines.push(Line::outside("service", Finding::good(format!("{name} answers {how}"))));
            Ok(Some(headers))
        }
        Err(finding) => {
            lines.push(Line::outside("service", finding));
            Ok(None)
        }
    }
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, step).await.unwrap_or_else(|_| Err(io::Error::other("no answer in 5 s")))
}

fn found(name: &str, addresses: &[SocketAddr]) -> String {
    let ips: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
    format!("{name} is at {}", ips.join(", "))
}

fn unconnected(name: &str, error: &io::Error) -> Finding {
    Finding::bad(
        format!("{name} cannot be connected to: {error}"),
        "check [upstream] url, and that this machine may go out to that port",
    )
}

fn untrusted(name: &str, error: &io::Error) -> Finding {
    Finding::bad(
        format!("TLS with {name} fails: {error}"),
        "check [upstream] url, this machine's clock, and whether a proxy is in between",
    )
}

fn silent(name: &str, error: &dyn fmt::Display) -> Finding {
    let what = format!("{name} does not speak HTTP: {error}");
    Finding::bad(what, "check [upstream] url")
}

/// Asks for nothing, without a key: only the headers are wanted.
async fn ask(stream: Box<dyn Stream>, authority: &str) -> Result<HeaderMap, Failure> {
    let request = Request::head("/").header(header::HOST, authority);
    let request = request.body(Full::<Bytes>::default()).map_err(Failure::of(Exit::Usage))?;
    let reply = timeout(PATIENCE, client::exchange(stream, request)).await;
    reply
        .map_err(|_| Failure::new(Exit::Unreachable, "no answer in 5 s"))?
        .map(|reply| reply.headers)
}

/// Our clock beside the `Date` of the answer.
fn compare(headers: &HeaderMap, now: Timestamp) -> Finding {
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let Some(theirs) = date.and_then(read_date) else {
        return Finding::good("the service does not tell its time");
    };
    let apart = now.since(theirs).max(theirs.since(now));
    let side = if now > theirs { "ahead of" } else { "behind" };
    let what = format!("{} s {side} the service", apart.as_secs());
    let remedy = "set the clock of this machine, best by NTP (timedatectl set-ntp true)";
    match apart {
        apart if apart <= APART => Finding::good("agrees with the service's"),
        apart if apart <= FAR_APART => Finding::risky(what, remedy),
        _ => Finding::bad(what, remedy),
    }
}

fn read_date(text: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    u64::try_from(date.timestamp().as_millisecond()).ok().map(Timestamp::from_millis)
}

/// A wrong key asked about several times bans the address: after the first refusal nothing more is asked.
async fn account(config: &Config, provider: &dyn Provider) -> Vec<Line> {
    let line = |about, finding| Line { exit: Exit::Refused, ..Line::new(about, finding) };
    let (is_taken, key) = match provider.balance().await {
        Ok(balance) => (true, Finding::good(format!("is taken; the balance is {balance}"))),
        Err(fault) => refused(&config.retry, &fault),
    };
    let mut lines = vec![line("key", key)];
    if is_taken {
        let threads = provider.threads().await.map_err(|_| ());
        lines.push(line("threads", enough(threads.ok(), config.upstream.slots)));
    }
    lines
}

/// What a refusal says about the key, and whether it was taken all the same.
fn refused(table: &RetryTable, fault: &Fault) -> (bool, Finding) {
    let what = fault.to_string();
    let Some(code) = &fault.code else {
        let remedy = "ask again later; if it stays so, ask the service";
        return (false, Finding::risky(format!("could not be tried: {what}"), remedy));
    };
    let rule = table.rule(code);
    match (rule.class, code.as_str()) {
        _ if rule.effect == Effect::MaybeNoSlot => {
            (true, Finding::risky(what, "pay money in, or wait for a free thread; claims wait too"))
        }
        (Class::Account, code) if code.contains("IP") => (
            false,
            Finding::bad(what, "allow this machine's address in the account, and wait 5 min"),
        ),
        (Class::Account, _) => {
            (false, Finding::bad(what, "check [upstream] key or CAPTCHAAI_API_KEY, and the plan"))
        }
        (Class::Transient | Class::Permanent | Class::TaskOver | Class::Wait, _) => {
            (true, Finding::good(format!("the balance is not told ({code})")))
        }
    }
}

fn enough(threads: Option<Threads>, slots: Slots) -> Finding {
    let Some(Threads { total, working }) = threads else {
        return Finding::good("the service does not tell them; slots are learned or as configured");
    };
    if total == 0 {
        return Finding::bad("the plan has none", "renew the plan at the service");
    }
    match slots {
        Slots::Fixed(wanted) if wanted > total as usize => Finding::risky(
            format!("the plan has {total}, and [upstream] slots is {wanted}: the rest is refused"),
            format!("write slots = {total}, or slots = \"auto\""),
        ),
        Slots::Fixed(_) | Slots::Auto => Finding::good(format!("{total}, {working} at work")),
    }
}
