//! ARCHITECTURE.md against the code: every invariant has its line, and the tests it names exist.

use std::{fs, path::Path};

use domain::invariant::INVARIANTS;

#[test]
fn every_invariant_is_in_the_architecture_with_tests_that_exist() {
    let architecture = include_str!("../../../ARCHITECTURE.md");
    let mut sources = String::new();
    read_sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut sources);
    for (number, sentence) in INVARIANTS {
        let start = format!("| I{number} | {sentence} | ");
        let line = architecture.lines().find_map(|line| line.strip_prefix(start.as_str()));
        let guards = line.unwrap_or_else(|| panic!("no line begins with {start:?}"));
        assert!(guards.contains('`') || guards.starts_with("later: "), "I{number} is unguarded");
        for name in guards.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {name}(")), "I{number} names no test: {name}");
        }
    }
}

fn read_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).expect("sources are text"));
        }
    }
}
