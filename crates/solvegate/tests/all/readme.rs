//! The commands in README.md are run. Blocks marked `<!-- run -->` hold `$ ` lines; the line below each must be in
//! its output. `curl` and the two keys a person copies from the first start are understood here, so that no tool has
//! to be installed for it.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use solvegate::client::{Call, Remote};

use crate::support::{Process, command, run};

const README: &str = include_str!("../../../../README.md");

/// The address in the document; a free port takes its place.
const ADDRESS: &str = "127.0.0.1:8402";

/// One command and what its output must contain.
struct Step {
    command: String,
    expected: String,
}

/// The steps of every marked block.
fn blocks() -> Vec<Vec<Step>> {
    let marked = README.split("<!-- run -->\n```console\n").skip(1);
    marked.map(|rest| steps(rest.split("```").next().unwrap())).collect()
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.into(), expected: String::new() }),
            None => steps.last_mut().expect("a block begins with a command").expected = line.into(),
        }
    }
    steps
}

/// The keys as a person copies them from what the first start says.
type Keys = Vec<(&'static str, String)>;

fn copied(said: &str) -> Keys {
    let key = |start| {
        let line = said.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    vec![("WORKER_KEY", key("worker key:")), ("ADMIN_KEY", key("admin key:"))]
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
            other => panic!("README.md sends {other}, which this test does not know"),
        }
    }
    let remote = Remote::new(&url, key, None).unwrap();
    let reply = remote.send(&call.waiting(Duration::from_secs(60))).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.body);
    reply.body.to_string()
}

/// A gateway in the background; its first line is its output.
fn serve(dir: &Path, words: &[String], address: &str) -> (Process, String) {
    let mut args: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| *word != "&").collect();
    args.extend(["--listen", address]);
    let process = Process::start(command(dir, &args));
    process.line_after("status page:");
    let said = process.stdout();
    (process, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_marked_command_of_the_readme_does_what_it_says() {
    let blocks = blocks();
    assert_eq!(blocks.len(), 4, "the marks in README.md changed");
    for steps in blocks {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("picture.png"), b"any bytes do for the simulator").unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        let mut serving = None;
        let mut keys = Keys::new();
        for step in steps {
            let words = words(&keys, &step.command.replace(ADDRESS, &address));
            let output = match words[0].as_str() {
                "curl" => curl(&words[1..]).await,
                "solvegate" if words.last().is_some_and(|word| word == "&") => {
                    let (process, said) = serve(dir.path(), &words[1..], &address);
                    serving = Some(process);
                    keys = copied(&said);
                    said
                }
                "solvegate" => {
                    let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
                    let environment: Vec<_> =
                        keys.iter().map(|(name, key)| (*name, key.as_str())).collect();
                    let output = run(dir.path(), &args, &environment);
                    assert_eq!(output.code, Some(0), "{}: {}", step.command, output.stderr);
                    output.stdout
                }
                other => panic!("README.md runs {other}, which this test does not know"),
            };
            let expected = step.expected.replace(ADDRESS, &address);
            assert!(!expected.is_empty(), "what does {} show?", step.command);
            assert!(
                output.contains(&expected),
                "{}\nexpected {expected}\ngot {output}",
                step.command
            );
        }
        if let Some(mut process) = serving {
            process.signal(Signal::TERM);
            assert_eq!(process.wait(Duration::from_secs(25)).code(), Some(0));
        }
    }
}
