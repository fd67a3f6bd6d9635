//! `bench inflight`: the memory of waiting. Solves in flight, against tasks that each hold the same texts and sleep;
//! requests held open, against a bare handler that sleeps.

use std::time::Duration;

use domain::ports::Clock as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use solvegate::{clock::SystemClock, exit::Failure};

use crate::{
    cli::RunOptions,
    hit::id_of,
    load::{Connection, as_f64},
    report::{Bar, Figure, Report},
    requests::{Request, Target},
    server::{ProviderKind, ServerArgs},
    server_process::{Log, Server},
    vitals::Vitals,
};

/// Bytes per waiting solve or request in one round: of the ceiling, and of the gateway.
type Pair = (f64, f64);

const SOLVE: Bar = Bar::AtMost { bar: 2.0, stretch: 1.3 };
const HELD: Bar = Bar::AtMost { bar: 1.6, stretch: 1.0 };
/// Open files of this process and its children besides connections.
const OTHER_FILES: usize = 64;

pub(crate) async fn run(
    rounds: RunOptions,
    solves: &[usize],
    held: usize,
) -> Result<Report, Failure> {
    let mut report = Report::begin("inflight", rounds);
    for count in solves {
        let mut pairs = Vec::new();
        for _ in 0..rounds.rounds {
            pairs.push((
                per_solve(&ServerArgs::bare(), *count)?,
                per_solve(&ServerArgs::gateway(ProviderKind::NeverReady), *count)?,
            ));
        }
        add_figures(&mut report, &format!("{count} waiting solves"), "loop", &pairs, SOLVE);
    }
    let connections = allow_connections(held);
    let mut pairs = Vec::new();
    for _ in 0..rounds.rounds {
        let settle = rounds.length();
        pairs.push((
            held_by_bare(connections, settle).await?,
            held_by_gateway(connections, settle).await?,
        ));
    }
    add_figures(&mut report, &format!("{connections} held requests"), "bare", &pairs, HELD);
    report.note(
        "memory: resident, after less before, divided by the number that wait; the store is in memory too",
    );
    Ok(report.end())
}

fn add_figures(report: &mut Report, name: &str, ceiling: &str, pairs: &[Pair], bar: Bar) {
    let ratios = pairs.iter().map(|(bare, gateway)| gateway / bare);
    report.add(Figure::new(format!("{name}: memory / {ceiling}"), "x", ratios).held_to(bar));
    let gateway = pairs.iter().map(|(_, gateway)| *gateway);
    report.add(Figure::new(format!("{name}: memory each"), "bytes", gateway));
    let bare = pairs.iter().map(|(bare, _)| *bare);
    report.add(Figure::new(format!("{name}: memory each, {ceiling}"), "bytes", bare));
}

// === solves ===

fn per_solve(server: &ServerArgs, count: usize) -> Result<f64, Failure> {
    let mut server = Server::start(server, Log::Quiet)?;
    let before = server.vitals()?;
    Ok(each(before, server.hold_solves(count)?, count))
}

fn each(before: Vitals, after: Vitals, count: usize) -> f64 {
    as_f64(after.rss_bytes.saturating_sub(before.rss_bytes)) / as_f64(count as u64)
}

// === held requests ===

/// Raises the limit of open files, because every connection is one on both sides, and returns how many connections fit.
fn allow_connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum;
    // Child processes inherit it.
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    wanted.min(allowed.saturating_sub(OTHER_FILES))
}

async fn held_by_bare(count: usize, settle: Duration) -> Result<f64, Failure> {
    let server = Server::start(&ServerArgs::bare(), Log::Quiet)?;
    let target = Target { address: server.address(), key: String::new() };
    let request = target.bare("/held");
    held(server, vec![request; count], settle).await
}

async fn held_by_gateway(count: usize, settle: Duration) -> Result<f64, Failure> {
    let server = Server::start(&ServerArgs::gateway(ProviderKind::NeverReady), Log::Quiet)?;
    let target = Target { address: server.address(), key: server.key().to_owned() };
    let mut line = Connection::connect(target.address).await?;
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        let answer = line.exchange(target.new_claim().next()).await?;
        if answer.status != 202 {
            return Err(answer.unexpected());
        }
        requests.push(target.wait_for(&id_of(answer.body)?));
    }
    held(server, requests, settle).await
}

/// The memory per held request, once all are held and temporary memory has been freed.
async fn held(
    mut server: Server,
    mut requests: Vec<Request>,
    settle: Duration,
) -> Result<f64, Failure> {
    let clock = SystemClock::start();
    let pause = || clock.sleep_until(clock.now().plus(settle));
    pause().await;
    let before = server.vitals()?;
    let mut lines = Vec::with_capacity(requests.len());
    for request in &mut requests {
        let mut line = Connection::connect(server.address()).await?;
        line.send(request.next()).await?;
        lines.push(line);
    }
    pause().await;
    let after = server.vitals()?;
    Ok(each(before, after, lines.len()))
}
