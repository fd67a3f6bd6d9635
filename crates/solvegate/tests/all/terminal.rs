//! What a person sees on a terminal while a command works.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use crate::support::{Gateway, OnTerminal, Settings, Sim, WORKER, command, eventually, run};

fn calling(gateway: &Gateway, dir: &Path, args: &[&str]) -> Command {
    let mut command = command(dir, args);
    command.envs([("SOLVEGATE_KEY", WORKER), ("SOLVEGATE_SERVER", &*gateway.base)]);
    command
}

async fn until_shown(command: &OnTerminal, text: &str) {
    eventually(text, async || command.text().contains(text).then_some(())).await;
}

const PAGE: &str = "https://shop.example.com/";

#[tokio::test(flavor = "multi_thread")]
async fn solve_shows_its_claim_while_it_waits_and_ctrl_c_how_to_fetch_it() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "2s"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let args = ["solve", "--kind", "turnstile", "--sitekey", "0x1", "--pageurl", PAGE];
    let solving = OnTerminal::start(calling(&gateway, dir.path(), &args));
    until_shown(&solving, "turnstile is being solved").await;
    until_shown(&solving, "(1s)").await;
    solving.interrupt();
    let (code, shown) = solving.end();
    assert_eq!(code, Some(130), "{shown}");
    let id =
        shown.trim_end().rsplit_once("solvegate fetch ").unwrap_or_else(|| panic!("{shown}")).1;
    assert!(shown.contains(&format!("claim {id}: turnstile")), "{shown}");
    let environment = [("SOLVEGATE_KEY", WORKER), ("SOLVEGATE_SERVER", &*gateway.base)];
    let fetched = run(dir.path(), &["fetch", id], &environment);
    assert!(fetched.stdout.starts_with("SIM."), "{}{}", fetched.stdout, fetched.stderr);
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_shows_rate_cost_and_the_time_left_and_removes_its_bar() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "500ms"]);
    let settings = Settings {
        upstream: "price_per_1000 = { turnstile = 1.45 }\ncurrency = \"USD\"\n".into(),
        slots: "2",
        ..Settings::default()
    };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let mut lines = String::from("id,kind,sitekey,pageurl\n");
    for n in 1..=6 {
        writeln!(lines, "order-{n},turnstile,0x{n},{PAGE}").unwrap();
    }
    fs::write(dir.path().join("in.csv"), lines).unwrap();
    let solving = OnTerminal::start(calling(&gateway, dir.path(), &["batch", "in.csv"]));
    let (code, shown) = solving.end();
    assert_eq!(code, Some(0), "{shown}");
    let frames: Vec<_> = shown.split('\r').flat_map(|part| part.split("\u{1b}[2K")).collect();
    let is_whole = |frame: &&&str| {
        ["/6 served, 0 failed, ", "/s, cost 0.00", " USD, ", "s left"]
            .iter()
            .all(|part| frame.contains(part))
    };
    assert!(frames.iter().any(|frame| is_whole(&frame)), "{frames:?}");
    assert_eq!(frames.last().unwrap().trim(), "", "{frames:?}");
    assert!(shown.contains("6 served, 0 failed; cost 0.0087 USD"), "{shown}");
}
