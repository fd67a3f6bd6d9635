//! `solvegate serve`: starts the gateway, prints how to use it, reloads on SIGHUP and drains on SIGTERM.

use std::{fmt, net::SocketAddr, time::Duration};

use domain::{
    actor::{Actor, AdminRole},
    admin_action::AdminAction,
    claim::Allowance,
    id::{Project, WorkerName},
    ports::Clock as _,
    secret::Secret,
};
use doors::{
    Admins, CheckedAdmins, Doors, DoorsConfig, KeyDigest, Limits, SelfSigned, ServeConfig,
    TlsMaterial, Workers,
};
use tokio::{net::TcpListener, sync::oneshot};
use upstream::NewKey;

use super::{Context, banner, config_changes};
use crate::{
    assemble::{Assembled, Purpose, door_admin, door_worker, priorities, queue_limits},
    clock::SystemClock,
    config::{Admin, Config, LOCAL, Sources, Tls},
    exit::{Exit, Failure},
    keys::{self, GeneratedKeys},
    open_files,
    signals::{SignalAction, Signals},
};

struct RunningGateway<'c> {
    sources: &'c Sources,
    config: Config,
    keys: GeneratedKeys,
    assembled: Assembled,
    doors: Doors,
    tls: Option<TlsMaterial>,
}

/// Who reloads by a signal, in the audit trail. No admin can have this name.
const SIGHUP: &str = "sighup";

/// With the engine's 20 s for paid tasks this adds up to the documented 25 s.
const DOORS_DRAIN: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let config = context.sources.load()?;
    let signals = Signals::listen()?;
    // Bind first, so that a second gateway fails before it touches the store.
    let listener =
        TcpListener::bind(config.listen).await.map_err(|e| cannot_listen(config.listen, e))?;
    let assembled = Assembled::start(&config, Purpose::Serving).await?;
    let keys = GeneratedKeys::for_config(&config, &assembled.chance)?;
    let limits = limits();
    let tls = tls(&config)?;
    let doors = Doors::new(
        assembled.engine.clone(),
        DoorsConfig {
            workers: Workers::new(workers(&config, &keys)?).map_err(Failure::of(Exit::Usage))?,
            admins: Admins::new(admins(&config, &keys)).map_err(Failure::of(Exit::Usage))?,
            hold: config.claims.hold,
            limits,
            allowed_hosts: allowed_hosts(&config),
            currency: config.upstream.currency,
            pingback: assembled.pingback.clone(),
        },
    );
    let local = listener.local_addr()?;
    banner::print(&config, &keys, local)?;
    let sources = &context.sources;
    let serving = ServeConfig { tls: tls.clone(), limits };
    let gateway = RunningGateway { sources, config, keys, assembled, doors, tls };
    gateway.serve(listener, serving, signals).await;
    Ok(())
}

fn limits() -> Limits {
    let default = Limits::default();
    let connections = open_files::connections(default.connections);
    Limits { drain: DOORS_DRAIN, connections, ..default }
}

pub(super) fn cannot_listen(address: SocketAddr, error: impl fmt::Display) -> Failure {
    let what = format!("cannot listen on {address}: {error}; choose another address with --listen");
    Failure::new(Exit::Unreachable, what)
}

// === impl RunningGateway ===

impl RunningGateway<'_> {
    async fn serve(mut self, listener: TcpListener, settings: ServeConfig, mut signals: Signals) {
        let (close, closed) = oneshot::channel();
        let router = doors::router(&self.doors);
        let serving = doors::serve(listener, router, settings, async {
            // An error means that the sender was dropped, which has the same meaning.
            closed.await.unwrap_or(());
        });
        let control = async {
            while signals.next().await == SignalAction::Reload {
                self.reload().await;
            }
            tracing::info!("draining, refusing new claims while paid tasks finish");
            // The doors stay open during the drain, so that waiting callers get their answers. A second signal ends it.
            tokio::select! {
                biased;
                () = self.assembled.stop() => {}
                () = stop_again(&mut signals) => tracing::warn!("drain interrupted by a second stop signal, the gateways of this store recover the remaining tasks"),
            }
            drop(close);
        };
        tokio::join!(serving, control);
        tracing::info!("stopped");
    }

    async fn reload(&mut self) {
        let action = match self.try_reload() {
            Ok(action) => action,
            Err(error) => {
                tracing::error!(%error, "reload failed, keeping the old configuration");
                return;
            }
        };
        let by = Actor::process(WorkerName::new(SIGHUP).expect("a valid name"));
        // A reload that revokes a key must not wait for the store, so it is in force already.
        if let Err(error) = self.assembled.engine.administer(by, action.clone()).await {
            tracing::error!(%error, ?action, "failed to write the reload to the audit trail");
        }
    }

    /// Everything that can fail comes first, so that an error leaves the old configuration in force as a whole. What comes into
    /// force is checked by its type, except for the workers, which are the first to.
    fn try_reload(&mut self) -> Result<AdminAction, Failure> {
        let new = self.sources.load()?;
        let admins = admins(&new, &self.keys);
        if admins.is_empty() {
            let what =
                "[admin] key: is missing, and a reload makes none; restart the gateway to get one";
            return Err(Failure::new(Exit::Usage, what));
        }
        // Prices need a restart, so the new budgets have to be computed with the old ones.
        new.check_budgets(&self.config.upstream.prices)?;
        let certificate = self.read_certificate(&new)?;
        let webhooks = self.assembled.webhooks_of(&new)?;
        let admins = CheckedAdmins::new(admins).map_err(Failure::of(Exit::Usage))?;
        let key = self.new_provider_key(&new).map(NewKey::new).transpose();
        let key = key.map_err(Failure::of(Exit::Usage))?;
        let has_new_key = key.is_some();
        self.put_into_force(&new)?;
        self.doors.admins().replace(admins);
        if let Some(key) = key {
            self.assembled.upstream.set_key(key);
        }
        self.assembled.replace_webhooks(webhooks);
        if let (Some(current), Some(certificate)) = (&self.tls, &certificate) {
            current.replace(certificate);
        }
        let action = config_changes::reload(&self.config, &new, has_new_key);
        let restart = self.config.needs_restart(&new).join(", ");
        tracing::info!(
            declarations_changed = self.config.declarations != new.declarations,
            sites = new.declarations.sites.len(),
            workers_changed = self.config.workers != new.workers,
            workers = new.workers.len(),
            admins_changed = self.config.admins != new.admins,
            provider_key_changed = has_new_key,
            certificate_read = certificate.is_some(),
            needs_restart = %restart,
            "configuration reloaded"
        );
        self.config.declarations = new.declarations;
        self.config.workers = new.workers;
        self.config.admins = new.admins;
        if has_new_key {
            self.config.upstream.service = new.upstream.service;
        }
        Ok(action)
    }

    /// Another key of the account. The key of another service is not sent to the one in use.
    fn new_provider_key(&self, new: &Config) -> Option<Secret> {
        let (old, new) = (&self.config.upstream.service, &new.upstream.service);
        new.key().filter(|key| old.is_same_place(new) && old.key() != Some(key)).cloned()
    }

    /// The certificate as the files have it now; beginning or ending TLS needs a restart.
    fn read_certificate(&self, new: &Config) -> Result<Option<TlsMaterial>, Failure> {
        match (&self.config.tls, &new.tls) {
            (Some(Tls::Files { .. }), Some(Tls::Files { .. })) => tls(new),
            (None | Some(Tls::Files { .. } | Tls::SelfSigned), _) => Ok(None),
        }
    }

    /// Keys, declarations, budgets and priorities come into force together.
    fn put_into_force(&self, new: &Config) -> Result<(), Failure> {
        let engine = &self.assembled.engine;
        let list = workers(new, &self.keys)?;
        let replaced = self.doors.workers().replace(list, || {
            engine.set_declarations(new.declarations.clone().into());
            engine.set_priorities(priorities(&new.workers));
            engine.set_queue_limits(queue_limits(&new.workers));
            engine.set_budgets(new.budgets());
        });
        replaced.map_err(Failure::of(Exit::Usage))
    }
}

/// Waits for another signal to stop. A reload must not interrupt a drain: submissions under way would be cut off and could
/// be paid for twice.
async fn stop_again(signals: &mut Signals) {
    while signals.next().await == SignalAction::Reload {
        tracing::warn!("ignoring a reload while draining");
    }
}

/// The configured names, and the one in the address for pingbacks.
fn allowed_hosts(config: &Config) -> Vec<String> {
    let pingback = config.upstream.pingback.as_ref().and_then(|pingback| pingback.url.host_str());
    config.hosts.iter().cloned().chain(pingback.map(str::to_ascii_lowercase)).collect()
}

/// The configured admins, or else the one with the generated key.
fn admins(config: &Config, keys: &GeneratedKeys) -> Vec<doors::Admin> {
    // Admins added by a reload replace the generated one.
    if config.admins.is_empty() {
        return keys.admin.iter().map(|made| only_admin(made.digest)).collect();
    }
    config.admins.iter().map(door_admin).collect()
}

/// The admin of a gateway without configured admins, and of commands that run the engine in this process.
pub(super) fn only_admin(key: KeyDigest) -> doors::Admin {
    doors::Admin { name: Admin::default_name(), role: AdminRole::Admin, keys: vec![key.into()] }
}

/// The configured workers, or else the one with the generated key.
fn workers(config: &Config, keys: &GeneratedKeys) -> Result<Vec<doors::Worker>, Failure> {
    // Workers added by a reload replace the generated one.
    if config.workers.is_empty() {
        return keys.worker.iter().map(|made| local_worker(made.digest)).collect();
    }
    Ok(config.workers.iter().map(door_worker).collect())
}

/// The worker of a gateway without configured workers, and of commands that run the engine in this process.
pub(super) fn local_worker(key: KeyDigest) -> Result<doors::Worker, Failure> {
    Ok(doors::Worker {
        name: WorkerName::new(LOCAL).map_err(Failure::of(Exit::Failed))?,
        keys: vec![key.into()],
        project: Project::new(LOCAL).map_err(Failure::of(Exit::Failed))?,
        projects: Vec::new(),
        allowance: Allowance::default(),
        rate: None,
        poll_rate: None,
        read_rate: None,
        balance: true,
        priority: 1,
    })
}

/// The self-signed certificate in the data directory.
pub(super) const CERTIFICATE: &str = "tls-cert.pem";
const CERTIFICATE_KEY: &str = "tls-key.pem";

fn tls(config: &Config) -> Result<Option<TlsMaterial>, Failure> {
    let material = match (&config.tls, config.data.as_deref()) {
        (None, _) => return Ok(None),
        (Some(Tls::Files { cert, key }), _) => TlsMaterial::from_files(cert, key),
        (Some(Tls::SelfSigned), Some(data)) => {
            let paths = (data.join(CERTIFICATE), data.join(CERTIFICATE_KEY));
            if !paths.0.exists() || !paths.1.exists() {
                // Saved, so that workers that trust it still do after a restart. The key is written first: a certificate
                // without its key would be replaced at the next start.
                let made = create_certificate(config)?;
                keys::write_private(&paths.1, made.key.expose())?;
                keys::write_public(&paths.0, &made.certificate)?;
            }
            TlsMaterial::from_files(&paths.0, &paths.1)
        }
        (Some(Tls::SelfSigned), None) => create_certificate(config)?.material(),
    };
    material.map(Some).map_err(Failure::of(Exit::Usage))
}

fn create_certificate(config: &Config) -> Result<SelfSigned, Failure> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    names.extend(config.hosts.iter().cloned());
    if !config.listen.ip().is_unspecified() && !config.listen.ip().is_loopback() {
        names.push(config.listen.ip().to_string());
    }
    let today = SystemClock::start().now().day();
    SelfSigned::create(names, today).map_err(Failure::of(Exit::Usage))
}
