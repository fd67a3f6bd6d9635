//! Where a name's addresses come from: the system, or a test.
//!
//! The system's resolver blocks a thread for as long as it likes, whatever its caller's patience. So few names are asked
//! for at a time, each by one thread only, and what was heard is remembered for a moment. The memory opens no way around
//! the rules: whoever connects checks the addresses it was given.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Mutex as Turn, Semaphore},
    task::spawn_blocking,
    time::Instant,
};

/// So many names are asked for at a time.
const AT_ONCE: usize = 16;
/// So many names are remembered.
const NAMES: usize = 1024;
/// So long are addresses remembered.
const FOUND: Duration = Duration::from_secs(30);
/// So long is it remembered that there are none: it is often over in a moment.
const NOT_FOUND: Duration = Duration::from_secs(5);

/// Resolves names.
#[async_trait]
pub(super) trait Resolver: Send + Sync {
    /// All addresses of a name, with this port; none when they cannot be had now.
    async fn resolve(&self, name: &str, port: u16) -> Vec<SocketAddr>;
}

/// The system's resolver.
pub(super) struct System {
    look_up: fn(&str) -> Vec<IpAddr>,
    places: Arc<Semaphore>,
    names: Mutex<HashMap<String, Arc<Turn<Heard>>>>,
}

/// What was heard about a name. Whoever holds its lock is the one who asks.
#[derive(Default)]
struct Heard {
    addresses: Vec<IpAddr>,
    until: Option<Instant>,
}

// === impl System ===

impl System {
    pub(super) fn new() -> Self {
        Self::with(|name| {
            let found = (name, 0).to_socket_addrs();
            found.into_iter().flatten().map(|address| address.ip()).collect()
        })
    }

    fn with(look_up: fn(&str) -> Vec<IpAddr>) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { look_up, places, names: Mutex::default() }
    }

    fn name(&self, name: &str) -> Arc<Turn<Heard>> {
        let mut names = self.names.lock().expect("no holder of this lock can panic");
        if names.len() >= NAMES && !names.contains_key(name) {
            // Those that somebody asks for now stay: they are few.
            names.retain(|_, heard| Arc::strong_count(heard) > 1);
        }
        Arc::clone(names.entry(name.to_owned()).or_default())
    }

    async fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let mut heard = self.name(name).lock_owned().await;
        if heard.until.is_some_and(|until| Instant::now() < until) {
            return heard.addresses.clone();
        }
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return Vec::new() };
        let (look_up, name) = (self.look_up, name.to_owned());
        // Place and lock go with the thread: a caller that gives up frees neither before the system has answered.
        let asked = spawn_blocking(move || {
            let addresses = look_up(&name);
            let fresh = if addresses.is_empty() { NOT_FOUND } else { FOUND };
            *heard = Heard { addresses, until: Some(Instant::now() + fresh) };
            drop(place);
            heard.addresses.clone()
        });
        asked.await.unwrap_or_default()
    }
}

#[async_trait]
impl Resolver for System {
    async fn resolve(&self, name: &str, port: u16) -> Vec<SocketAddr> {
        let addresses = self.addresses(name).await;
        addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::{
            Condvar,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use tokio::time::{advance, timeout};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn an_answer_is_remembered_for_half_a_minute_and_its_absence_for_five_seconds() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let system = System::with(|name| {
            let asked = ASKED.fetch_add(1, Ordering::SeqCst) + 1;
            let number = u8::try_from(asked).unwrap();
            if name == "none" { vec![] } else { vec![Ipv4Addr::new(1, 1, 1, number).into()] }
        });
        let last = async |name| system.resolve(name, 443).await.first().map(ToString::to_string);
        tokio::time::pause();
        let first = Some("1.1.1.1:443".to_owned());
        assert_eq!(last("a").await, first);
        advance(Duration::from_secs(29)).await;
        assert_eq!((last("a").await, ASKED.load(Ordering::SeqCst)), (first, 1));
        advance(Duration::from_secs(2)).await;
        assert_eq!(last("a").await.unwrap(), "1.1.1.2:443");
        assert_eq!(
            (last("none").await, last("none").await, ASKED.load(Ordering::SeqCst)),
            (None, None, 3)
        );
        advance(Duration::from_secs(6)).await;
        assert_eq!((last("none").await, ASKED.load(Ordering::SeqCst)), (None, 4));
    }

    /// Answers nobody until it is opened.
    static SHUT: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());
    static INSIDE: AtomicUsize = AtomicUsize::new(0);

    fn stuck(_: &str) -> Vec<IpAddr> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let shut = SHUT.1.wait_while(SHUT.0.lock().unwrap(), |shut| *shut).unwrap();
        drop(shut);
        vec![Ipv4Addr::new(1, 1, 1, 1).into()]
    }

    #[tokio::test]
    async fn callers_that_gave_up_leave_no_more_than_sixteen_threads_and_one_for_each_name() {
        let system = System::with(stuck);
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
        assert_eq!(INSIDE.load(Ordering::SeqCst), AT_ONCE);
        *SHUT.0.lock().unwrap() = false;
        SHUT.1.notify_all();
        for name in ["one", "n39"] {
            assert_eq!(
                system.resolve(name, 443).await.len(),
                1,
                "what nobody waited for is known, and places are free"
            );
        }
        assert_eq!(INSIDE.load(Ordering::SeqCst), AT_ONCE + 1);
    }

    #[tokio::test]
    async fn no_more_names_are_remembered_than_fit() {
        let system = System::with(|_| Vec::new());
        for n in 0..3 * NAMES {
            system.resolve(&n.to_string(), 443).await;
            assert!(system.names.lock().unwrap().len() <= NAMES);
        }
    }
}
