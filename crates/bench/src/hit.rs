//! `bench hit`: answers that need no solve, on the memory store against a bare handler, or on a Redis or PostgreSQL
//! against a handler that queries it once. Authentication, sites and ledger are on. Three paths: a claim repeated under
//! its key, a claim served from stock, and a fetch through the compatibility API.

use solvegate::exit::{Exit, Failure};

use crate::{
    cli::RunOptions,
    load::{Connection, Load, as_f64},
    remote_store::RemoteStore,
    report::{Bar, Figure, Report},
    requests::{Request, Target},
    sample::{Bars, Path, Sample, load_of},
    server::{GatewayArgs, ProviderKind, ServerArgs, ServerKind},
    server_process::{Log, Server},
};

/// The paths, each with the ceiling of the same round.
#[derive(Debug, Default)]
struct Paths {
    replay: Path,
    stock: Path,
    compat: Path,
    logged: Path,
    /// Calls to the store's server, per answer from stock.
    calls: Vec<f64>,
}

/// A gateway with a served claim for every caller.
struct Prepared {
    server: Server,
    target: Target,
    ids: Vec<String>,
}

const CALLERS: usize = 64;
const BARS: Bars = Bars {
    cpu: Some(Bar::AtMost { bar: 2.0, stretch: 1.5 }),
    rate: Some(Bar::AtLeast { bar: 0.60, stretch: 0.80 }),
};

/// The ceiling includes one query to the server.
const REMOTE_BARS: Bars = Bars {
    cpu: Some(Bar::AtMost { bar: 1.5, stretch: 1.2 }),
    rate: Some(Bar::AtLeast { bar: 0.70, stretch: 0.90 }),
};

pub(crate) async fn run(rounds: RunOptions, store: Option<String>) -> Result<Report, Failure> {
    let Some(url) = store else { return run_on(rounds, None).await };
    let remote = RemoteStore::create(&url).await?;
    let report = run_on(rounds, Some(&remote)).await;
    remote.clear().await?;
    report
}

async fn run_on(rounds: RunOptions, remote: Option<&RemoteStore>) -> Result<Report, Failure> {
    let mut report = Report::begin("hit", rounds);
    let mut bare = Server::start(&ServerArgs::bare_on(remote.map(RemoteStore::url)), Log::Quiet)?;
    let held_to = if remote.is_some() { REMOTE_BARS } else { BARS };
    let ceiling = ceiling(&bare, CALLERS, rounds);
    Sample::warm_up(&ceiling).await?;
    let mut paths = Paths::default();
    for _ in 0..rounds.rounds {
        let bare = Sample::take(&mut bare, &ceiling).await?;
        paths.measure(bare, rounds, remote).await?;
    }
    paths.replay.add_to(&mut report, "v1 replay", held_to);
    paths.stock.add_to(&mut report, "v1 stock", held_to);
    paths.compat.add_to(&mut report, "compat fetch", held_to);
    paths.logged.add_to(&mut report, "v1 replay, a log line each", Bars::default());
    paths.replay.add_ceiling_to(&mut report, "bare");
    if let Some(remote) = remote {
        let what = format!("v1 stock: {} per hit", remote.calls());
        let calls = Figure::new(what, "", paths.calls);
        report.add(calls.held_to(Bar::AtMost { bar: 1.0, stretch: 1.0 }));
    }
    Ok(report.end())
}

/// The load of the bare handler.
pub(crate) fn ceiling(bare: &Server, callers: usize, rounds: RunOptions) -> Load {
    let target = Target { address: bare.address(), key: String::new() };
    load_of(bare, vec![target.bare("/"); callers], 200, rounds.length())
}

// === impl Paths ===

impl Paths {
    /// One round on a new gateway, because the ledger grows with every answer.
    async fn measure(
        &mut self,
        bare: Sample,
        rounds: RunOptions,
        remote: Option<&RemoteStore>,
    ) -> Result<(), Failure> {
        // Enough for the stretch goal; a round that uses them up is shorter.
        let tokens = tokens_for(0.8 * bare.rate() * rounds.seconds);
        let mut gateway = Prepared::start(tokens + CALLERS, Log::Quiet, remote).await?;
        self.replay.push(bare, gateway.measure(rounds, Prepared::replays).await?);
        self.compat.push(bare, gateway.measure(rounds, Prepared::fetches).await?);
        let mut stock = gateway.load(gateway.new_claims(), rounds);
        stock.most = tokens as u64;
        let before = calls(remote).await?;
        let sample = Sample::take(&mut gateway.server, &stock).await?;
        self.calls.push((calls(remote).await? - before) / sample.requests());
        self.stock.push(bare, sample);
        drop(gateway);
        clear(remote).await?;
        let mut logged = Prepared::start(CALLERS, Log::Requests, remote).await?;
        self.logged.push(bare, logged.measure(rounds, Prepared::replays).await?);
        drop(logged);
        clear(remote).await
    }
}

/// Each gateway starts with an empty store.
async fn clear(remote: Option<&RemoteStore>) -> Result<(), Failure> {
    match remote {
        Some(remote) => remote.clear().await,
        None => Ok(()),
    }
}

/// The number of calls to the server so far.
async fn calls(remote: Option<&RemoteStore>) -> Result<f64, Failure> {
    match remote {
        Some(remote) => Ok(as_f64(remote.usage().await?.calls)),
        None => Ok(0.0),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and small"
)]
fn tokens_for(wanted: f64) -> usize {
    wanted.ceil() as usize
}

// === impl Prepared ===

impl Prepared {
    async fn start(stock: usize, log: Log, remote: Option<&RemoteStore>) -> Result<Self, Failure> {
        let store = remote.map(RemoteStore::url);
        let args = GatewayArgs { store, provider: ProviderKind::Nothing, stock, data: None };
        let server = Server::start(&ServerArgs { kind: ServerKind::Gateway(args) }, log)?;
        let target = Target { address: server.address(), key: server.key().to_owned() };
        let mut line = Connection::connect(target.address).await?;
        let mut ids = Vec::with_capacity(CALLERS);
        for caller in 0..CALLERS {
            let answer = line.exchange(target.claim(&key(caller)).next()).await?;
            if answer.status != 200 {
                return Err(answer.unexpected());
            }
            ids.push(id_of(answer.body)?);
        }
        Ok(Self { server, target, ids })
    }

    async fn measure(
        &mut self,
        rounds: RunOptions,
        requests: fn(&Self) -> Vec<Request>,
    ) -> Result<Sample, Failure> {
        let load = self.load(requests(self), rounds);
        Sample::warm_up(&load).await?;
        Sample::take(&mut self.server, &load).await
    }

    fn load(&self, requests: Vec<Request>, rounds: RunOptions) -> Load {
        load_of(&self.server, requests, 200, rounds.length())
    }

    fn replays(&self) -> Vec<Request> {
        (0..CALLERS).map(|caller| self.target.claim(&key(caller))).collect()
    }

    fn fetches(&self) -> Vec<Request> {
        self.ids.iter().map(|id| self.target.res_php(id)).collect()
    }

    fn new_claims(&self) -> Vec<Request> {
        vec![self.target.new_claim(); CALLERS]
    }
}

fn key(caller: usize) -> String {
    format!("caller-{caller}")
}

/// The id in the JSON of a claim.
pub(crate) fn id_of(body: &[u8]) -> Result<String, Failure> {
    let answer: serde_json::Value =
        serde_json::from_slice(body).map_err(Failure::of(Exit::Failed))?;
    let id = answer["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| Failure::new(Exit::Failed, "an answer about a claim has no id"))
}
