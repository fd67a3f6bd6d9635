//! A loopback proxy that breaks connections on purpose. It has a thread and a runtime of its own, so that it goes on
//! whatever the test's runtime does, and its faults are in force when the method that asks for them returns.

use std::{
    io,
    net::{self, Ipv4Addr, Shutdown},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::process::free_port;

/// How long a server may take over requests whose answers nobody will get.
const DRAIN: Duration = Duration::from_secs(5);

/// A way to a server that a test can break. Dropping it closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    faults: Arc<Faults>,
    orders: UnboundedSender<Order>,
}

/// What goes wrong at the moment; shared with all connections.
#[derive(Debug, Default)]
struct Faults {
    accepted: AtomicU64,
    target: AtomicU16,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    delay: Duration,
    answers_dropped: bool,
    loss: Option<Loss>,
}

/// An answer that will be lost.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// Requests until then, with the one whose answer it is.
    left: u32,
    then: Then,
}

/// What becomes of the others when one connection is over.
#[derive(Clone, Copy, Debug)]
enum Then {
    GoOn,
    Cut,
}

/// Answered when it is done.
#[derive(Debug)]
enum Order {
    Cut(mpsc::Sender<()>),
    Heal(mpsc::Sender<()>),
}

/// The thread's side.
struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    /// None while cut, so that the system refuses connections.
    listener: Option<TcpListener>,
    /// Each ends with its client's side still open: the client notices when everything else is done.
    connections: JoinSet<(Then, TcpStream)>,
}

// === impl FaultProxy ===

impl FaultProxy {
    /// A proxy before a port of this machine, healthy at first.
    pub fn start(target: u16) -> Self {
        let faults = Arc::new(Faults { target: target.into(), ..Faults::default() });
        let (orders, inbox) = unbounded_channel();
        let (ready, port) = mpsc::channel();
        let shared = faults.clone();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let proxy = Proxy::open(shared).await;
                ready.send(proxy.port).unwrap();
                proxy.run(inbox).await;
            });
        });
        Self { port: port.recv().expect("the proxy starts"), faults, orders }
    }

    /// New connections lead to another port from now on.
    pub fn lead_to(&self, target: u16) {
        self.faults.target.store(target, Ordering::SeqCst);
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has taken so far.
    pub fn accepted(&self) -> u64 {
        self.faults.accepted.load(Ordering::Relaxed)
    }

    /// Closes all connections and refuses new ones, until it is healed.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// Ends all faults: new connections are taken, and everything passes at once.
    pub fn heal(&self) {
        *self.faults.now.lock().unwrap() = Now::default();
        self.order(Order::Heal);
    }

    /// From now on everything takes this much longer, each way.
    pub fn delay(&self, delay: Duration) {
        self.faults.now.lock().unwrap().delay = delay;
    }

    /// From now on requests arrive and answers do not; connections stay.
    pub fn drop_answers(&self) {
        self.faults.now.lock().unwrap().answers_dropped = true;
    }

    /// The `n`-th chunk from now that a client sends (1 is the next one) still reaches the server, which acts on it; its
    /// answer is lost, because everything is cut, as by [`cut`](Self::cut).
    pub fn cut_after_request(&self, n: u32) {
        self.lose(n, Then::Cut);
    }

    /// As [`cut_after_request`](Self::cut_after_request), but only the connection that loses its answer is closed, and the
    /// client can come again at once.
    pub fn lose_answer(&self, n: u32) {
        self.lose(n, Then::GoOn);
    }

    fn lose(&self, n: u32, then: Then) {
        assert!(n > 0, "requests are counted from 1, the next one");
        self.faults.now.lock().unwrap().loss = Some(Loss { left: n, then });
    }

    fn order(&self, order: fn(mpsc::Sender<()>) -> Order) {
        let (done, told) = mpsc::channel();
        self.orders.send(order(done)).expect("the proxy runs");
        told.recv().expect("the proxy does what it is told");
    }
}

// === impl Faults ===

impl Faults {
    /// One request more. Says whether its answer is to be lost.
    fn count_request(&self) -> Option<Then> {
        let mut now = self.now.lock().unwrap();
        let loss = now.loss.as_mut()?;
        loss.left -= 1;
        if loss.left > 0 {
            return None;
        }
        now.loss.take().map(|loss| loss.then)
    }

    #[expect(clippy::disallowed_methods, reason = "a network's delay, in a runtime of its own")]
    async fn delay(&self) {
        let delay = self.now.lock().unwrap().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    fn answers_dropped(&self) -> bool {
        self.now.lock().unwrap().answers_dropped
    }
}

// === impl Proxy ===

impl Proxy {
    async fn open(faults: Arc<Faults>) -> Self {
        loop {
            let port = free_port();
            // Somebody else may have been quicker.
            if let Ok(listener) = listen(port).await {
                let connections = JoinSet::new();
                return Self { port, faults, listener: Some(listener), connections };
            }
        }
    }

    /// Until the test drops its side.
    async fn run(mut self, mut inbox: UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                Some(client) = accept(self.listener.as_ref()) => self.take(client),
                Some(ended) = self.connections.join_next() => self.end(ended).await,
            }
        }
    }

    async fn obey(&mut self, order: Order) {
        let done = match order {
            Order::Cut(done) => {
                self.cut().await;
                done
            }
            Order::Heal(done) => {
                if self.listener.is_none() {
                    let again = listen(self.port).await;
                    self.listener = Some(again.expect("the proxy's port is still free"));
                }
                done
            }
        };
        done.send(()).ok();
    }

    async fn cut(&mut self) {
        if let Some(listener) = self.listener.take() {
            close(listener);
        }
        self.connections.shutdown().await;
    }

    async fn end(&mut self, ended: Result<(Then, TcpStream), JoinError>) {
        let (then, client) = ended.expect("a connection neither panics nor is cancelled by itself");
        match then {
            Then::Cut => self.cut().await,
            Then::GoOn => {}
        }
        drop(client);
    }

    fn take(&mut self, client: TcpStream) {
        self.faults.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.spawn(relay(client, self.faults.clone()));
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

/// Dropping it is not enough: a process that another test is just starting has a copy until it runs its program.
fn close(listener: TcpListener) {
    let socket = OwnedFd::from(listener.into_std().expect("the runtime gives its listener back"));
    net::TcpStream::from(socket).shutdown(Shutdown::Both).expect("a listener can be shut down");
}

/// The next client that is still there; none while cut.
async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    loop {
        if let Ok((client, _)) = listener?.accept().await {
            return Some(client);
        }
    }
}

/// One connection, until a side closes it or its answer is to be lost.
async fn relay(mut client: TcpStream, faults: Arc<Faults>) -> (Then, TcpStream) {
    let target = faults.target.load(Ordering::SeqCst);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        return (Then::GoOn, client);
    };
    // Small requests would wait for one another.
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let then = tokio::select! {
        then = pass_requests(&mut from_client, &mut to_server, &faults) => then,
        () = pass_answers(&mut from_server, &mut to_client, &faults) => Then::GoOn,
    };
    // A connection closed with answers unread is reset, and the server may never read what was sent. So it is told that
    // there is no more, and heard to the end: by then all requests were acted on.
    to_server.shutdown().await.ok();
    let mut unheard = tokio::io::sink();
    timeout(DRAIN, tokio::io::copy(&mut from_server, &mut unheard)).await.ok();
    (then, client)
}

/// Ends after the request whose answer is to be lost.
async fn pass_requests(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>, faults: &Faults) -> Then {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        faults.delay().await;
        let lost = faults.count_request();
        if to.write_all(&chunk[..length]).await.is_err() {
            break;
        }
        if let Some(then) = lost {
            return then;
        }
    }
    Then::GoOn
}

async fn pass_answers(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>, faults: &Faults) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        faults.delay().await;
        if !faults.answers_dropped() && to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
