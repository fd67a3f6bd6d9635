//! The command line: golden transcripts of every help text and of the main flows, and the exit codes.
//! `UPDATE_GOLDEN=1 cargo test -p solvegate` rewrites them; review reads the diff.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use crate::support::{
    ClosedPort, Gateway, Process, Settings, Sim, WORKER, WORKER_TWO, command, run,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares with the file, or rewrites it.
fn matches_golden(name: &str, shown: &str) {
    let path = golden(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, shown).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, kept, "{} differs; UPDATE_GOLDEN=1 rewrites it", path.display());
}

/// An address without a listener, in the transcripts.
const NOWHERE: &str = "127.0.0.1:1";

/// Runs commands one after the other; replaces ids and times, which differ from run to run.
fn transcript(dir: &Path, commands: &[&str], environment: &[(&str, &str)]) -> String {
    let closed = ClosedPort::hold();
    let nowhere = format!("127.0.0.1:{}", closed.port());
    let mut text = String::new();
    for command in commands {
        let really = command.replace(NOWHERE, &nowhere);
        let args: Vec<_> = really.split(' ').collect();
        let output = run(dir, &args, environment);
        writeln!(text, "$ solvegate {command}").unwrap();
        text.push_str(&output.stdout);
        text.push_str(&output.stderr);
        writeln!(text, "[exit {}]\n", output.code.unwrap()).unwrap();
    }
    let text = text.replace(&nowhere, NOWHERE);
    text.split_inclusive(char::is_whitespace).map(worded).collect()
}

fn worded(word: &str) -> String {
    let (core, space) = word.split_at(word.trim_end().len());
    let number = core.strip_prefix('s').unwrap_or(core);
    let is_id = number.len() == 15 && number.bytes().all(|b| b.is_ascii_digit());
    let is_time = core.len() == 24 && core.ends_with('Z') && core.contains('T');
    let stands = match core {
        _ if is_id => "ID",
        _ if is_time => "TIME",
        _ if core.starts_with("SIM.") => "TOKEN",
        _ => core,
    };
    format!("{stands}{space}")
}

#[test]
fn every_help_text_matches_its_golden_file() {
    let dir = tempfile::tempdir().unwrap();
    let commands = [
        "",
        "serve",
        "solve",
        "batch",
        "fetch",
        "feedback",
        "kinds",
        "sim",
        "history",
        "active",
        "stats",
        "report",
        "reconcile",
        "what-if",
        "dead-letters",
        "dead-letters list",
        "dead-letters show",
        "dead-letters revive",
        "dead-letters purge",
        "pools",
        "pools list",
        "pools expect",
        "pools set",
        "pools close",
        "pause",
        "resume",
        "explain",
        "retry-table",
        "sites",
        "sites list",
        "sites check",
        "balance",
        "doctor",
        "store",
        "store migrate",
        "config",
        "config schema",
        "completions",
    ];
    for command in commands {
        let mut args: Vec<_> = command.split(' ').filter(|word| !word.is_empty()).collect();
        args.push("--help");
        let output = run(dir.path(), &args, &[]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let name = if command.is_empty() { "solvegate".into() } else { command.replace(' ', "-") };
        matches_golden(&format!("help/{name}.txt"), &output.stdout);
    }
}

#[test]
fn sites_are_listed_and_checked_offline() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        "[[site]]\nhost = \"*.example.com\"\nbasis = \"own shops\"\nexpires = \"2099-12-31\"\n";
    fs::write(
        dir.path().join("solvegate.toml"),
        format!("[upstream]\nurl = \"http://127.0.0.1:1\"\nkey = \"env:K\"\n{file}"),
    )
    .unwrap();
    let commands = [
        "sites list",
        "sites check https://shop.example.com/a#b",
        "sites check https://shop.example.com/ --json",
        "sites check https://example.com/",
        "sites check https://shop.example.com@evil.example/",
    ];
    matches_golden("sites.txt", &transcript(dir.path(), &commands, &[("K", "x")]));
}

/// Commands that are refused, each with its remedy.
const REFUSED: [&str; 45] = [
    "serve --config typo.toml",
    "serve --config type.toml",
    "serve --config slots.toml",
    "serve --config greedy.toml",
    "serve --config open.toml",
    "serve --config unpriced.toml",
    "serve --config unpriced_account.toml",
    "serve --config missing.toml",
    "serve --store redis://",
    "serve --store redis://127.0.0.1?prefix=Shop",
    "serve --store dynamodb:a",
    "serve --listen 127.0.0.1:0 --store dynamodb:somewhere?endpoint=http://127.0.0.1:1",
    "store migrate --print terraform --provisioned 5 --store dynamodb:shop",
    "serve --store postgres://somewhere?schema=Shop",
    "serve --listen 127.0.0.1:0 --store postgres://nobody:geheim@127.0.0.1:1/shop",
    "serve --listen 127.0.0.1:0 --store env:DATABASE",
    "store migrate --store memory:",
    "solve --kind turnstile --store memory: --sitekey a --pageurl https://not-declared.test/",
    "solve --kind turnstile --store memory: --sitekey a --pageurl ftp://shop.example.com/",
    "solve --kind image --store memory:",
    "solve --kind turnstile --store memory: --pageurl https://shop.example.com/",
    "solve --kind turnstile --store memory: --sitekey slow-a --pageurl https://shop.example.com/ --deadline 1s",
    "history --server http://127.0.0.1:1 --key abc",
    "history --server http://127.0.0.1:1 --key env:K",
    "history --server http://127.0.0.1:1 --key env:NOT_SET",
    "serve --upstream https://user:geheim@ocr.example.com",
    "serve --upstream https://ocr.example.com/?key=geheim",
    "sim --key geheim",
    "serve --store redis://cache:6379",
    "serve --store memory: --ledger postgres://db/history?sslmode=require",
    "serve --store dynamodb:shop?endpoint=http://10.0.0.1:8000",
    "history --server http://127.0.0.1:1",
    "explain 123456789012345 --store memory:",
    "explain ../../x --store memory:",
    "retry-table --config deadly.toml",
    "serve --config unsigned.toml --listen 127.0.0.1:0",
    "dead-letters revive --store memory:",
    "dead-letters purge --store memory:",
    "dead-letters revive --store memory: --all --kind image",
    "dead-letters purge s123456789012345 --all --store memory:",
    "dead-letters revive s123456789012345 --store memory:",
    "dead-letters purge s123456789012345 --store memory:",
    "dead-letters revive --all --rate 0/s --store memory:",
    "dead-letters revive --all --store memory:",
    "frobnicate",
];

#[test]
fn errors_name_the_remedy_and_have_stable_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("typo.toml"), "[upstream]\nslot = 3\n").unwrap();
    fs::write(dir.path().join("type.toml"), "[upstream]\nsubmits_per_second = \"many\"\n").unwrap();
    fs::write(dir.path().join("open.toml"), "listen = \"0.0.0.0:1\"\n").unwrap();
    fs::write(
        dir.path().join("deadly.toml"),
        "[retry.codes]\nERROR_ZERO_BALANCE = { class = \"permanent\" }\n",
    )
    .unwrap();
    fs::write(dir.path().join("unsigned.toml"), "[callbacks]\nhosts = [\"a/b\"]\n").unwrap();
    fs::write(dir.path().join("slots.toml"), "[upstream]\nslots = 0\n").unwrap();
    fs::write(
        dir.path().join("greedy.toml"),
        "[[worker]]\nname = \"a\"\nkey = \"env:K\"\npriority = 101\n",
    )
    .unwrap();
    let site = "[[site]]\nhost = \"shop.example.com\"\nbasis = \"own\"\n";
    let upstream = "[upstream]\nurl = \"http://127.0.0.1:1\"\nkey = \"env:K\"\n";
    let worker = "[[worker]]\nname = \"a\"\nkey = \"env:W\"\nbudget = { cost_per_day = 1.0 }\n";
    fs::write(dir.path().join("unpriced.toml"), format!("{upstream}{worker}{site}")).unwrap();
    let account = "price_per_1000 = { turnstile = 1.45 }\nbudget = { cost_per_month = 20.0 }\n";
    fs::write(dir.path().join("unpriced_account.toml"), format!("{upstream}{account}{site}"))
        .unwrap();
    let database = "postgres://nobody:geheim@127.0.0.1:1/shop";
    let environment = [("K", WORKER), ("W", WORKER_TWO), ("DATABASE", database)];
    matches_golden("trouble.txt", &transcript(dir.path(), &REFUSED, &environment));
}

#[test]
fn an_unsolvable_challenge_ends_with_exit_code_one_and_is_found_among_the_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    let commands = [
        "solve --kind image --image picture.png",
        "solve --kind turnstile --sitekey unsolvable-a --pageurl https://shop.example.com/",
        "dead-letters list",
        "active",
    ];
    fs::write(dir.path().join("picture.png"), b"not really a picture").unwrap();
    let shown = transcript(dir.path(), &commands, &[]);
    assert!(shown.contains("ERROR_CAPTCHA_UNSOLVABLE"), "{shown}");
    assert_eq!(shown.matches("[exit 0]").count(), 3, "{shown}");
    assert_eq!(shown.matches("[exit 1]").count(), 1, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_use_a_running_gateway_and_report_a_locked_directory() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::with(dir.path(), &sim, &Settings::default());
    let environment = [("SOLVEGATE_SERVER", &*gateway.base), ("SOLVEGATE_KEY", WORKER)];
    let page = "https://shop.example.com/";
    let args = ["solve", "--kind", "turnstile", "--sitekey", "a", "--pageurl", page, "--json"];
    let solved = run(dir.path(), &args, &environment);
    let answer: serde_json::Value = serde_json::from_str(&solved.stdout).unwrap();
    assert_eq!(answer["state"], "served");
    let id = answer["id"].as_str().unwrap();
    let explained = run(dir.path(), &["explain", id], &environment);
    for word in ["opened", "intent", "accepted", "ready", "allotted", "own shop, tests"] {
        assert!(explained.stdout.contains(word), "{word} is not in\n{}", explained.stdout);
    }
    let history = run(dir.path(), &["history", "--json"], &environment);
    let history: serde_json::Value = serde_json::from_str(&history.stdout).unwrap();
    assert_eq!(history["items"][0]["id"], id);
    let locked = run(dir.path(), &["history"], &[]);
    assert_eq!(locked.code, Some(3));
    assert!(locked.stderr.contains("--server"), "{}", locked.stderr);
}

#[test]
fn a_self_signed_gateway_is_trusted_by_its_certificate_and_by_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--tls-self-signed"];
    let gateway = Process::start(command(dir.path(), &serve));
    let base = gateway.line_after("is listening on ");
    assert!(base.starts_with("https://"), "{base}");
    let key = &*gateway.key_in_file(dir.path(), "admin key:");
    let ask = ["balance", "--server", &base];
    let environment = [("SOLVEGATE_KEY", key)];
    let refused = run(dir.path(), &ask, &environment);
    assert_eq!(refused.code, Some(3), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("pass --cacert"), "{}", refused.stderr);
    let plain = base.replace("https://", "http://");
    let refused = run(dir.path(), &["balance", "--server", &plain], &environment);
    assert_eq!(refused.code, Some(3), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("speaks TLS: use https://"), "{}", refused.stderr);
    let trusting = [&ask[..], &["--cacert", "solvegate-data/tls-cert.pem"]].concat();
    let balance = run(dir.path(), &trusting, &environment);
    assert_eq!((balance.code, balance.stdout.trim()), (Some(0), "1000"), "{}", balance.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_tls_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let secure = gateway.base.replace("http://", "https://");
    let environment = [("SOLVEGATE_KEY", WORKER)];
    let refused = run(dir.path(), &["balance", "--server", &secure], &environment);
    assert_eq!(refused.code, Some(3), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("does not speak TLS: use http://"), "{}", refused.stderr);
}

#[test]
fn a_second_start_says_where_both_keys_are_and_the_first_command_has_an_idempotency_key() {
    let dir = tempfile::tempdir().unwrap();
    let banner = || {
        let gateway = Process::start(command(dir.path(), &["serve", "--listen", "127.0.0.1:0"]));
        gateway.line_after("real key:");
        gateway.stdout()
    };
    let first = banner();
    assert_eq!(first.matches("   (new").count(), 2, "{first}");
    assert!(first.contains("-H 'Idempotency-Key: order-1'"), "{first}");
    let second = banner();
    for file in ["worker.key.sha256", "admin.key.sha256"] {
        assert!(second.contains(file), "{second}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // Like `| head`: the read end is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(dir.path(), &["retry-table"]).stdout(writer).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn the_schema_of_the_configuration_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run(dir.path(), &["config", "schema"], &[]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let schema: serde_json::Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(schema["properties"]["listen"]["default"], "127.0.0.1:8402");
}

#[test]
fn completions_are_printed_for_every_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(dir.path(), &["completions", shell], &[]);
        assert!(script.code == Some(0) && script.stdout.contains("dead-letters"), "{shell}");
    }
}
