//! Resolves the names of receivers: by the system, or by a test.
//!
//! The system's resolver blocks a thread for an unbounded time, whatever timeout its caller has. So we run few lookups at a
//! time, one thread per name, and cache the results briefly. The cache does not weaken the address rules, because the
//! sender checks the addresses on every delivery.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    task::spawn_blocking,
    time::Instant,
};

const MAX_LOOKUPS: usize = 16;
const MAX_CACHED: usize = 1024;
/// How long we cache addresses.
const FOUND_TTL: Duration = Duration::from_secs(30);
/// How long we cache a failed lookup; DNS failures are often short.
const NOT_FOUND_TTL: Duration = Duration::from_secs(5);

#[async_trait]
pub(super) trait Resolver: Send + Sync {
    /// All addresses of a name, with this port; empty when the lookup fails.
    async fn resolve(&self, name: &str, port: u16) -> Vec<SocketAddr>;
}

/// The system's resolver.
pub(super) struct SystemResolver {
    look_up: fn(&str) -> Vec<IpAddr>,
    permits: Arc<Semaphore>,
    names: Mutex<HashMap<String, Arc<AsyncMutex<CachedLookup>>>>,
}

/// The cached result for one name. The holder of its lock does the lookup.
#[derive(Default)]
struct CachedLookup {
    addresses: Vec<IpAddr>,
    until: Option<Instant>,
}

// === impl SystemResolver ===

impl SystemResolver {
    pub(super) fn new() -> Self {
        Self::with(|name| {
            let found = (name, 0).to_socket_addrs();
            found.into_iter().flatten().map(|address| address.ip()).collect()
        })
    }

    fn with(look_up: fn(&str) -> Vec<IpAddr>) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { look_up, permits, names: Mutex::default() }
    }

    fn name(&self, name: &str) -> Arc<AsyncMutex<CachedLookup>> {
        let mut names = self.names.lock();
        if names.len() >= MAX_CACHED && !names.contains_key(name) {
            // Lookups under way are kept; there are few of them.
            names.retain(|_, cached| Arc::strong_count(cached) > 1);
        }
        Arc::clone(names.entry(name.to_owned()).or_default())
    }

    async fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let mut cached = self.name(name).lock_owned().await;
        if cached.until.is_some_and(|until| Instant::now() < until) {
            return cached.addresses.clone();
        }
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return Vec::new() };
        let (look_up, name) = (self.look_up, name.to_owned());
        // The thread holds the permit and the lock: a caller that gives up frees neither before the system has answered.
        let result = spawn_blocking(move || {
            let addresses = look_up(&name);
            let fresh = if addresses.is_empty() { NOT_FOUND_TTL } else { FOUND_TTL };
            *cached = CachedLookup { addresses, until: Some(Instant::now() + fresh) };
            drop(permit);
            cached.addresses.clone()
        });
        result.await.unwrap_or_default()
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str, port: u16) -> Vec<SocketAddr> {
        let addresses = self.addresses(name).await;
        addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use parking_lot::Condvar;
    use tokio::time::{advance, timeout};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn a_result_is_cached_for_half_a_minute_and_a_failure_for_five_seconds() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let system = SystemResolver::with(|name| {
            let lookups = LOOKUPS.fetch_add(1, Ordering::SeqCst) + 1;
            let number = u8::try_from(lookups).unwrap();
            if name == "none" { vec![] } else { vec![Ipv4Addr::new(1, 1, 1, number).into()] }
        });
        let last = async |name| system.resolve(name, 443).await.first().map(ToString::to_string);
        tokio::time::pause();
        let first = Some("1.1.1.1:443".to_owned());
        assert_eq!(last("a").await, first);
        advance(Duration::from_secs(29)).await;
        assert_eq!((last("a").await, LOOKUPS.load(Ordering::SeqCst)), (first, 1));
        advance(Duration::from_secs(2)).await;
        assert_eq!(last("a").await.unwrap(), "1.1.1.2:443");
        assert_eq!(
            (last("none").await, last("none").await, LOOKUPS.load(Ordering::SeqCst)),
            (None, None, 3)
        );
        advance(Duration::from_secs(6)).await;
        assert_eq!((last("none").await, LOOKUPS.load(Ordering::SeqCst)), (None, 4));
    }

    /// While this is true, `stuck` does not return.
    static BLOCKED: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());
    static INSIDE: AtomicUsize = AtomicUsize::new(0);

    fn stuck(_: &str) -> Vec<IpAddr> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        BLOCKED.1.wait_while(&mut BLOCKED.0.lock(), |blocked| *blocked);
        vec![Ipv4Addr::new(1, 1, 1, 1).into()]
    }

    #[tokio::test]
    async fn callers_that_gave_up_leave_at_most_sixteen_threads_and_one_per_name() {
        let system = SystemResolver::with(stuck);
        let give_up = async |name: &str| {
            assert!(timeout(MOMENT, system.resolve(name, 443)).await.is_err());
        };
        for _ in 0..10 {
            give_up("one").await;
        }
        assert_eq!(INSIDE.load(Ordering::SeqCst), 1);
        for n in 0..40 {
            give_up(&format!("n{n}")).await;
        }
        assert_eq!(INSIDE.load(Ordering::SeqCst), MAX_LOOKUPS);
        *BLOCKED.0.lock() = false;
        BLOCKED.1.notify_all();
        for name in ["one", "n39"] {
            assert_eq!(
                system.resolve(name, 443).await.len(),
                1,
                "results nobody waited for are cached, and permits are free"
            );
        }
        assert_eq!(INSIDE.load(Ordering::SeqCst), MAX_LOOKUPS + 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let system = SystemResolver::with(|_| Vec::new());
        for n in 0..3 * MAX_CACHED {
            system.resolve(&n.to_string(), 443).await;
            assert!(system.names.lock().len() <= MAX_CACHED);
        }
    }
}
