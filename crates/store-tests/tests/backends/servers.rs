//! The private servers and proxies behave as the tests of the stores expect.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    io::{self, BufRead, BufReader, ErrorKind, Write},
    net::{Ipv4Addr, TcpStream},
    panic::catch_unwind,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use store_tests::servers::{
    FaultProxy, Persistence, RedisCluster, RedisOptions, RedisServer, Replicas, shared_cluster,
    shared_redis, wait_for,
};

/// Only a broken server takes longer than this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait when no reply is expected.
const SILENCE: Duration = Duration::from_secs(1);

struct Client(BufReader<TcpStream>);

impl Client {
    fn open(port: u16) -> io::Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)))
    }

    /// Returns the first line of the reply.
    fn request(&mut self, request: &str) -> io::Result<String> {
        self.request_within(PATIENCE, request)
    }

    /// Whether a request gets no reply although the connection stays open.
    fn hears_nothing_of(&mut self, request: &str) -> bool {
        self.request_within(SILENCE, request).is_err_and(|why| why.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the connection is closed, before or after the request.
    fn is_cut_by(&mut self, request: &str) -> bool {
        self.request(request).is_err_and(|why| why.kind() != ErrorKind::WouldBlock)
    }

    fn request_within(&mut self, patience: Duration, request: &str) -> io::Result<String> {
        self.0.get_ref().set_read_timeout(Some(patience))?;
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Returns the first line of the reply on a new connection.
fn request(port: u16, request: &str) -> String {
    Client::open(port).unwrap().request(request).unwrap()
}

fn is_refused(port: u16) -> bool {
    Client::open(port).is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused)
}

fn redis(persistence: Persistence) -> RedisServer {
    RedisServer::start(&RedisOptions { persistence, ..Default::default() })
}

#[test]
fn a_server_answers_forgets_and_says_what_is_wrong() {
    let server = redis(Persistence::None);
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["set", "k", "v"]), "OK");
    assert_eq!(server.cli(&["get", "k"]), "v");
    server.flush();
    assert_eq!(server.cli(&["exists", "k"]), "0");
    let said = catch_unwind(|| server.cli(&["incr"])).unwrap_err();
    assert!(said.downcast_ref::<String>().unwrap().contains("wrong number of arguments"));
}

#[test]
fn a_command_line_that_redis_refuses_is_reported() {
    let options = RedisOptions { extra: vec!["--no-such-thing".into()], ..Default::default() };
    let said = catch_unwind(|| RedisServer::start(&options)).unwrap_err();
    assert!(said.downcast_ref::<String>().unwrap().contains("FATAL CONFIG FILE ERROR"));
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = redis(Persistence::None);
    let mut client = Client::open(server.port()).unwrap();
    server.pause();
    assert!(client.hears_nothing_of("PING"));
    assert!(server.is_running());
    server.resume();
    assert_eq!(request(server.port(), "PING"), "+PONG");
}

#[test]
fn a_killed_server_has_its_persisted_data_again() {
    for (persistence, kept) in
        [(Persistence::None, "0"), (Persistence::EverySecond, "1"), (Persistence::Always, "1")]
    {
        let server = redis(persistence);
        let port = server.port();
        server.cli(&["set", "k", "v"]);
        server.kill();
        assert!(!server.is_running());
        assert!(is_refused(port));
        server.restart();
        assert_eq!(server.port(), port);
        assert_eq!(server.cli(&["exists", "k"]), kept, "{persistence:?}");
    }
}

#[test]
fn a_password_is_asked_for() {
    let options = RedisOptions { password: Some("canary".into()), ..Default::default() };
    let server = RedisServer::start(&options);
    assert_eq!(server.url(), format!("redis://:canary@127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["ping"]), "PONG");
    assert!(request(server.port(), "PING").starts_with("-NOAUTH"));
}

#[test]
fn a_replica_has_what_its_master_has() {
    let password = Some("canary".to_owned());
    let master =
        RedisServer::start(&RedisOptions { password: password.clone(), ..Default::default() });
    master.cli(&["set", "k", "v"]);
    let replica_of = Some(master.port());
    let replica = RedisServer::start(&RedisOptions { password, replica_of, ..Default::default() });
    assert_eq!(replica.cli(&["get", "k"]), "v");
}

#[test]
fn a_dropped_server_leaves_nothing() {
    let server = redis(Persistence::Always);
    let (port, directory) = (server.port(), server.cli(&["config", "get", "dir"]));
    let directory = directory.lines().last().unwrap();
    assert!(fs::exists(directory).unwrap());
    drop(server);
    assert!(!fs::exists(directory).unwrap());
    assert!(is_refused(port));
}

#[test]
fn the_directory_of_a_dead_process_is_removed() {
    // No process id is as high as this.
    let left = env::temp_dir().join(format!("solvegate-test-99999999-{}", std::process::id()));
    fs::create_dir(&left).unwrap();
    drop(redis(Persistence::None));
    assert!(!left.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(|| redis(Persistence::None)).join().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(request(server.port(), "PING"), "+PONG");
}

#[test]
fn the_shared_server_is_one_with_a_corner_for_each_case() {
    assert_eq!(shared_redis().port(), shared_redis().port());
    assert_ne!(crate::prefix(), crate::prefix());
}

#[test]
fn a_server_dies_with_the_process_that_started_it() {
    let mut victim = Command::new(env!("CARGO_BIN_EXE_services"))
        .arg("redis")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port = lines.find_map(|line| line.rsplit(':').next()?.parse().ok()).unwrap();
    assert_eq!(request(port, "PING"), "+PONG");
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_for("the server of a dead process ends", || is_refused(port));
}

#[test]
fn a_cut_proxy_refuses_connections_until_it_is_healed() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    let mut client = Client::open(proxy.port()).unwrap();
    assert_eq!(client.request("PING").unwrap(), "+PONG");
    proxy.cut();
    assert!(client.is_cut_by("PING"));
    assert!(is_refused(proxy.port()));
    assert_eq!(proxy.accepted(), 1);
    proxy.heal();
    assert_eq!(request(proxy.port(), "PING"), "+PONG");
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn a_cut_is_not_undone_by_processes_that_are_being_started() {
    let proxy = FaultProxy::start(shared_redis().port());
    let starter = thread::spawn(|| {
        for _ in 0..200 {
            Command::new("true").status().unwrap();
        }
    });
    while !starter.is_finished() {
        proxy.cut();
        assert!(is_refused(proxy.port()));
        proxy.heal();
    }
    starter.join().unwrap();
}

#[test]
fn a_lost_answers_request_was_acted_on() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    let mut client = Client::open(proxy.port()).unwrap();
    proxy.lose_answer(2);
    assert_eq!(client.request("INCR k").unwrap(), ":1");
    assert!(client.is_cut_by("INCR k"));
    assert_eq!(server.cli(&["get", "k"]), "2");
    assert_eq!(request(proxy.port(), "INCR k"), ":3", "only one answer is lost");
}

#[test]
fn a_lost_answer_is_noticed_when_its_request_was_acted_on() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    let mut client = Client::open(proxy.port()).unwrap();
    assert_eq!(client.request("PING").unwrap(), "+PONG");
    proxy.lose_answer(1);
    server.pause();
    assert!(client.hears_nothing_of("INCR k"));
    server.resume();
    assert!(client.is_cut_by("INCR k"), "nothing more is passed on");
    assert_eq!(server.cli(&["get", "k"]), "1");
}

#[test]
fn a_cut_after_a_request_lets_it_through_and_nothing_else() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    let [mut client, mut other] = [(); 2].map(|()| Client::open(proxy.port()).unwrap());
    assert_eq!(other.request("PING").unwrap(), "+PONG");
    proxy.cut_after_request(1);
    assert!(client.is_cut_by("INCR k"));
    assert_eq!(server.cli(&["get", "k"]), "1");
    assert!(is_refused(proxy.port()), "an immediate reconnect is refused");
    assert!(other.is_cut_by("INCR k"));
    assert_eq!(server.cli(&["get", "k"]), "1");
    proxy.heal();
    assert_eq!(request(proxy.port(), "INCR k"), ":2");
}

#[test]
fn dropped_answers_leave_requests_and_connections_alone() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    let mut client = Client::open(proxy.port()).unwrap();
    proxy.drop_answers();
    assert!(client.hears_nothing_of("INCR k"));
    assert_eq!(server.cli(&["get", "k"]), "1");
    proxy.heal();
    assert_eq!(client.request("INCR k").unwrap(), ":2", "the same connection goes on");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the delay of a real proxy is measured")]
fn a_delay_is_felt_each_way() {
    let server = redis(Persistence::None);
    let proxy = FaultProxy::start(server.port());
    proxy.delay(Duration::from_millis(100));
    let began = Instant::now();
    assert_eq!(request(proxy.port(), "PING"), "+PONG");
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[test]
fn the_shared_cluster_has_three_masters() {
    let cluster = shared_cluster();
    let ports = ["a", "b", "c"].map(|key| cluster.master_of(key).port());
    assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[2] != ports[0], "{ports:?}");
    for (key, port) in ["a", "b", "c"].into_iter().zip(ports) {
        assert_eq!(cluster.cli(&["set", key, "v"]), "OK");
        assert_eq!(request(port, &format!("EXISTS {key}")), ":1");
        assert!(cluster.url().contains(&format!("127.0.0.1:{port}")));
    }
}

#[test]
fn a_dead_masters_replica_takes_its_place() {
    let cluster = RedisCluster::start(Replicas::OneEach);
    let mut client = Client::open(cluster.master_of("k").port()).unwrap();
    assert_eq!(client.request("SET k v").unwrap(), "+OK");
    assert_eq!(client.request("WAIT 1 20000").unwrap(), ":1", "the replica has it");
    let dead = cluster.kill_master_of("k");
    cluster.wait_for_failover("k");
    assert_ne!(cluster.master_of("k").port(), dead.port());
    assert_eq!(cluster.cli(&["get", "k"]), "v");
    dead.restart();
    wait_for("the old master follows the new one", || {
        dead.cli(&["info", "replication"]).contains("role:slave")
    });
}
