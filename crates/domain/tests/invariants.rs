//! docs/invariants.md against the code: every invariant has its line, the tests it names exist, and what no test guards is
//! listed here.

use std::{collections::BTreeSet, fs, path::Path};

use domain::invariant::INVARIANTS;

/// Invariants that are guarded only in part. Their lines say which part is not, after this mark.
const PARTLY_GUARDED: [u8; 0] = [];
const MARK: &str = "; not guarded: ";

#[test]
fn every_invariant_is_in_the_document_with_tests_that_exist() {
    let mut sources = String::new();
    read_sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut sources);
    for (number, guards) in guards() {
        let tests = guards.split(MARK).next().unwrap_or_default();
        let plain: String = tests.split('`').step_by(2).collect();
        assert!(tests.contains('`'), "I{number} names no test");
        assert!(
            plain.chars().all(|c| " ,|".contains(c)),
            "I{number} names more than tests: {plain:?}; what is not guarded comes after {MARK:?}"
        );
        for name in tests.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {name}(")), "I{number} names no test: {name}");
        }
    }
}

#[test]
fn the_invariants_guarded_only_in_part_are_the_ones_listed() {
    let partly = guards().into_iter().filter(|(_, guards)| guards.contains(MARK));
    let partly: BTreeSet<u8> = partly.map(|(number, _)| number).collect();
    assert_eq!(partly, BTreeSet::from(PARTLY_GUARDED));
}

/// The guards of each invariant, as docs/invariants.md lists them.
fn guards() -> Vec<(u8, &'static str)> {
    let document = include_str!("../../../docs/invariants.md");
    let guards = |(number, sentence): (u8, &str)| {
        let start = format!("| I{number} | {sentence} | ");
        let line = document.lines().find_map(|line| line.strip_prefix(start.as_str()));
        (number, line.unwrap_or_else(|| panic!("no line begins with {start:?}")))
    };
    INVARIANTS.map(guards).into()
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
