//! The commands around a claim: interrupted, fetched, reported, looked up; and the declarations of a running gateway.

use rustix::process::Signal;

use crate::support::{ADMIN, Gateway, Process, Sim, WORKER, command, eventually, run};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_solve_says_how_to_fetch_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "2s"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let page = "https://shop.example.com/";
    let solve = ["solve", "--kind", "turnstile", "--sitekey", "0x1", "--pageurl", page];
    let mut solving = command(dir.path(), &solve);
    solving.envs([("SOLVEGATE_KEY", WORKER), ("SOLVEGATE_SERVER", &gateway.base)]);
    let mut solving = Process::start(solving);
    eventually("the claim is made", async || (sim.charges().await > 0).then_some(())).await;
    solving.signal(Signal::INT);
    assert_eq!(solving.wait().code(), Some(130), "{}", solving.stderr());
    let said = solving.stderr();
    let id = said.split_once("solvegate fetch ").unwrap_or_else(|| panic!("{said}")).1.trim();
    let run = |args: &[&str], key| {
        let environment = [("SOLVEGATE_KEY", key), ("SOLVEGATE_SERVER", gateway.base.as_str())];
        run(dir.path(), args, &environment)
    };
    let fetched = run(&["fetch", id], WORKER);
    assert!(fetched.stdout.starts_with("SIM."), "{}{}", fetched.stdout, fetched.stderr);
    assert_eq!(sim.charges().await, 1);
    let good = run(&["feedback", id, "good"], WORKER);
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""));
    let story = run(&["explain", id], WORKER).stdout;
    assert!(story.contains("reported") && story.contains("good=true"), "{story}");
    let admin = run(&["fetch", id], ADMIN);
    assert_eq!(admin.code, Some(4), "{}{}", admin.stdout, admin.stderr);
    let wrong = run(&["history"], "canary-worker-one-78901234567899");
    assert_eq!(wrong.code, Some(4));
    assert!(wrong.stderr.contains("wrong key"), "{}", wrong.stderr);
    let own = run(&["history", "--state", "served", "--from", "2020-01-01", "--json"], WORKER);
    assert!(own.stdout.contains(id), "{}{}", own.stdout, own.stderr);
    let finds = |args: &[&str]| {
        let output = run(&[&["history", "--json"], args].concat(), ADMIN);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout.contains(id)
    };
    assert!(finds(&["--project", "checkout"]) && !finds(&["--project", "else"]));
    assert!(finds(&["--to", "2099-01-01"]) && !finds(&["--to", "2020-01-01"]));
    assert!(!finds(&["--code", "ERROR_CAPTCHA_UNSOLVABLE"]), "it did not fail");
    let other = run(&["history", "--worker", "two"], ADMIN);
    assert_eq!(other.stdout.trim(), "none", "{}", other.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_of_a_running_gateway_are_those_in_force() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let of_gateway = |args: &[&str], key| {
        let environment = [("SOLVEGATE_KEY", key), ("SOLVEGATE_SERVER", gateway.base.as_str())];
        run(elsewhere.path(), args, &environment)
    };
    let of_file = run(dir.path(), &["sites", "list"], &[]).stdout;
    assert_eq!(of_gateway(&["sites", "list"], ADMIN).stdout, of_file);
    let covered = of_gateway(&["sites", "check", "https://shop.example.com/a"], ADMIN);
    assert!(covered.stdout.contains("is covered by shop.example.com"), "{}", covered.stderr);
    let ended = of_gateway(&["sites", "check", "https://over.example.com/"], ADMIN);
    assert_eq!(ended.code, Some(4));
    assert!(ended.stderr.contains("ended on 2020-01-01"), "{}", ended.stderr);
    assert_eq!(of_gateway(&["sites", "list"], WORKER).code, Some(4), "for admins only");
}
