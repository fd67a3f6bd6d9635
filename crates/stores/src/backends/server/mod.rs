//! The kit of the backends on servers: URL options, TLS roots, reconnecting with backoff, and the common steps of `connect`.

pub(crate) mod backoff;
pub(crate) mod options;
pub(crate) mod tls;

use std::{fmt, future::Future, net::IpAddr, sync::Arc, time::Duration};

use domain::ports::Notifier;
use tokio::time::Instant;

use crate::{
    Backend, Finding, OpenError, Weight,
    adapter::{StoreAdapter, TransactionRunner},
    schema::seal::Keyring,
};

/// A backend by its names: one for metrics, one for people.
pub(crate) struct ServerKind {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
}

/// How long `connect` waits for a server that is just starting.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const START_RETRY: Duration = Duration::from_millis(200);

impl ServerKind {
    pub(crate) async fn opened(
        &self,
        driver: impl TransactionRunner,
        notifier: Arc<dyn Notifier>,
        mut findings: Vec<Finding>,
        keys: Option<&'static Keyring>,
    ) -> Result<Backend, OpenError> {
        let store = StoreAdapter::new(Arc::new(driver));
        findings.extend(store.check_keys(keys).await?);
        Ok(Backend { notifier, findings, ..crate::backend(store, self.name) })
    }

    pub(crate) fn bad_address(&self, why: String) -> OpenError {
        OpenError::Address { store: self.title, why }
    }

    pub(crate) fn unreachable(&self, server: String, why: impl fmt::Display) -> OpenError {
        OpenError::Unreachable { store: self.title, server, why: format!("{why}") }
    }

    pub(crate) fn foreign(&self, server: String, found: String, remedy: &'static str) -> OpenError {
        OpenError::Foreign { store: self.title, server, found, remedy }
    }

    /// Refuses to open a store whose server would lose money.
    pub(crate) fn refuse_unsafe(&self, findings: &[Finding]) -> Result<(), OpenError> {
        let bad = findings.iter().find(|finding| finding.weight == Weight::Bad);
        bad.map_or(Ok(()), |bad| {
            let (what, remedy) = (bad.what.clone(), bad.remedy.clone().unwrap_or_default());
            Err(OpenError::Unsafe { store: self.title, what, remedy })
        })
    }
}

/// Whether a host is this machine, by its name or its address.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Retries for a few seconds while the server says that it is starting.
pub(crate) async fn retry_while_starting<T, E, F: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut() -> F,
    is_starting: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt().await {
            Err(error) if is_starting(&error) && start.elapsed() < START_TIMEOUT => {
                tokio::time::sleep(START_RETRY).await;
            }
            result => return result,
        }
    }
}

/// Measures how far away the server is: the median of some requests. `round_trips`: how many of them a decision takes.
pub(crate) async fn measure_latency<T, E, F: Future<Output = Result<T, E>>>(
    samples: usize,
    round_trips: &str,
    mut request: impl FnMut() -> F,
) -> Result<Finding, E> {
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        request().await?;
        took.push(start.elapsed());
    }
    Ok(Finding::latency(took, round_trips))
}
