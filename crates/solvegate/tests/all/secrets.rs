//! Keys, tokens and proxies stay secret: canaries are sent through everything, then every sink is searched for them.

use std::fmt::Write as _;

use domain::secret::Secret;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Settings, Sim, WORKER, run};

fn body(sitekey: &str) -> Value {
    json!({
        "kind": "turnstile",
        "sitekey": sitekey,
        "pageurl": "https://shop.example.com/",
        "params": { "proxy": "user:canary-proxy@10.0.0.1:3128", "proxytype": "HTTP", "cookies": "sid=canary-cookie" },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_token_proxy_or_cookie_is_in_any_log_error_page_or_record() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway =
        Gateway::with(dir.path(), &sim, &Settings { log: "trace", ..Settings::default() });
    let mut sinks = String::new();
    let mut tokens = Vec::new();
    for n in 0..3 {
        if n == 1 {
            sim.fault_submit(json!("drop"), true).await;
            sim.fault(json!({ "on": "poll", "fault": "garbage" })).await;
        }
        let reply = gateway.solve(body("0x4A"), Some(&format!("canary-key-{n}"))).await;
        tokens.push(reply.body["token"].as_str().unwrap().to_owned());
    }
    sim.fault_submit(json!({ "code": "ERROR_WRONG_GOOGLEKEY" }), false).await;
    let failed = gateway.solve(body("0x4B"), Some("canary-failed")).await.body;
    writeln!(sinks, "{failed}").unwrap();
    refusals(&gateway, &mut sinks).await;
    records(&gateway, failed["id"].as_str().unwrap(), &mut sinks).await;
    let history = ["history", "--server", &gateway.base];
    let wrong = run(dir.path(), &history, &[("SOLVEGATE_KEY", "canary-cli-key")]);
    assert_eq!(wrong.code, Some(4), "{}", wrong.stderr);
    writeln!(sinks, "{}{}", wrong.stdout, wrong.stderr).unwrap();
    let wrong = run(dir.path(), &[&history[..], &["--key", "canary-cli-key"]].concat(), &[]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    writeln!(sinks, "{}{}", wrong.stdout, wrong.stderr).unwrap();
    gateway.process.signal(Signal::TERM);
    gateway.process.wait();
    writeln!(sinks, "{}{}", gateway.process.stdout(), gateway.process.stderr()).unwrap();
    assert!(sinks.len() > 10_000, "the sinks were not captured");
    assert!(!sinks.contains("canary"), "{}", around(&sinks, "canary"));
    for token in tokens {
        assert!(!sinks.contains(&token), "a token leaked: {}", around(&sinks, &token));
    }
}

/// Everything that is answered with an error, with keys in every position.
async fn refusals(gateway: &Gateway, sinks: &mut String) {
    let undeclared =
        json!({ "kind": "turnstile", "sitekey": "x", "pageurl": "https://no.example.com/" });
    let mut malformed = body("0x4A");
    malformed["kind"] = json!(7);
    let calls = [
        Call::post("/v1/solves", undeclared),
        Call::post("/v1/solves", malformed),
        Call::get(format!("/v1/history?key={WORKER}")),
        Call::get(format!("/in.php?key={WORKER}&method=nonsense&proxy=canary-proxy")),
        Call::get(format!("/res.php?key={WORKER}&action=get&id=1&json=1")),
    ];
    for call in &calls {
        if let Some(reply) = gateway.try_send(call).await {
            writeln!(sinks, "{}", reply.body).unwrap();
        }
    }
    let stranger = Secret::new("canary-stranger-9012345678901234");
    let stranger = Remote::new(&gateway.base, stranger, None).unwrap();
    writeln!(sinks, "{}", stranger.send(&Call::get("/v1/history")).await.unwrap().body).unwrap();
}

/// Everything that can be read back.
async fn records(gateway: &Gateway, id: &str, sinks: &mut String) {
    for path in [
        "/v1/history",
        "/v1/active",
        "/v1/stats",
        "/v1/report",
        "/v1/dead-letters",
        "/v1/sites",
        "/v1/workers",
        "/v1/balance",
        "/readyz",
    ] {
        writeln!(sinks, "{}", gateway.send_as_admin(&Call::get(path)).await.body).unwrap();
    }
    let explained = gateway.send_as_admin(&Call::get(format!("/v1/solves/{id}/explain"))).await;
    writeln!(sinks, "{}", explained.body).unwrap();
}

fn around(text: &str, needle: &str) -> String {
    let at = text.find(needle).unwrap_or(0);
    text.chars().skip(text[..at].chars().count().saturating_sub(200)).take(400).collect()
}
