//! Smoke tests: every bench completes with its smallest options and reports its figures, whose values do not matter
//! here. They take minutes; `scripts/test --long` runs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test they help")]

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use store_tests::servers::{PostgresOptions, PostgresServer};
use tempfile::tempdir;

/// Runs a bench for a moment and returns its report.
fn report(bench: &[&str]) -> Value {
    let dir = tempdir().unwrap();
    let tiny = ["--rounds", "1", "--seconds", "0.1", "--json"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(bench).args(tiny).current_dir(dir.path()).env_clear().stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = dir.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "a bench leaves nothing behind: {left:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bench"], &report["rounds"]), (&bench[0].into(), &1.into()));
    assert!(report["machine"]["load_before"].is_number() && report["build"].is_string());
    report
}

/// The figure with this name.
fn figure<'r>(report: &'r Value, what: &str) -> &'r Value {
    let figures = report["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["what"] == what);
    found.unwrap_or_else(|| panic!("no figure {what:?} in {report:#}"))
}

/// Asserts that a figure was measured and compared with a bar.
fn has_verdict(report: &Value, what: &str) {
    let figure = figure(report, what);
    assert!(figure["median"].as_f64().is_some_and(|median| median >= 0.0), "{figure}");
    let verdict = figure["held_to"]["verdict"].as_str();
    assert!(["missed", "met", "stretch"].map(Some).contains(&verdict), "{figure}");
}

#[test]
fn bench_hit_reports_every_path_beside_its_ceiling() {
    let report = report(&["hit"]);
    for path in ["v1 replay", "v1 stock", "compat fetch"] {
        has_verdict(&report, &format!("{path}: cpu / bare"));
        has_verdict(&report, &format!("{path}: req/s / bare"));
    }
    let rate = &figure(&report, "bare: requests")["median"];
    assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{rate}");
}

#[test]
fn bench_durable_reports_what_a_claim_on_disk_costs() {
    let report = report(&["durable"]);
    has_verdict(&report, "admit, 64 callers: req/s / bare");
    for path in ["admit", "to the token"] {
        has_verdict(&report, &format!("{path}, 64 callers: fsyncs per answer"));
        has_verdict(&report, &format!("{path}, 64 callers: written / payload"));
        let fsyncs = &figure(&report, &format!("{path}, 256 callers: fsyncs per answer"))["median"];
        assert!(fsyncs.as_f64().is_some_and(|fsyncs| fsyncs > 0.0), "nothing was made durable");
    }
}

#[test]
fn bench_inflight_reports_memory_of_solves_and_of_held_requests() {
    let report = report(&["inflight", "--solves", "300", "--held", "20"]);
    let each = &figure(&report, "300 waiting solves: memory each")["median"];
    assert!(each.as_f64().is_some_and(|bytes| bytes > 100.0), "{each}");
    figure(&report, "300 waiting solves: memory / loop");
    // This few may fit into memory that is already allocated.
    assert!(figure(&report, "20 held requests: memory each")["median"].is_number());
    figure(&report, "20 held requests: memory / bare");
}

/// A figure's median.
fn median(report: &Value, what: &str) -> f64 {
    figure(report, what)["median"].as_f64().unwrap()
}

#[test]
fn bench_slots_reports_idle_slots_shares_and_refusals() {
    let report = report(&["slots"]);
    for run in [
        "5 threads, reported",
        "5 threads, reported, real times",
        "5-2-8 threads, learned",
        "5-2-8 threads, learned, real times",
    ] {
        has_verdict(&report, &format!("{run}: slots idle"));
        has_verdict(&report, &format!("{run}: furthest from a fair share"));
        let shares =
            ["greedy", "a", "b", "c"].map(|w| median(&report, &format!("{run}: share of {w}")));
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.01, "{shares:?}");
        // The provider's threads are idle for longer than our slots, because a task is done before a poll finds it.
        let ours = median(&report, &format!("{run}: slots idle"));
        assert!(ours < median(&report, &format!("{run}: the service's threads idle")), "{run}");
    }
    for run in ["5 threads, reported", "5 threads, reported, real times"] {
        let counted = |what: &str| &figure(&report, &format!("{run}: {what}"))["median"];
        assert_eq!(counted("claims served"), 500.0);
        assert_eq!(counted("with 5 threads: believed at the end"), 5.0);
        assert_eq!(counted("most tasks at once"), 5.0);
        has_verdict(&report, &format!("{run}: refusals"));
    }
    for threads in [5, 2, 8] {
        let run = format!("5-2-8 threads, learned: with {threads} threads");
        figure(&report, &format!("{run}: slots idle"));
        figure(&report, &format!("{run}: believed at the end"));
    }
    has_verdict(&report, "5-2-8 threads, learned: refusals in the worst minute");
}

#[test]
fn bench_slots_gives_the_same_figures_every_time() {
    assert_eq!(report(&["slots"])["figures"], report(&["slots"])["figures"]);
}

#[test]
fn bench_dead_letters_revives_every_dead_letter_once() {
    let report = report(&["dead-letters", "--count", "300", "--rate", "100"]);
    for store in ["memory", "embedded"] {
        for what in [
            "list of the newest 50",
            "filter by a rare code",
            "filter by host and age",
            "revive / admit",
            "revive, per dead letter",
            "admit, per claim",
            "purge, per dead letter",
            "revived at 100/s",
        ] {
            let figure = figure(&report, &format!("{store}: {what}"));
            assert!(figure["median"].as_f64().is_some_and(|median| median > 0.0), "{figure}");
        }
        has_verdict(&report, &format!("{store}: at 100/s, most in a second"));
        let counted = |what: &str| &figure(&report, &format!("{store}: {what}"))["median"];
        assert_eq!(counted("dead letters"), 300.0);
        assert_eq!(counted("dead letters that differ"), 270.0, "every tenth equals another");
        assert_eq!(counted("dead letters with the rare code"), 2.0);
        assert_eq!(counted("dead letters revived"), 300.0);
        assert_eq!(counted("solves opened for them"), 270.0);
        assert_eq!(counted("active solves then"), 270.0, "each was revived once");
        assert_eq!(counted("dead letters purged"), 300.0);
    }
    figure(&report, "the disk alone: 4 KiB and an fdatasync");
}

/// The medians of the row with this name, in the grid of a report.
fn row(report: &Value, what: &str) -> Vec<Option<f64>> {
    let rows = report["grids"][0]["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["what"] == what);
    let found = found.unwrap_or_else(|| panic!("no row {what:?} in {report:#}"));
    found["medians"].as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[test]
fn bench_polling_reports_lag_and_calls_beside_fixed_and_best() {
    let report = report(&["polling", "--solves", "60"]);
    assert_eq!(report["grids"][0]["columns"], json!(["", "polls per solve", "lag s", "p95 s"]));
    for median in [8, 15, 35] {
        for sigma in ["0.3", "0.5"] {
            let truth = format!("{median} s, sigma {sigma}");
            for what in [
                "lag / best",
                "lag / fixed",
                "first 100: lag / fixed",
                "solves to relearn",
                "as often as fixed: lag / best",
                "as often as fixed: lag / fixed",
            ] {
                has_verdict(&report, &format!("{truth}: {what}"));
            }
            for who in ["learned", "first 100", "learned, as often as fixed", "fixed 5 s"] {
                let row = row(&report, &format!("{truth}: {who}"));
                assert!(row.iter().all(|figure| figure.is_some_and(|f| f > 0.0)), "{row:?}");
            }
            // Every solve takes at least one poll, and the lag of a fixed interval is at most the interval.
            let fixed = row(&report, &format!("{truth}: fixed 5 s"));
            assert!(fixed[0] >= Some(1.0) && fixed[2] <= Some(5.1), "{fixed:?}");
            assert_eq!(row(&report, &format!("{truth}: best"))[2], None);
        }
    }
    for rate in [1, 2] {
        let run = format!("batch, {rate}/s of 15 s, sigma 0.5");
        has_verdict(&report, &format!("{run}: calls per solve"));
        has_verdict(&report, &format!("{run}: lag"));
    }
}

#[test]
fn bench_pool_delivers_nothing_expired_and_keeps_the_bound_on_waste() {
    let report = report(&["pool", "--hours", "2"]);
    for day in [
        "1 per 20 s",
        "0.2/s",
        "1/s",
        "2/s",
        "diurnal",
        "periodic bursts",
        "random bursts",
        "silent day",
    ] {
        for never in ["expired delivered", "delivered below the floor"] {
            let figure = figure(&report, &format!("{day}: {never}"));
            assert_eq!(
                (&figure["most"], &figure["held_to"]["verdict"]),
                (&0.0.into(), &"stretch".into())
            );
        }
        let margin = &figure(&report, &format!("{day}: margin of the bound"))["least"];
        assert!(margin.as_f64().is_some_and(|margin| (0.0..=10.0).contains(&margin)), "{margin}");
        if day != "silent day" {
            has_verdict(&report, &format!("{day}: hits"));
            has_verdict(&report, &format!("{day}: waste"));
            let (auto, alone) =
                (row(&report, &format!("{day}: auto")), row(&report, &format!("{day}: on demand")));
            assert!(auto[0] > Some(0.0) && alone[0] == Some(0.0), "{day}: {auto:?} {alone:?}");
            assert!(auto[1] < alone[1], "{day}: claims wait less with a pool");
            // Each served claim costs one token; the ratio differs only at the edges of the counted time.
            assert!(alone[3].is_some_and(|cost| (0.98..1.02).contains(&cost)), "{day}: {alone:?}");
        }
        for who in ["tutorials' pool", "reference", "clairvoyant"] {
            row(&report, &format!("{day}: {who}"));
        }
    }
    has_verdict(&report, "1/s: bought per served");
    has_verdict(&report, "silent day: bought / the tutorials' pool");
}

#[test]
fn benches_in_virtual_time_give_the_same_figures_every_time() {
    let pool = || report(&["pool", "--hours", "1"]);
    let (one, other) = (pool(), pool());
    assert_eq!((&one["figures"], &one["grids"]), (&other["figures"], &other["grids"]));
}

#[test]
fn benches_on_a_postgres_leave_nothing_there() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let url = server.url();
    let decided = report(&["decisions", "--store", &url, "--callers", "2", "--gateways", "1,3"]);
    for who in ["1 gateway", "3 gateways"] {
        for what in ["decisions", "commits", "decisions in a commit", "smallest share of a gateway"]
        {
            assert!(median(&decided, &format!("{who}: {what}")) > 0.0, "{decided:#}");
        }
        figure(&decided, &format!("{who}: conflicts for each commit"));
    }
    assert!(median(&decided, "bare commits, one after the other") > 0.0, "{decided:#}");
    let past = report(&["history", "--store", &url, "--claims", "6000"]);
    has_verdict(&past, "a site key's page: 36000 rows / a hundredth");
    let hit = report(&["hit", "--store", &url]);
    has_verdict(&hit, "v1 stock: commits of PostgreSQL per hit");
    let left = server.psql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'bench%'");
    assert_eq!(left, "0", "a bench leaves nothing behind");
}
