//! A loopback proxy that breaks connections. It has its own thread and runtime, so that it does not depend on the test's
//! runtime. A fault is in force when the method that requests it returns.

use std::{
    io,
    net::{Ipv4Addr, Shutdown},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use socket2::{SockRef, Socket};
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

/// The time a server gets to finish requests whose replies are dropped.
const DRAIN: Duration = Duration::from_secs(5);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A proxy before a server. Dropping it closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    faults: Arc<FaultState>,
    commands: UnboundedSender<Command>,
}

/// The current faults, shared with all connections.
#[derive(Debug, Default)]
struct FaultState {
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

/// A reply that will be dropped.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The number of requests up to and including the one that loses its reply.
    left: u32,
    then: Then,
}

/// The fate of the other connections when one ends.
#[derive(Clone, Copy, Debug)]
enum Then {
    GoOn,
    Cut,
}

/// A command to the proxy's thread, which confirms it on the channel.
#[derive(Debug)]
enum Command {
    Cut(mpsc::Sender<()>),
    Heal(mpsc::Sender<()>),
}

/// The part that runs in the proxy's thread.
struct Proxy {
    port: u16,
    faults: Arc<FaultState>,
    door: Door,
    /// A task returns its client socket still open, so that the client notices only when everything else is done.
    connections: JoinSet<(Then, TcpStream)>,
}

/// The proxy's port, which no other process can take while it is closed.
enum Door {
    Open(TcpListener),
    /// Bound, but it does not listen, so the kernel refuses connections.
    Closed(Socket),
}

// === impl FaultProxy ===

impl FaultProxy {
    /// A proxy before a local port, without faults at first.
    pub fn start(target: u16) -> Self {
        let faults = Arc::new(FaultState { target: target.into(), ..FaultState::default() });
        let (commands, inbox) = unbounded_channel();
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
        Self { port: port.recv().expect("the proxy starts"), faults, commands }
    }

    /// Directs new connections to another port.
    pub fn lead_to(&self, target: u16) {
        self.faults.target.store(target, Ordering::SeqCst);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.faults.accepted.load(Ordering::Relaxed)
    }

    /// Closes all connections and refuses new ones until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.command(Command::Cut);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        *self.faults.now.lock().unwrap() = Now::default();
        self.command(Command::Heal);
    }

    /// Delays all traffic by this much, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.faults.now.lock().unwrap().delay = delay;
    }

    /// Delivers requests and drops replies; connections stay open.
    pub fn drop_answers(&self) {
        self.faults.now.lock().unwrap().answers_dropped = true;
    }

    /// Delivers the `n`-th chunk that a client sends from now on (1 is the next one) to the server, and then cuts
    /// everything, as [`cut`](Self::cut) does. The server acts on the request and its reply is lost.
    pub fn cut_after_request(&self, n: u32) {
        self.lose(n, Then::Cut);
    }

    /// Like [`cut_after_request`](Self::cut_after_request), but closes only the connection that loses its reply, so
    /// that the client can reconnect at once.
    pub fn lose_answer(&self, n: u32) {
        self.lose(n, Then::GoOn);
    }

    fn lose(&self, n: u32, then: Then) {
        assert!(n > 0, "requests are counted from 1, the next one");
        self.faults.now.lock().unwrap().loss = Some(Loss { left: n, then });
    }

    fn command(&self, command: fn(mpsc::Sender<()>) -> Command) {
        let (done, finished) = mpsc::channel();
        self.commands.send(command(done)).expect("the proxy runs");
        finished.recv().expect("the proxy confirms the command");
    }
}

// === impl FaultState ===

impl FaultState {
    /// Counts a request. Returns what happens next if its reply is to be lost.
    fn count_request(&self) -> Option<Then> {
        let mut now = self.now.lock().unwrap();
        let loss = now.loss.as_mut()?;
        loss.left -= 1;
        if loss.left > 0 {
            return None;
        }
        now.loss.take().map(|loss| loss.then)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a network delay, outside the runtime under test"
    )]
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
    async fn open(faults: Arc<FaultState>) -> Self {
        loop {
            let port = free_port();
            // Another process may have taken the port.
            if let Ok(listener) = listen(port).await {
                let connections = JoinSet::new();
                return Self { port, faults, door: Door::Open(listener), connections };
            }
        }
    }

    /// Runs until the test drops its side.
    async fn run(mut self, mut inbox: UnboundedReceiver<Command>) {
        loop {
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.carry_out(command).await,
                    None => return,
                },
                Some(client) = self.door.accept() => self.take(client),
                Some(ended) = self.connections.join_next() => self.end(ended).await,
            }
        }
    }

    async fn carry_out(&mut self, command: Command) {
        let done = match command {
            Command::Cut(done) => {
                self.cut().await;
                done
            }
            Command::Heal(done) => {
                self.door.open();
                done
            }
        };
        done.send(()).ok();
    }

    async fn cut(&mut self) {
        self.door.close();
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

// === impl Door ===

impl Door {
    /// Dropping the socket would not be enough: a process that another test is starting inherits a copy until it executes
    /// its program. And another server could take the port.
    fn close(&mut self) {
        let Self::Open(listener) = self else { return };
        let socket = SockRef::from(&*listener).try_clone().expect("a descriptor is free");
        socket.shutdown(Shutdown::Both).expect("a listener can be shut down");
        *self = Self::Closed(socket);
    }

    fn open(&mut self) {
        let Self::Closed(socket) = self else { return };
        socket.listen(BACKLOG).expect("the socket still has its port");
        let socket = socket.try_clone().expect("a descriptor is free");
        let listener = TcpListener::from_std(socket.into());
        *self = Self::Open(listener.expect("the runtime takes its listener back"));
    }

    /// Accepts the next client; returns `None` while closed.
    async fn accept(&self) -> Option<TcpStream> {
        let Self::Open(listener) = self else { return None };
        loop {
            if let Ok((client, _)) = listener.accept().await {
                return Some(client);
            }
        }
    }
}

/// Relays one connection until a side closes it or its reply is to be lost.
async fn relay(mut client: TcpStream, faults: Arc<FaultState>) -> (Then, TcpStream) {
    let target = faults.target.load(Ordering::SeqCst);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        return (Then::GoOn, client);
    };
    // Nagle's algorithm would delay small requests.
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let then = tokio::select! {
        then = pass_requests(&mut from_client, &mut to_server, &faults) => then,
        () = pass_answers(&mut from_server, &mut to_client, &faults) => Then::GoOn,
    };
    // A connection closed with unread replies is reset, and the server may never read the request. So the proxy sends
    // an end of stream and reads to the end: by then the server has acted on all requests.
    to_server.shutdown().await.ok();
    let mut unheard = tokio::io::sink();
    timeout(DRAIN, tokio::io::copy(&mut from_server, &mut unheard)).await.ok();
    (then, client)
}

/// Returns after the request whose reply is to be lost.
async fn pass_requests(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    faults: &FaultState,
) -> Then {
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

async fn pass_answers(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>, faults: &FaultState) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        faults.delay().await;
        if !faults.answers_dropped() && to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
