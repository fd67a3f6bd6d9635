//! `bench durable`: claims that are on disk before they are answered, against a bare handler. It uses the embedded
//! store with its default durability: admission alone (nothing is submitted), then the whole path to the token.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path as FilePath, PathBuf},
};

use solvegate::exit::{Exit, Failure};
use tokio::time::Instant;

use crate::{
    cli::RunOptions,
    hit::ceiling,
    load::{Connection, as_f64},
    report::{Bar, Figure, Report},
    requests::{Request, Target, stored_bytes},
    sample::{Bars, Path, Sample, load_of},
    server::{GatewayArgs, ProviderKind, ServerArgs, ServerKind},
    server_process::{Log, Server},
};

/// The directory of the stores. Removed when dropped.
pub(crate) struct Directory(PathBuf);

/// A measured path with a number of callers, and its results.
struct Variant {
    name: String,
    callers: usize,
    to_the_end: bool,
    path: Path,
}

const RATE: Bar = Bar::AtLeast { bar: 0.30, stretch: 0.50 };
const FSYNCS: Bar = Bar::AtMost { bar: 1.0 / 8.0, stretch: 1.0 / 16.0 };
const BYTES: Bar = Bar::AtMost { bar: 4.0, stretch: 2.0 };

pub(crate) async fn run(rounds: RunOptions, data: Option<PathBuf>) -> Result<Report, Failure> {
    let mut report = Report::begin("durable", rounds);
    let directory = Directory::make(data)?;
    let mut bare = Server::start(&ServerArgs::bare(), Log::Quiet)?;
    let mut admitting = directory.gateway("admit", ProviderKind::Nothing)?;
    let mut solving = directory.gateway("whole", ProviderKind::Fast)?;
    let mut variants = [
        Variant::new("admit", 64, false),
        Variant::new("admit", 256, false),
        Variant::new("to the token", 64, true),
        Variant::new("to the token", 256, true),
    ];
    let mut floors = Vec::new();
    for _ in 0..rounds.rounds {
        floors.push(directory.floor()?);
        for variant in &mut variants {
            let gateway = if variant.to_the_end { &mut solving } else { &mut admitting };
            variant.measure(&mut bare, gateway, rounds).await?;
        }
    }
    for variant in &variants {
        let gateway = if variant.to_the_end { &solving } else { &admitting };
        variant.add_to(&mut report, variant.payload(gateway).await?);
    }
    report.add(Figure::new("the disk alone: 4 KiB and an fdatasync", "ms", floors));
    report.note(
        "payload: the claim's body and key and the answer's body; written: bytes that the kernel wrote, \
         without the file system's own journal",
    );
    Ok(report.end())
}

// === impl Directory ===

impl Directory {
    /// Creates one in the parent directory [default: current directory].
    pub(crate) fn make(parent: Option<PathBuf>) -> Result<Self, Failure> {
        let parent = parent.unwrap_or_default();
        let path = parent.join(format!("solvegate-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| {
            let what =
                format!("{} cannot be made: {error}; choose another with --data", path.display());
            Failure::new(Exit::Unreachable, what)
        })?;
        Ok(Self(path))
    }

    fn gateway(&self, name: &str, provider: ProviderKind) -> Result<Server, Failure> {
        let data = Some(self.path().join(name));
        let args = GatewayArgs { data, provider, ..GatewayArgs::default() };
        Server::start(&ServerArgs { kind: ServerKind::Gateway(args) }, Log::Quiet)
    }

    /// Milliseconds the disk takes to sync a page: no commit is faster.
    pub(crate) fn floor(&self) -> Result<f64, Failure> {
        const TIMES: u32 = 16;
        const PAGE: [u8; 4096] = [7; 4096];
        let file = File::create(self.path().join("floor"))?;
        let began = Instant::now();
        for _ in 0..TIMES {
            file.write_all_at(&PAGE, 0)?;
            file.sync_data()?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e3 / f64::from(TIMES))
    }

    pub(crate) fn path(&self) -> &FilePath {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, directory = %self.0.display(), "not removed");
        }
    }
}

// === impl Variant ===

impl Variant {
    fn new(name: &str, callers: usize, to_the_end: bool) -> Self {
        let name = format!("{name}, {callers} callers");
        Self { name, callers, to_the_end, path: Path::default() }
    }

    async fn measure(
        &mut self,
        bare: &mut Server,
        gateway: &mut Server,
        rounds: RunOptions,
    ) -> Result<(), Failure> {
        let ceiling = ceiling(bare, self.callers, rounds);
        Sample::warm_up(&ceiling).await?;
        let ceiling = Sample::take(bare, &ceiling).await?;
        let (request, status) = self.request(gateway);
        let load = load_of(gateway, vec![request; self.callers], status, rounds.length());
        Sample::warm_up(&load).await?;
        self.path.push(ceiling, Sample::take(gateway, &load).await?);
        Ok(())
    }

    /// The request, and the expected status.
    fn request(&self, gateway: &Server) -> (Request, u16) {
        let target = Target { address: gateway.address(), key: gateway.key().to_owned() };
        if self.to_the_end {
            (target.new_claim_to_the_end(), 200)
        } else {
            (target.new_claim(), 202)
        }
    }

    /// The bytes that a caller sends to be stored, and receives.
    async fn payload(&self, gateway: &Server) -> Result<usize, Failure> {
        let (mut request, _) = self.request(gateway);
        let mut line = Connection::connect(gateway.address()).await?;
        Ok(stored_bytes() + line.exchange(request.next()).await?.body.len())
    }

    /// The bars are for 64 callers; the other figures show how they change with the number of callers.
    fn add_to(&self, report: &mut Report, payload: usize) {
        let Self { name, path, .. } = self;
        let is_held = self.callers == 64;
        let rate = (is_held && !self.to_the_end).then_some(RATE);
        path.add_to(report, name, Bars { cpu: None, rate });
        let fsyncs = path.figure(format!("{name}: fsyncs per answer"), "", Sample::fsyncs);
        report.add(if is_held { fsyncs.held_to(FSYNCS) } else { fsyncs });
        report.add(path.figure(
            format!("{name}: decisions per commit"),
            "",
            Sample::decisions_per_commit,
        ));
        let written = format!("{name}: written per answer, {payload} bytes of payload");
        report.add(path.figure(written, "bytes", Sample::written));
        let per_payload =
            path.written(format!("{name}: written / payload"), 1.0 / as_f64(payload as u64));
        report.add(if is_held { per_payload.held_to(BYTES) } else { per_payload });
    }
}
