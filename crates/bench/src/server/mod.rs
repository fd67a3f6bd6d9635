//! `solvegate bench server`, hidden: what is measured, in a process of its own, so that its processor time and memory
//! are its own. It says hello with its address, answers every line on stdin with its vitals, and ends with stdin.

mod bare;
mod gateway;
mod never_ready;
mod stock;

pub(crate) use gateway::{project, worker_name};

use std::{
    io::{self, BufRead as _},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use solvegate::{
    exit::{Exit, Failure},
    output,
};
use tokio::{net::TcpListener, sync::mpsc};

use crate::vitals::{StoreCounts, Vitals};

/// Tells a measured server its store's URL.
pub(crate) const STORE: &str = "SOLVEGATE_BENCH_STORE";

/// `bench server`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Which
    #[command(subcommand)]
    pub(crate) sort: Sort,
}

/// Which server.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Sort {
    /// The ceiling: a handler, and loops that wait
    Bare(BareArgs),
    /// The gateway
    Gateway(GatewayArgs),
}

/// What the bare handler does.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BareArgs {
    /// A Redis it asks once for every answer
    #[arg(long, env = STORE, hide_env_values = true)]
    pub(crate) store: Option<String>,
}

/// What the gateway stands on.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GatewayArgs {
    /// Directory of an embedded store; without it the store is in memory
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// A store on a server instead
    #[arg(long, env = STORE, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The service behind it
    #[arg(long, value_enum)]
    pub(crate) provider: Behind,
    /// Tokens in stock from the start
    #[arg(long, default_value_t = 0)]
    pub(crate) stock: usize,
}

/// The service behind a measured gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Behind {
    /// None: nothing is submitted
    #[default]
    Nothing,
    /// The simulator in process, done within milliseconds
    Fast,
    /// One that takes every task and is never ready
    Parked,
}

/// The first line a server says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// What a measured thing can do besides serving.
trait Measured: Sync {
    /// What its store counts.
    fn counts(&self) -> StoreCounts;

    /// Brings so many solves in flight.
    async fn hold_solves(&self, count: usize) -> Result<(), Failure>;
}

// === impl ServerArgs ===

impl ServerArgs {
    /// The ceiling.
    pub(crate) fn bare() -> Self {
        Self::bare_on(None)
    }

    /// The ceiling, with one look at a server for every answer.
    pub(crate) fn bare_on(store: Option<String>) -> Self {
        Self { sort: Sort::Bare(BareArgs { store }) }
    }

    /// A gateway on a memory store.
    pub(crate) fn gateway(provider: Behind) -> Self {
        Self { sort: Sort::Gateway(GatewayArgs { provider, ..GatewayArgs::default() }) }
    }

    /// The store's URL: told by the environment, for it may hold a password.
    pub(crate) fn store(&self) -> Option<&str> {
        match &self.sort {
            Sort::Bare(args) => args.store.as_deref(),
            Sort::Gateway(args) => args.store.as_deref(),
        }
    }

    /// As they are typed.
    pub(crate) fn as_typed(&self) -> Vec<std::ffi::OsString> {
        let Sort::Gateway(GatewayArgs { data, store: _, provider, stock }) = &self.sort else {
            return vec!["bare".into()];
        };
        let provider = match provider {
            Behind::Nothing => "nothing",
            Behind::Fast => "fast",
            Behind::Parked => "parked",
        };
        let mut typed = vec!["gateway".into(), "--provider".into(), provider.into()];
        typed.extend(["--stock".into(), stock.to_string().into()]);
        if let Some(data) = data {
            typed.extend(["--data".into(), data.into()]);
        }
        typed
    }
}

/// Serves until stdin ends.
pub(crate) async fn run(args: ServerArgs) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    match args.sort {
        Sort::Bare(args) => bare::run(listener, args.store).await,
        Sort::Gateway(args) => gateway::run(listener, &args).await,
    }
}

/// Says hello, then answers line by line until there are no more.
async fn obey(hello: &Hello, measured: &impl Measured) -> Result<(), Failure> {
    let mut lines = lines_of_stdin();
    say(hello)?;
    while let Some(line) = lines.recv().await {
        if let Some(count) = line.strip_prefix("solves ") {
            let count = count.parse().map_err(Failure::of(Exit::Usage))?;
            measured.hold_solves(count).await?;
        } else if line != "vitals" {
            return Err(Failure::new(Exit::Usage, format!("{line:?} is no command")));
        }
        say(&Vitals::of_this_process(measured.counts()))?;
    }
    Ok(())
}

fn say<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::of(Exit::Failed))?;
    output::line(format_args!("{text}"))
}

/// A thread of its own reads: a blocked read would keep the runtime from ending.
fn lines_of_stdin() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
