//! docs/guard.md prints the lists that the guard works with.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{fmt::Write as _, fs, path::Path};

use domain::challenge::{Kind, READINGS, Reading};

fn params() -> String {
    let mut table = String::from("| kind | parameters |\n|---|---|\n");
    for kind in Kind::known().chain([Kind::Other("opened methods".into())]) {
        let names: Vec<_> = kind.params().map(|name| format!("`{name}`")).collect();
        writeln!(table, "| {kind} | {} |", names.join(" ")).unwrap();
    }
    table
}

fn readings() -> String {
    let mut table = String::from("| parameter | is read |\n|---|---|\n");
    for (name, reading) in READINGS {
        let how = match reading {
            Reading::Vendor(hosts) => {
                let hosts: Vec<_> = hosts.iter().map(|host| format!("`{host}`")).collect();
                format!("as a host or URL of the site, or of {}", hosts.join(" "))
            }
            Reading::Full => "in full".to_owned(),
            Reading::Blob => "as data".to_owned(),
            Reading::Prose => "as words".to_owned(),
            Reading::Proxy => "not at all: a proxy is another host by its nature".to_owned(),
        };
        writeln!(table, "| `{name}` | {how} |").unwrap();
    }
    table + "| all others | in full |\n"
}

#[test]
fn the_document_has_the_lists_in_force() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guard.md");
    let found = fs::read_to_string(&path).unwrap();
    let mut expected = found.clone();
    for (name, table) in [("params", params()), ("readings", readings())] {
        let mark = format!("params.rs: {name} -->\n");
        let start = expected.find(&mark).unwrap() + mark.len();
        let end = start + expected[start..].find("<!-- end -->").unwrap();
        expected.replace_range(start..end, &format!("\n{table}\n"));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert_eq!(found, expected, "docs/guard.md differs; UPDATE_GOLDEN=1 rewrites it");
}
