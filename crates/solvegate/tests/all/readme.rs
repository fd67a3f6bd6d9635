//! The commands in the documents are run. Blocks marked `<!-- run -->` hold `$ ` lines; the lines below each must be in
//! its output. `curl` and the two keys a person copies from the first start are understood here.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use rustix::process::Signal;
use solvegate::client::{Call, Remote};

use crate::support::{Process, command, run};

/// The documents, and how many marked blocks each has.
const DOCUMENTS: [(&str, &str, usize); 5] = [
    ("README.md", include_str!("../../../../README.md"), 5),
    ("docs/doctor.md", include_str!("../../../../docs/doctor.md"), 2),
    ("docs/stores/dynamodb.md", include_str!("../../../../docs/stores/dynamodb.md"), 1),
    ("docs/stores/ledger.md", include_str!("../../../../docs/stores/ledger.md"), 1),
    ("docs/stores/redis.md", include_str!("../../../../docs/stores/redis.md"), 2),
];

/// The ports in the documents; free ones take their places.
const PORTS: [&str; 4] = ["8402", "8403", "6379", "8000"];

/// Where a gateway listens when its command line does not say: not on the usual port, which somebody may have.
const LISTEN: &str = "SOLVEGATE_LISTEN";

/// One command and what its output must contain.
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The steps of every marked block.
fn blocks(document: &str) -> Vec<Vec<Step>> {
    let marked = document.split("<!-- run -->\n```console\n").skip(1);
    marked.map(|rest| steps(rest.split("```").next().unwrap())).collect()
}

/// A text with free ports in it.
struct Ports(BTreeMap<&'static str, u16>);

impl Ports {
    fn free() -> Self {
        let held = PORTS.map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = held.iter().map(|listener| listener.local_addr().unwrap().port());
        Self(PORTS.into_iter().zip(ports).collect())
    }

    fn put(&self, text: &str) -> String {
        self.0.iter().fold(text.into(), |text, (port, free)| text.replace(port, &free.to_string()))
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

/// The keys as a person copies them from what the first start says.
type Keys = Vec<(&'static str, String)>;

fn copied(said: &str) -> Keys {
    let key = |name, start| {
        let mut lines = said.lines().filter(|line| line.contains("(made now, shown once)"));
        let line = lines.find_map(|line| line.strip_prefix(start))?;
        Some((name, line.split_whitespace().next()?.to_owned()))
    };
    [key("WORKER_KEY", "worker key:"), key("ADMIN_KEY", "admin key:")]
        .into_iter()
        .flatten()
        .collect()
}

/// Words as a shell would split them; quotes group, `$NAME` is the key of that name.
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

/// Sends what the `curl` line says and returns the answer's text.
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

/// A gateway in the background; its first lines are its output.
fn serve(dir: &Path, words: &[String], listen: &str) -> (Process, String) {
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = command(dir, &args);
    command.env(LISTEN, listen);
    let process = Process::start(command);
    process.line_after("status page:");
    let said = process.stdout();
    (process, said)
}

/// Another program in the background, until it says that it is there.
fn redis(dir: &Path, words: &[String]) -> (Process, String) {
    let mut command = Command::new("redis-server");
    command.args(words).args(["--bind", "127.0.0.1"]).current_dir(dir);
    let process = Process::start(command);
    process.line_after("Ready to accept connections");
    let said = process.stdout();
    (process, said)
}

fn dynoxide(dir: &Path, words: &[String]) -> (Process, String) {
    let mut command = Command::new("sh");
    // What it says goes to the other stream.
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(store_tests::servers::dynoxide());
    command.args(words).current_dir(dir);
    let process = Process::start(command);
    process.line_after("istening");
    let said = process.stdout();
    (process, said)
}

/// One block, in a directory of its own.
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
        Self { dir, ports: Ports::free(), keys: Keys::new(), running: Vec::new() }
    }

    async fn take(&mut self, step: Step) {
        let mut words = words(&self.keys, &self.ports.put(&step.command));
        let is_background = words.last().is_some_and(|word| word == "&");
        words.retain(|word| word != "&");
        let dir = self.dir.path();
        let listen = self.ports.put("127.0.0.1:8402");
        let output = match (words[0].as_str(), is_background) {
            ("curl", false) => curl(&words[1..]).await,
            ("redis-server", true) => self.keep(redis(dir, &words[1..])),
            ("dynoxide", true) => self.keep(dynoxide(dir, &words[1..])),
            ("solvegate", true) => {
                let said = self.keep(serve(dir, &words[1..], &listen));
                self.keys.extend(copied(&said));
                said
            }
            ("solvegate", false) => {
                let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
                let keys = self.keys.iter().map(|(name, key)| (*name, key.as_str()));
                let environment: Vec<_> = keys.chain([(LISTEN, &*listen)]).collect();
                let output = run(dir, &args, &environment);
                assert_eq!(output.code, Some(0), "{}: {}", step.command, output.stderr);
                output.stdout
            }
            (other, _) => panic!("a document runs {other}, which this test does not know"),
        };
        assert!(!step.expected.is_empty(), "what does {} show?", step.command);
        for expected in step.expected {
            let expected = self.ports.put(&expected);
            let command = &step.command;
            assert!(output.contains(&expected), "{command}\nexpected {expected}\ngot {output}");
        }
    }

    fn keep(&mut self, (process, said): (Process, String)) -> String {
        self.running.push(process);
        said
    }

    /// What was started last ends first: a gateway lets go of its store while that is there.
    fn end(self) {
        for mut process in self.running.into_iter().rev() {
            process.signal(Signal::TERM);
            assert_eq!(process.wait(Duration::from_secs(25)).code(), Some(0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_of_the_documents_does_what_it_says() {
    for (name, document, count) in DOCUMENTS {
        let blocks = blocks(document);
        assert_eq!(blocks.len(), count, "the marks in {name} changed");
        for steps in blocks {
            let mut reader = Reader::new();
            for step in steps {
                reader.take(step).await;
            }
            reader.end();
        }
    }
}
