//! `solvegate bench`, tiny: every bench runs to its end and says what it promises to say. No figure is judged here.

use serde_json::Value;
use tempfile::tempdir;

use super::support::run;

/// Runs a bench for a moment and returns its report.
fn report(bench: &[&str]) -> Value {
    let dir = tempdir().unwrap();
    let tiny = ["--rounds", "1", "--seconds", "0.1", "--json"];
    let args: Vec<_> = ["bench"].iter().chain(bench).chain(&tiny).copied().collect();
    let output = run(dir.path(), &args, &[]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let left: Vec<_> = dir.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "a bench leaves nothing behind: {left:?}");
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
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

/// Holds that a figure was measured and is held to a bar.
fn is_judged(report: &Value, what: &str) {
    let figure = figure(report, what);
    assert!(figure["median"].as_f64().is_some_and(|median| median >= 0.0), "{figure}");
    let verdict = figure["held_to"]["verdict"].as_str();
    assert!(["missed", "met", "stretch"].map(Some).contains(&verdict), "{figure}");
}

#[test]
fn bench_hit_reports_every_path_beside_its_ceiling() {
    let report = report(&["hit"]);
    for path in ["v1 replay", "v1 stock", "compat fetch"] {
        is_judged(&report, &format!("{path}: cpu / bare"));
        is_judged(&report, &format!("{path}: req/s / bare"));
    }
    let rate = &figure(&report, "bare: requests")["median"];
    assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{rate}");
}

#[test]
fn bench_durable_reports_what_a_claim_on_disk_costs() {
    let report = report(&["durable"]);
    is_judged(&report, "admit, 64 callers: req/s / bare");
    for path in ["admit", "to the token"] {
        is_judged(&report, &format!("{path}, 64 callers: fsyncs per answer"));
        is_judged(&report, &format!("{path}, 64 callers: written / payload"));
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
    // So few may fit into memory that is there already.
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
        "5 threads, told",
        "5 threads, told, real times",
        "5-2-8 threads, learned",
        "5-2-8 threads, learned, real times",
    ] {
        is_judged(&report, &format!("{run}: slots idle"));
        is_judged(&report, &format!("{run}: furthest from a fair share"));
        let shares =
            ["greedy", "a", "b", "c"].map(|w| median(&report, &format!("{run}: share of {w}")));
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.01, "{shares:?}");
        // A task is done before we know: the service's threads are idle for longer than our slots.
        let ours = median(&report, &format!("{run}: slots idle"));
        assert!(ours < median(&report, &format!("{run}: the service's threads idle")), "{run}");
    }
    for run in ["5 threads, told", "5 threads, told, real times"] {
        let counted = |what: &str| &figure(&report, &format!("{run}: {what}"))["median"];
        assert_eq!(counted("claims served"), 500.0);
        assert_eq!(counted("with 5 threads: believed at the end"), 5.0);
        assert_eq!(counted("most tasks at once"), 5.0);
        is_judged(&report, &format!("{run}: refusals"));
    }
    for threads in [5, 2, 8] {
        let run = format!("5-2-8 threads, learned: with {threads} threads");
        figure(&report, &format!("{run}: slots idle"));
        figure(&report, &format!("{run}: believed at the end"));
    }
    is_judged(&report, "5-2-8 threads, learned: refusals in the worst minute");
}

#[test]
fn bench_slots_gives_the_same_figures_every_time() {
    assert_eq!(report(&["slots"])["figures"], report(&["slots"])["figures"]);
}

#[test]
fn bench_letters_brings_every_letter_back_once() {
    let report = report(&["letters", "--count", "300", "--rate", "100"]);
    for store in ["memory", "embedded"] {
        for what in [
            "list of the newest 50",
            "filter by a rare code",
            "filter by host and age",
            "revive / admit",
            "revive, per letter",
            "admit, per claim",
            "purge, per letter",
            "revived at 100/s",
        ] {
            let figure = figure(&report, &format!("{store}: {what}"));
            assert!(figure["median"].as_f64().is_some_and(|median| median > 0.0), "{figure}");
        }
        is_judged(&report, &format!("{store}: at 100/s, most in a second"));
        let counted = |what: &str| &figure(&report, &format!("{store}: {what}"))["median"];
        assert_eq!(counted("letters"), 300.0);
        assert_eq!(counted("letters that differ"), 270.0, "every tenth equals another");
        assert_eq!(counted("letters with the rare code"), 2.0);
        assert_eq!(counted("letters brought back"), 300.0);
        assert_eq!(counted("solves opened for them"), 270.0);
        assert_eq!(counted("solves under way then"), 270.0, "each came back once");
        assert_eq!(counted("letters purged"), 300.0);
    }
    figure(&report, "the disk alone: 4 KiB and an fdatasync");
}
