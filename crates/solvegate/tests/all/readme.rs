//! Runs the commands in the documents. Blocks marked `<!-- run -->` have `$ ` lines; the lines below each must be in its
//! output. `curl` and the two keys that a reader copies from the first start are emulated here.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use rustix::process::Signal;
use solvegate::client::{Call, Remote};

use crate::support::{Process, command, program, read_key, run, wall_clock};

/// The default port of a gateway, and that of a second one.
const GATEWAYS: [&str; 2] = ["8402", "8403"];
const REDIS: &str = "6379";
const DYNAMODB: &str = "8000";

/// The default listening address.
const LISTEN: &str = "SOLVEGATE_LISTEN";
const ANY: &str = "127.0.0.1:0";

/// How many times a server that cannot choose its port is started on another one, because another process took the port
/// first.
const STARTS: usize = 5;

/// A command and the expected output.
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The steps of every marked block.
fn blocks(document: &str) -> Vec<Vec<Step>> {
    let marked = document.split("<!-- run -->\n```console\n").skip(1);
    marked.map(|rest| steps(rest.split("```").next().unwrap())).collect()
}

/// The ports used instead of those in the documents, which may be in use on this machine.
struct Ports(BTreeMap<&'static str, u16>);

impl Ports {
    /// Gateways choose their ports when they start.
    fn new() -> Self {
        Self(GATEWAYS.map(|port| (port, 0)).into())
    }

    /// Replaces the ports in one pass, because a new port may equal another port of the documents.
    fn put(&self, text: &str) -> String {
        let mut done = String::new();
        let mut rest = text;
        let first =
            |rest: &str| self.0.keys().filter_map(|port| Some((rest.find(port)?, *port))).min();
        while let Some((at, port)) = first(rest) {
            done.push_str(&rest[..at]);
            done.push_str(&self.0[port].to_string());
            rest = &rest[at + port.len()..];
        }
        done + rest
    }
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.into(), expected: Vec::new() }),
            None => {
                steps.last_mut().expect("a block begins with a command").expected.push(line.into());
            }
        }
    }
    steps
}

/// The keys that the first start makes.
type Keys = Vec<(&'static str, String)>;

fn copied(dir: &Path, said: &str) -> Keys {
    let key = |name, start| {
        let mut lines = said.lines().filter(|line| line.contains("(new; "));
        Some((name, read_key(dir, lines.find_map(|line| line.strip_prefix(start))?)))
    };
    [key("WORKER_KEY", "worker key:"), key("ADMIN_KEY", "admin key:")]
        .into_iter()
        .flatten()
        .collect()
}

/// Splits like a shell; quotes group, and `$NAME` is the key of that name.
fn words(keys: &Keys, command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().unwrap().push(c),
        }
    }
    let substituted = |word: String| {
        keys.iter().fold(word, |word, (name, key)| word.replace(&format!("${name}"), key))
    };
    words.into_iter().map(substituted).collect()
}

/// Sends the request of the `curl` line and returns the answer.
async fn curl(words: &[String]) -> String {
    let mut call = None;
    let (mut headers, mut url) = (Vec::new(), String::new());
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-s" => {}
            "-H" => headers.push(rest.next().unwrap().split_once(": ").unwrap()),
            "-d" => call = Some(serde_json::from_str(rest.next().unwrap()).unwrap()),
            address => address.clone_into(&mut url),
        }
    }
    let bearer = headers.iter().find(|(name, _)| *name == "Authorization").unwrap().1;
    let key = domain::secret::Secret::new(bearer.strip_prefix("Bearer ").unwrap());
    let path = format!("/{}", url.splitn(4, '/').nth(3).unwrap());
    let mut call = call.map_or_else(|| Call::get(&path), |body| Call::post(&path, body));
    for (name, value) in headers {
        match name {
            "Prefer" => call = call.header("prefer", value),
            "Idempotency-Key" => call = call.header("idempotency-key", value),
            "Authorization" | "Content-Type" => {}
            other => panic!("a document sends {other}, which this test does not know"),
        }
    }
    let remote = Remote::new(&url, key, None).unwrap();
    let reply = remote.send(&call.waiting(Duration::from_secs(60))).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.body);
    reply.body.to_string()
}

/// A gateway in the background, and its port; its first lines are its output.
fn serve(dir: &Path, words: &[String]) -> (Process, u16) {
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = command(dir, &args);
    command.env(LISTEN, ANY);
    let process = Process::start(command);
    process.line_after("status page:");
    let port = process.line_after("is listening on http://127.0.0.1:").parse().unwrap();
    (process, port)
}

/// A server that cannot choose its port, on a free one.
fn server(command: impl Fn(u16) -> Command, says: &str) -> (Process, u16) {
    for _ in 0..STARTS {
        let port = store_tests::servers::free_port();
        let process = Process::start(command(port));
        if process.try_line_after(says).is_some() {
            return (process, port);
        }
    }
    panic!("a server ended {STARTS} times before it said {says:?}")
}

fn redis(dir: &Path, words: &[String]) -> Command {
    let mut command = program(dir, "redis-server");
    command.args(words).args(["--bind", "127.0.0.1"]);
    command
}

fn dynoxide(dir: &Path, words: &[String]) -> Command {
    let mut command = program(dir, "sh");
    // The same library in a program built with the tests, whose output goes to stderr.
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(store_tests::servers::dynamodb_server());
    command.args(words);
    command
}

/// The file that the README shows.
fn csv_of_the_readme() -> String {
    let readme = include_str!("../../../../README.md");
    let shown = readme.split_once("```csv\n").and_then(|(_, rest)| rest.split_once("```"));
    shown.expect("the README shows a batch").0.to_owned()
}

/// Runs one block, in its own directory.
struct Reader {
    dir: tempfile::TempDir,
    ports: Ports,
    keys: Keys,
    running: Vec<Process>,
}

impl Reader {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("picture.png"), b"any bytes do for the simulator").unwrap();
        fs::write(dir.path().join("orders.csv"), csv_of_the_readme()).unwrap();
        Self { dir, ports: Ports::new(), keys: Keys::new(), running: Vec::new() }
    }

    fn words(&self, ports: &Ports, command: &str) -> Vec<String> {
        let mut words = words(&self.keys, &ports.put(command));
        words.retain(|word| word != "&");
        words
    }

    /// Starts a background process and returns its first output.
    fn start(&mut self, command: &str) -> String {
        let dir = self.dir.path();
        let words = self.words(&self.ports, command);
        let on = |port: &'static str, free: u16| Ports(BTreeMap::from([(port, free)]));
        let (written, (process, port)) = match words[0].as_str() {
            "solvegate" => {
                let written = GATEWAYS.into_iter().rfind(|port| command.contains(port));
                (written.unwrap_or(GATEWAYS[0]), serve(dir, &words[1..]))
            }
            "redis-server" => {
                let command = |free| redis(dir, &self.words(&on(REDIS, free), command)[1..]);
                (REDIS, server(command, "Ready to accept connections"))
            }
            "dynoxide" => {
                let command = |free| dynoxide(dir, &self.words(&on(DYNAMODB, free), command)[1..]);
                (DYNAMODB, server(command, "istening"))
            }
            other => panic!("a document starts {other}, which this test does not know"),
        };
        self.ports.0.insert(written, port);
        let said = process.stdout();
        self.keys.extend(copied(self.dir.path(), &said));
        self.running.push(process);
        said
    }

    /// Runs the binary to its end.
    fn run(&self, command: &str) -> String {
        let words = self.words(&self.ports, command);
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let keys = self.keys.iter().map(|(name, key)| (*name, key.as_str()));
        let environment: Vec<_> = keys.chain([(LISTEN, ANY)]).collect();
        let output = run(self.dir.path(), &args, &environment);
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
        output.stdout
    }

    /// Runs a command and compares its output.
    async fn take(&mut self, Step { command, expected }: &Step) -> Result<(), String> {
        let output = match command.split(' ').next() {
            _ if command.ends_with(" &") => self.start(command),
            Some("curl") => curl(&self.words(&self.ports, command)[1..]).await,
            Some("solvegate") => self.run(command),
            other => panic!("a document runs {other:?}, which this test does not know"),
        };
        assert!(!expected.is_empty(), "what does {command} show?");
        let missing =
            expected.iter().map(|line| self.ports.put(line)).find(|line| !output.contains(line));
        missing.map_or(Ok(()), |line| Err(format!("{command}\nexpected {line}\ngot {output}")))
    }

    /// Ends processes in reverse order, so that a gateway can release its store.
    fn end(self) {
        for mut process in self.running.into_iter().rev() {
            process.signal(Signal::TERM);
            assert_eq!(process.wait().code(), Some(0));
        }
    }
}

async fn read(steps: &[Step]) -> Result<(), String> {
    let mut reader = Reader::new();
    for step in steps {
        reader.take(step).await?;
    }
    reader.end();
    Ok(())
}

/// `solvegate stats` shows a day, and midnight may pass in between: then the block runs again.
async fn read_within_a_day(steps: &[Step]) {
    let day = wall_clock().day();
    if let Err(what) = read(steps).await {
        assert_ne!(wall_clock().day(), day, "{what}");
        read(steps).await.unwrap();
    }
}

/// Runs a document with this many marked blocks.
async fn read_all(document: &str, count: usize) {
    let blocks = blocks(document);
    assert_eq!(blocks.len(), count, "the marks changed");
    for steps in blocks {
        read_within_a_day(&steps).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_of_the_readme_does_what_it_says() {
    read_all(include_str!("../../../../README.md"), 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_about_doctor_does_what_it_says() {
    read_all(include_str!("../../../../docs/doctor.md"), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_about_dynamodb_does_what_it_says() {
    read_all(include_str!("../../../../docs/stores/dynamodb.md"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_about_the_ledger_does_what_it_says() {
    read_all(include_str!("../../../../docs/stores/ledger.md"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_about_reconciliation_does_what_it_says() {
    read_all(include_str!("../../../../docs/reconcile.md"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_about_redis_does_what_it_says() {
    read_all(include_str!("../../../../docs/stores/redis.md"), 2).await;
}
