//! A typo in the name of a kind costs nothing, wherever it is made, and is answered with the name that was meant.

use std::{fs, path::Path};

use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Gateway, Sim, WORKER, run};

const TYPO: &str = "turnstyle";
const MEANT: &str = "did you mean \"turnstile\"?";
const PAGE: &str = "https://shop.example.com/";

fn file(dir: &Path, name: &str, more: &str) {
    let head = "[upstream]\nurl = \"sim\"\n";
    let site = "[[site]]\nhost = \"shop.example.com\"\nbasis = \"own shop\"\n";
    fs::write(dir.join(name), format!("{head}{more}\n{site}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typo_in_a_kind_pays_nothing_on_any_door_or_command() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let with_page = json!({ "kind": TYPO, "sitekey": "0x4A", "pageurl": PAGE });
    for body in [with_page.clone(), json!({ "kind": TYPO }), json!({ "kind": "Turn-Stile" })] {
        let refused = gateway.send(&Call::post("/v1/solves", body)).await;
        assert_eq!(refused.status, 400);
        assert!(refused.body["detail"].as_str().unwrap().contains(MEANT), "{}", refused.body);
    }
    let pool = gateway.send_as_admin(&Call::put("/v1/pools", with_page)).await;
    assert!(pool.body["detail"].as_str().unwrap().contains(MEANT), "{}", pool.body);
    for page in [format!("&pageurl={PAGE}"), String::new()] {
        let form = format!("/in.php?key={WORKER}&method={TYPO}&json=1&sitekey=0x4A{page}");
        let refused = gateway.send(&Call::get(form)).await.body;
        assert_eq!(refused["request"], "ERROR_BAD_PARAMETERS", "{refused}");
        assert!(refused["error_text"].as_str().unwrap().contains(MEANT), "{refused}");
    }
    let server = ["--server", &gateway.base];
    let solve = ["solve", "--kind", TYPO, "--sitekey", "0x4A", "--pageurl", PAGE];
    let set = ["pools", "set", "--kind", TYPO, "--sitekey", "0x4A", "--pageurl", PAGE];
    for (args, key) in [(&solve[..], WORKER), (&set[..], ADMIN)] {
        let refused = run(dir.path(), &[args, &server[..]].concat(), &[("SOLVEGATE_KEY", key)]);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(MEANT), "{args:?}: {}", refused.stderr);
    }
    assert_eq!(sim.charges().await, 0);
}

#[test]
fn a_typo_in_a_kind_stops_the_start_and_doctor_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool = format!("[[pool]]\nkind = \"{TYPO}\"\nsitekey = \"0x4A\"\npageurl = \"{PAGE}\"\n");
    for (name, more) in [
        ("pool.toml", pool),
        ("price.toml", format!("price_per_1000 = {{ {TYPO} = 1.0 }}")),
        ("tokens.toml", format!("[tokens.{TYPO}]\nlifetime = \"60s\"")),
        ("images.toml", format!("[images]\nbasis = \"own\"\nkinds = [\"{TYPO}\"]")),
    ] {
        file(dir.path(), name, &more);
        for command in ["serve", "doctor", "sites list"] {
            let mut args: Vec<_> = command.split(' ').collect();
            args.extend(["--config", name]);
            let refused = run(dir.path(), &args, &[("SOLVEGATE_LISTEN", "127.0.0.1:0")]);
            let said = refused.stdout + &refused.stderr;
            assert_eq!(refused.code, Some(2), "{name} {command}: {said}");
            assert!(said.contains(TYPO), "{name} {command}: {said}");
        }
    }
}

#[test]
fn every_kind_is_listed_with_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let json = run(dir.path(), &["kinds", "--json"], &[]);
    let kinds: Value = serde_json::from_str(&json.stdout).unwrap();
    let kinds = kinds["kinds"].as_array().unwrap();
    let names: Vec<_> = kinds.iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    let known: Vec<_> = domain::challenge::Kind::known().map(|kind| kind.to_string()).collect();
    assert_eq!(names, known);
    let v3 = kinds.iter().find(|kind| kind["kind"] == "recaptcha_v3").unwrap();
    assert_eq!(v3["method"], "userrecaptcha&version=v3");
    assert_eq!((&v3["sitekey_field"], &v3["sharing"]), (&json!("googlekey"), &json!("exclusive")));
    assert_eq!(v3["required"], json!(["sitekey", "pageurl"]));
    assert!(v3["optional"].as_array().unwrap().contains(&json!("action")));
    let help = run(dir.path(), &["solve", "--help"], &[]).stdout;
    for name in names {
        assert!(help.contains(name), "{name} is not in the help of solve");
    }
}
