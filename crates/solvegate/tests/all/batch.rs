//! `solvegate batch` against the real gateway: killed in the middle and run again, and in one process. The judge is the
//! simulator's ledger.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Gateway, Process, Settings, Sim, WORKER, command, eventually, run};

const MIB: u64 = 1024 * 1024;

/// The ten thousand take half a minute.
#[expect(clippy::disallowed_methods, reason = "the environment sets the length of the test")]
fn size() -> usize {
    if std::env::var("SOLVEGATE_LONG").is_ok() { 10_000 } else { 1_000 }
}

fn write_input(dir: &Path, count: usize) {
    let line = |n: usize| {
        format!(
            "{{\"id\":\"order-{n}\",\"kind\":\"turnstile\",\"sitekey\":\"0x{n}\",\
             \"pageurl\":\"https://shop.example.com/\"}}\n"
        )
    };
    fs::write(dir.join("in.ndjson"), (1..=count).map(line).collect::<String>()).unwrap();
}

fn client(dir: &Path, gateway: &Gateway) -> Process {
    let args = ["batch", "in.ndjson", "--out", "out.ndjson", "--server", &gateway.base];
    let mut command = command(dir, &args);
    command.env("SOLVEGATE_KEY", WORKER);
    Process::start(command)
}

fn answers(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("out.ndjson")).unwrap_or_default();
    // A line that is being written is none yet.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn until_answered(dir: &Path, count: usize) {
    eventually("lines are answered", async || (answers(dir).len() >= count).then_some(())).await;
}

/// Every line has one answer, with its own number, id and token.
fn judge(dir: &Path, count: usize) {
    let answers = answers(dir);
    assert_eq!(answers.len(), count);
    let mut tokens = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for answer in &answers {
        let line = answer["line"].as_u64().unwrap();
        assert_eq!(answer["id"], format!("order-{line}"), "{answer}");
        tokens.insert(answer["solve"]["token"].as_str().unwrap_or_else(|| panic!("{answer}")));
        lines.insert(line);
    }
    assert_eq!((tokens.len(), lines.len()), (count, count));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_client_is_killed_again_and_again_pays_for_each_line_once() {
    let (dir, count) = (tempfile::tempdir().unwrap(), size());
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    write_input(dir.path(), count);
    for part in 1..=3 {
        let mut client = client(dir.path(), &gateway);
        until_answered(dir.path(), count * part / 5).await;
        let memory = client.memory("VmHWM");
        assert!(memory < 64 * MIB, "{memory} bytes for the client");
        client.signal(Signal::KILL);
        client.wait();
        // The line that the kill cut off.
        let out = dir.path().join("out.ndjson");
        fs::OpenOptions::new()
            .append(true)
            .open(out)
            .unwrap()
            .write_all(b"{\"line\":1,\"i")
            .unwrap();
    }
    let mut last = client(dir.path(), &gateway);
    assert_eq!(last.wait().code(), Some(0), "{}", last.stderr());
    judge(dir.path(), count);
    assert_eq!(sim.charges().await, count, "paid once each");
    let memory = gateway.process.memory("VmHWM");
    assert!(memory < 192 * MIB, "{memory} bytes for the gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_goes_on_after_its_gateway_was_killed() {
    let (dir, count) = (tempfile::tempdir().unwrap(), size());
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    write_input(dir.path(), count);
    let mut gateway = Gateway::start(dir.path(), &sim);
    let mut broken = client(dir.path(), &gateway);
    until_answered(dir.path(), count / 3).await;
    gateway.process.signal(Signal::KILL);
    gateway.process.wait();
    assert_eq!(broken.wait().code(), Some(3), "{}", broken.stderr());
    assert!(broken.stderr().contains("run the same command again"), "{}", broken.stderr());
    assert!(answers(dir.path()).len() < count);

    let gateway = Gateway::start(dir.path(), &sim);
    let days = gateway.days().await;
    let mut again = client(dir.path(), &gateway);
    assert_eq!(again.wait().code(), Some(0), "{}", again.stderr());
    judge(dir.path(), count);
    // A submission that the kill cut off may be paid for and is authorised once more; everything else is paid once.
    let ambiguous = usize::try_from(days.sum("ambiguous").await).unwrap();
    let charges = sim.charges().await;
    assert!(charges <= count + ambiguous, "{charges} charges, {ambiguous} of them ambiguous");
}

#[test]
fn csv_and_json_lines_are_solved_in_this_process() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("scan.png"), b"\x89PNG a picture").unwrap();
    let csv = "id,kind,sitekey,pageurl,image_file,action\n\
               scan-1,image,,,scan.png,\n\
               login-1,recaptcha_v3,6Le-wvkS,https://shop.example.com/,,login\n\
               typo-1,turnstyle,0x4A,https://shop.example.com/,,\n\
               gone-1,image,,,none.png,\n";
    fs::write(dir.path().join("in.csv"), csv).unwrap();
    let args = ["batch", "in.csv", "--out", "out.ndjson"];
    let with_shop = [("SOLVEGATE_UPSTREAM__URL", "sim")];
    fs::write(
        dir.path().join("solvegate.toml"),
        "[[site]]\nhost = \"shop.example.com\"\nbasis = \"own shop\"\n[images]\nbasis = \"own forms\"\n",
    )
    .unwrap();
    let first = run(dir.path(), &args, &with_shop);
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert!(first.stderr.contains("2 served, 2 failed"), "{}", first.stderr);
    assert!(first.stderr.contains("2 lines failed"), "{}", first.stderr);
    let mut brief: Vec<_> = answers(dir.path()).iter().map(brief).collect();
    brief.sort();
    let expected = [
        "2 \"scan-1\" 200 null",
        "3 \"login-1\" 200 null",
        "4 \"typo-1\" 400 \"unknown kind or method \\\"turnstyle\\\", did you mean \\\"turnstile\\\"?",
        "5 null 400 \"cannot read none.png: No such file",
    ];
    for (brief, expected) in brief.iter().zip(expected) {
        assert!(brief.starts_with(expected), "{brief}");
    }
    fs::write(dir.path().join("none.png"), b"\x89PNG another").unwrap();
    let second = run(dir.path(), &args, &with_shop);
    assert!(second.stderr.contains("1 served, 1 failed, 2 kept"), "{}", second.stderr);
    assert_eq!(answers(dir.path()).len(), 4, "one answer for each line");
}

/// Whichever run answers a line, the first line with an id has the answer and the others are refused.
#[test]
fn an_id_on_two_lines_is_refused_in_the_first_run_and_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let csv = "id,kind,sitekey,pageurl\n\
               a,turnstile,0x1,https://shop.example.com/\n\
               a,turnstile,0x2,https://shop.example.com/\n\
               b,turnstile,0x1,https://shop.example.com/\n\
               a,turnstile,0x1,https://shop.example.com/\n";
    fs::write(dir.path().join("in.csv"), csv).unwrap();
    let args = ["batch", "in.csv", "--out", "out.ndjson"];
    for said in ["2 served, 2 failed", "0 served, 2 failed, 2 kept from before"] {
        let output = run(dir.path(), &args, &[]);
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains(said), "{}", output.stderr);
        let mut lines: Vec<_> = answers(dir.path())
            .iter()
            .map(|answer| (answer["line"].as_u64(), answer["status"].as_u64()))
            .collect();
        lines.sort_unstable();
        let expected = [(2, 200), (3, 400), (4, 200), (5, 400)];
        assert_eq!(lines, expected.map(|(line, status)| (Some(line), Some(status))));
        let refused = answers(dir.path()).into_iter().find(|answer| answer["line"] == 5).unwrap();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&"a".into(), &"repeated_id".into())
        );
        assert!(refused["error"]["detail"].as_str().unwrap().contains("line 2"), "{refused}");
    }
}

fn brief(answer: &Value) -> String {
    let Value::Object(members) = answer else { panic!("{answer}") };
    let mut text = String::new();
    write!(text, "{} {} {} ", members["line"], members["id"], members["status"]).unwrap();
    write!(text, "{}", answer["error"]["detail"]).unwrap();
    text
}

#[test]
fn lines_of_stdin_are_answered_on_stdout_and_a_reader_that_leaves_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path(), 200);
    let mut command = command(dir.path(), &["batch", "-", "--store", "memory:"]);
    command.stdin(fs::File::open(dir.path().join("in.ndjson")).unwrap());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let answer: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(answer["status"], 200, "{answer}");
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let slow = Settings { slots: "2", ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &slow);
    write_input(dir.path(), 50);
    let mut interrupted = client(dir.path(), &gateway);
    until_answered(dir.path(), 3).await;
    interrupted.signal(Signal::INT);
    assert_eq!(interrupted.wait().code(), Some(130), "{}", interrupted.stderr());
    let said = interrupted.stderr();
    assert!(said.contains("interrupted; run the same command again to go on"), "{said}");
    let mut again = client(dir.path(), &gateway);
    assert_eq!(again.wait().code(), Some(0), "{}", again.stderr());
    judge(dir.path(), 50);
    assert_eq!(sim.charges().await, 50);
}
