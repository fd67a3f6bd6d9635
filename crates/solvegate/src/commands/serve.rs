//! `solvegate serve`: the gateway itself. Starts everything, says how to use it, reloads, and stops without loss.

use std::{path::Path, time::Duration};

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
};
use doors::{Doors, DoorsConfig, KeyDigest, Limits, SelfSigned, ServeConfig, TlsMaterial, Workers};
use tokio::{net::TcpListener, sync::oneshot};

use super::{Context, banner};
use crate::{
    assemble::{Assembled, Purpose, allowances, door_worker, key_digest, priorities},
    config::{Config, Sources, Tls},
    exit::{Exit, Failure},
    keys::{self, MadeKeys},
    shutdown::{Signals, Wish},
};

/// A gateway that is about to serve.
struct Gateway<'c> {
    sources: &'c Sources,
    config: Config,
    keys: MadeKeys,
    assembled: Assembled,
    doors: Doors,
}

/// With the engine's 20 s for paid tasks this makes the promised 25 s.
const DOORS_DRAIN: Duration = Duration::from_secs(5);

/// Serves until a signal ends it.
pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let config = context.sources.load()?;
    let signals = Signals::listen()?;
    // The port first: a second gateway says so before it touches anything.
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        let what = format!(
            "{} cannot be listened on: {error}; choose another with --listen",
            config.listen
        );
        Failure::new(Exit::Unreachable, what)
    })?;
    let assembled = Assembled::start(&config, Purpose::Serving).await?;
    let keys = MadeKeys::for_config(&config, &assembled.chance)?;
    let limits = Limits { drain: DOORS_DRAIN, ..Limits::default() };
    let tls = tls(&config)?;
    let doors = Doors::new(
        assembled.engine.clone(),
        DoorsConfig {
            workers: Workers::new(workers(&config, &keys)?).map_err(Failure::of(Exit::Usage))?,
            admin: admin(&config, &keys)?,
            hold: config.claims.hold,
            limits,
            allowed_hosts: allowed_hosts(&config),
            pingback: assembled.pingback.clone(),
        },
    );
    let local = listener.local_addr()?;
    banner::show(&config, &keys, local)?;
    let gateway = Gateway { sources: &context.sources, config, keys, assembled, doors };
    gateway.serve(listener, ServeConfig { tls, limits }, signals).await;
    Ok(())
}

// === impl Gateway ===

impl Gateway<'_> {
    async fn serve(mut self, listener: TcpListener, settings: ServeConfig, mut signals: Signals) {
        let (close, closed) = oneshot::channel();
        let router = doors::router(&self.doors);
        let serving = doors::serve(listener, router, settings, async {
            // A dropped sender means the same as a sent one: the steering has ended.
            closed.await.unwrap_or(());
        });
        let steering = async {
            while signals.next().await == Wish::Reload {
                self.reload();
            }
            tracing::info!("draining, refusing new claims while paid tasks finish");
            // The doors stay open meanwhile: whoever waits gets its answer. A second signal ends the waiting.
            tokio::select! {
                biased;
                () = self.assembled.stop() => {}
                _ = signals.next() => tracing::warn!("drain timeout, the next start recovers the remaining tasks"),
            }
            drop(close);
        };
        tokio::join!(serving, steering);
        tracing::info!("stopped");
    }

    /// Validates, then swaps; on any error the old configuration stays in force.
    fn reload(&mut self) {
        let new = match self.sources.load() {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%error, "not reloaded; the old configuration stays in force");
                return;
            }
        };
        let replaced = workers(&new, &self.keys)
            .and_then(|list| self.doors.workers().replace(list).map_err(Failure::of(Exit::Usage)));
        if let Err(error) = replaced {
            tracing::error!(%error, "not reloaded; the old configuration stays in force");
            return;
        }
        self.assembled.engine.set_sites(new.declarations.sites());
        self.assembled.engine.set_priorities(priorities(&new.workers));
        self.assembled.engine.set_allowances(allowances(&new.workers));
        let restart = self.config.needs_restart(&new).join(", ");
        tracing::info!(
            sites_changed = self.config.declarations != new.declarations,
            sites = new.declarations.sites.len(),
            workers_changed = self.config.workers != new.workers,
            workers = new.workers.len(),
            needs_restart = %restart,
            "reloaded"
        );
        self.config.declarations = new.declarations;
        self.config.workers = new.workers;
    }
}

/// The names given, and the one the service calls us by.
fn allowed_hosts(config: &Config) -> Vec<String> {
    let pingback = config.upstream.pingback.as_ref().and_then(|pingback| pingback.url.host_str());
    config.hosts.iter().cloned().chain(pingback.map(str::to_ascii_lowercase)).collect()
}

/// The configured admin key, or the one that was made.
fn admin(config: &Config, keys: &MadeKeys) -> Result<Option<KeyDigest>, Failure> {
    let made = keys.admin.as_ref().map(|made| made.digest);
    config.admin.as_ref().map(key_digest).transpose().map(|configured| configured.or(made))
}

/// The configured workers, or the one whose key was made.
fn workers(config: &Config, keys: &MadeKeys) -> Result<Vec<doors::Worker>, Failure> {
    let configured = config.workers.iter().map(door_worker);
    let made = keys.worker.iter().map(|made| local_worker(made.digest));
    // A worker configured by a reload takes the place of the one that was made at start.
    if config.workers.is_empty() { made.collect() } else { configured.collect() }
}

/// The worker of a gateway that was given none, and of commands that work in this process.
pub(super) fn local_worker(key: KeyDigest) -> Result<doors::Worker, Failure> {
    Ok(doors::Worker {
        name: WorkerName::new("local").map_err(Failure::of(Exit::Failed))?,
        key,
        project: Project::new("local").map_err(Failure::of(Exit::Failed))?,
        allowance: Allowance::default(),
        rate: None,
        narrowing: None,
        priority: 1,
    })
}

/// The certificate a self-signed gateway makes for itself, and its key.
pub(super) const CERTIFICATE: &str = "tls-cert.pem";
const CERTIFICATE_KEY: &str = "tls-key.pem";

fn tls(config: &Config) -> Result<Option<TlsMaterial>, Failure> {
    let material = match (&config.tls, config.data.as_deref()) {
        (None, _) => return Ok(None),
        (Some(Tls::Files { cert, key }), _) => TlsMaterial::from_files(cert, key),
        (Some(Tls::SelfSigned), Some(data)) => {
            let paths = (data.join(CERTIFICATE), data.join(CERTIFICATE_KEY));
            if !paths.0.exists() || !paths.1.exists() {
                keep_certificate(&paths.0, &paths.1, &make_certificate(config)?)?;
            }
            TlsMaterial::from_files(&paths.0, &paths.1)
        }
        (Some(Tls::SelfSigned), None) => make_certificate(config)?.material(),
    };
    material.map(Some).map_err(Failure::of(Exit::Usage))
}

fn make_certificate(config: &Config) -> Result<SelfSigned, Failure> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    names.extend(config.hosts.iter().cloned());
    if !config.listen.ip().is_unspecified() && !config.listen.ip().is_loopback() {
        names.push(config.listen.ip().to_string());
    }
    SelfSigned::make(names).map_err(Failure::of(Exit::Usage))
}

/// Kept, so that workers who were told to trust it still do after a restart. Key first: a certificate without its
/// key would be replaced at the next start.
fn keep_certificate(cert: &Path, key: &Path, made: &SelfSigned) -> Result<(), Failure> {
    keys::write_private(key, made.key.expose())?;
    keys::write_private(cert, &made.certificate)
}
