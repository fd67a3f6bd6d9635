//! `bench server`, hidden: the measured program, in its own process so that its processor time and memory can be told
//! apart. It prints its address, answers every line on stdin with its vitals, and ends with stdin.

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

/// The environment variable with the store's URL.
pub(crate) const STORE: &str = "SOLVEGATE_BENCH_STORE";

#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Which server
    #[command(subcommand)]
    pub(crate) kind: ServerKind,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServerKind {
    /// The ceiling: a handler and waiting loops
    Bare(BareArgs),
    /// The gateway
    Gateway(GatewayArgs),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BareArgs {
    /// A Redis or PostgreSQL to query once per answer
    #[arg(long, env = STORE, hide_env_values = true)]
    pub(crate) store: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GatewayArgs {
    /// Directory of an embedded store [default: in memory]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// URL of a store on a server
    #[arg(long, env = STORE, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The provider behind it
    #[arg(long, value_enum)]
    pub(crate) provider: ProviderKind,
    /// Number of tokens in stock at the start
    #[arg(long, default_value_t = 0)]
    pub(crate) stock: usize,
}

/// The provider behind a measured gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderKind {
    /// None: nothing is submitted
    #[default]
    Nothing,
    /// The simulator in process, with solves of a few milliseconds
    Fast,
    /// Accepts every task and never solves one
    NeverReady,
}

/// The first line that a server prints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// The commands that a server takes besides serving.
trait MeasuredServer: Sync {
    fn counts(&self) -> StoreCounts;

    /// Brings this many solves in flight.
    async fn hold_solves(&self, count: usize) -> Result<(), Failure>;
}

// === impl ServerArgs ===

impl ServerArgs {
    /// The ceiling.
    pub(crate) fn bare() -> Self {
        Self::bare_on(None)
    }

    /// The ceiling with one query to a store per answer.
    pub(crate) fn bare_on(store: Option<String>) -> Self {
        Self { kind: ServerKind::Bare(BareArgs { store }) }
    }

    /// A gateway on a memory store.
    pub(crate) fn gateway(provider: ProviderKind) -> Self {
        Self { kind: ServerKind::Gateway(GatewayArgs { provider, ..GatewayArgs::default() }) }
    }

    /// The store's URL may contain a password, so it is passed in the environment.
    pub(crate) fn store(&self) -> Option<&str> {
        match &self.kind {
            ServerKind::Bare(args) => args.store.as_deref(),
            ServerKind::Gateway(args) => args.store.as_deref(),
        }
    }

    /// As command-line arguments.
    pub(crate) fn as_typed(&self) -> Vec<std::ffi::OsString> {
        let ServerKind::Gateway(GatewayArgs { data, store: _, provider, stock }) = &self.kind
        else {
            return vec!["bare".into()];
        };
        let provider = match provider {
            ProviderKind::Nothing => "nothing",
            ProviderKind::Fast => "fast",
            ProviderKind::NeverReady => "never-ready",
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
    match args.kind {
        ServerKind::Bare(args) => bare::run(listener, args.store).await,
        ServerKind::Gateway(args) => gateway::run(listener, &args).await,
    }
}

/// Prints the first line, then answers commands until stdin ends.
async fn take_commands(hello: &Hello, measured: &impl MeasuredServer) -> Result<(), Failure> {
    let mut lines = lines_of_stdin();
    write_line(hello)?;
    while let Some(line) = lines.recv().await {
        if let Some(count) = line.strip_prefix("solves ") {
            let count = count.parse().map_err(Failure::of(Exit::Usage))?;
            measured.hold_solves(count).await?;
        } else if line != "vitals" {
            return Err(Failure::new(Exit::Usage, format!("{line:?} is no command")));
        }
        write_line(&Vitals::of_this_process(measured.counts()))?;
    }
    Ok(())
}

fn write_line<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::of(Exit::Failed))?;
    output::line(format_args!("{text}"))
}

/// A separate thread reads stdin, because a blocked read would keep the runtime from ending.
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
