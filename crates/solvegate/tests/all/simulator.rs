//! docs/simulator.md against the simulator: every example is accepted, every fault is described, and a mistake is answered
//! with the right form.

use domain::secret::Secret;
use http::StatusCode;
use serde_json::{Value, json};
use simulator::faults::FAULT_FORMS;
use solvegate::client::{Call, Remote};

use crate::support::{Sim, run};

const DOCUMENT: &str = include_str!("../../../../docs/simulator.md");

/// The first cells of the table that has this heading.
fn first_column(heading: &str) -> Vec<&'static str> {
    let table = DOCUMENT.split_once(&format!("| {heading} |")).unwrap().1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`')).collect()
}

#[tokio::test]
async fn every_documented_fault_is_planned_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let examples = DOCUMENT.split_once("```json faults\n").unwrap().1.split_once("```").unwrap().0;
    for example in examples.lines() {
        sim.fault(serde_json::from_str(example).unwrap()).await;
    }
    let documented = first_column("fault");
    let names: Vec<_> = documented
        .iter()
        .map(|fault| {
            let written: Value = serde_json::from_str(fault).unwrap();
            let named = written.as_object().and_then(|members| members.keys().next().cloned());
            named.unwrap_or_else(|| written.as_str().unwrap().to_owned())
        })
        .collect();
    assert_eq!(names, FAULT_FORMS.map(|(name, _)| name), "every fault, in order");
    for fault in documented {
        sim.fault_submit(serde_json::from_str(fault).unwrap(), false).await;
    }
}

#[tokio::test]
async fn a_wrong_fault_is_answered_with_the_right_form() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let remote = Remote::new(&sim.url, Secret::new("none"), None).unwrap();
    let wrong = json!({ "on": "submit", "fault": "status" });
    // The answer is text, which the client cannot read; its message quotes nothing of it.
    assert!(remote.send(&Call::post("/faults", wrong)).await.is_err());
    let plan = remote.send(&Call::get("/faults")).await.unwrap();
    assert_eq!((plan.status, plan.body), (StatusCode::OK, json!([])));
}

#[test]
fn help_and_document_name_the_same_options_faults_and_site_keys() {
    let dir = tempfile::tempdir().unwrap();
    let help = run(dir.path(), &["sim", "--help"], &[]).stdout;
    for option in first_column("option") {
        assert!(help.contains(option.split(' ').next().unwrap()), "{option}");
    }
    for start in first_column("site key begins with") {
        assert!(help.contains(start), "{start}");
    }
    for (name, _) in FAULT_FORMS {
        assert!(help.contains(name), "{name}");
    }
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<_> = options.filter_map(|line| line.split([' ', '\n']).next()).collect();
    for option in options {
        let is_general = matches!(option, "config" | "log" | "help");
        assert!(is_general || DOCUMENT.contains(&format!("`--{option}")), "--{option}");
    }
}
