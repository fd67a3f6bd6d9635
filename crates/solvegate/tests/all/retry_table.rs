//! The retry table: docs/retry-table.md contains exactly what the binary prints.

use std::{fs, path::Path};

use crate::support::run;

const OPEN: &str = "<!-- printed by `solvegate retry-table` -->\n```text\n";
const CLOSE: &str = "```\n";

#[test]
fn the_document_shows_the_table_the_binary_prints() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run(dir.path(), &["retry-table"], &[]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/retry-table.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(OPEN).expect("the mark is in the document");
    let (shown, after) = rest.split_once(CLOSE).expect("the block ends");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, format!("{before}{OPEN}{}{CLOSE}{after}", printed.stdout)).unwrap();
        return;
    }
    assert_eq!(
        shown, printed.stdout,
        "docs/retry-table.md is old; UPDATE_GOLDEN=1 cargo test -p solvegate the_document rewrites it"
    );
}

#[test]
fn the_printed_table_is_the_one_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[retry]\nprofile = \"conservative\"\njitter = \"additive\"\n\
                [retry.codes.\"ERROR_CAPTCHA_UNSOLVABLE\"]\nmax = 1\nbackoff = true\nwait = \"5s\"\n";
    fs::write(dir.path().join("solvegate.toml"), text).unwrap();
    let printed = run(dir.path(), &["retry-table"], &[]).stdout;
    let row = printed.lines().find(|line| line.contains("ERROR_CAPTCHA_UNSOLVABLE")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let expected = "task-over 1 backoff, at least 5 s yes unknown";
    assert_eq!(words[1..].join(" "), expected);
    assert!(printed.contains("backoff: min(120 s, 2 s · 2ⁿ + U(0, 1 s))"), "{printed}");
    let json = run(dir.path(), &["retry-table", "--json"], &[]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["rules"].as_array().unwrap();
    let rule = rows.iter().find(|row| row["code"] == "ERROR_CAPTCHA_UNSOLVABLE").unwrap();
    assert_eq!((rule["max"].as_u64(), rule["wait_s"].as_f64()), (Some(1), Some(5.0)));
    assert_eq!(json["backoff"]["jitter"], "additive");
    assert_eq!(rows.last().unwrap()["class"], "permanent", "any other code");
}
