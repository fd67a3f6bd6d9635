//! The table of docs/guard.md, through the real binary, against a provider that keeps what it is sent: exactly the declared
//! claims arrive, and no undeclared target.

mod cases;

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use domain::{challenge::Kind, secret::Secret};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};
use url::form_urlencoded;

use self::cases::{case, listed, opened, pageless, pages, pictures, script_hosts, the_rest};
use crate::support::{
    ADMIN, LoggingProvider, Process, Sent, WORKER, WORKER_TWO, command, eventually,
};

const WORKER_THREE: &str = "canary-worker-three-901234567890";
const WORKER_FOUR: &str = "canary-worker-four-8901234567890";

const SHOP: &str = "https://shop.example.com/login";
const OPEN: &str = "https://open.example.com/login";
const PINNED: &str = "https://pinned.example.com/login";
const EVIL: &str = "https://evil.example/login";
const OVER: &str = "https://over.example.com/login";
const PICTURE: &str = "R0lGODlhAQABAAAAACw=";

/// Everything of H2 that a site can open.
const OPENED: &str = r#"
            methods = [
                "vkcaptcha", "datadome", "altcha", "amazon_waf", "lemin", "capy", "atb_captcha", "tencent",
                "keycaptcha", "cybersiara", "cutcaptcha", "mt_captcha", "friendly_captcha", "prosopo", "captchafox",
                "yandex", "audio", "vkimage", "temuimage", "bounding_box",
            ]
            params = [
                "redirect_uri", "captcha_url", "challenge_url", "challenge_json", "iv", "context", "challenge_script",
                "captcha_script", "captcha_id", "captchakey", "app_id", "api_server", "s_s_c_user_id", "s_s_c_session_id",
                "s_s_c_web_server_sign", "s_s_c_web_server_sign2", "master_url_id", "misery_key", "api_key", "div_id",
                "body",
            ]
"#;

const OK: &str = "OK";
const BAD: &str = "ERROR_BAD_PARAMETERS";
const UNDECLARED: &str = "ERROR_SITE_NOT_DECLARED";

/// One claim and the answer it gets. A claim that is accepted has to arrive at the provider as it was sent.
struct Case {
    key: &'static str,
    fields: Vec<(String, String)>,
    expected: &'static str,
}

/// The API that a claim comes through.
#[derive(Clone, Copy, PartialEq)]
enum Api {
    InPhp,
    V1,
}

struct Gateway {
    process: Process,
    base: String,
}

// === impl Gateway ===

impl Gateway {
    fn start(dir: &Path, provider: &LoggingProvider, images: &str) -> Self {
        let url = &provider.url;
        let config = format!(
            r#"
            listen = "127.0.0.1:0"
            [upstream]
            url = "{url}"
            key = "provider-0123456789-abcdefghijkl"
            slots = 1000
            submits_per_second = 1000
            [store]
            url = "memory:"
            [[worker]]
            name = "one"
            key = "{WORKER}"
            [[worker]]
            name = "two"
            key = "{WORKER_TWO}"
            sites = ["open.example.com"]
            [[worker]]
            name = "three"
            key = "{WORKER_THREE}"
            sites = ["open.example.com"]
            images = true
            [[worker]]
            name = "four"
            key = "{WORKER_FOUR}"
            images = false
            [[site]]
            host = "shop.example.com"
            basis = "own shop"
            [[site]]
            host = "open.example.com"
            basis = "own shop, everything of H2 opened"
            {OPENED}
            [[site]]
            host = "pinned.example.com"
            basis = "own shop"
            sitekeys = ["pinned-key"]
            [[site]]
            host = "over.example.com"
            basis = "own shop, until it was sold"
            expires = "2020-01-01"
            {images}
            [polling]
            mode = "fixed"
            first = "60s"
            interval = "60s"
            "#
        );
        let file = dir.join("solvegate.toml");
        fs::write(&file, config).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let process = Process::start(command(dir, &["serve"]));
        let base = process.line_after("is listening on ");
        Self { process, base }
    }

    async fn submit(&self, api: Api, case: &Case) -> String {
        match api {
            Api::InPhp => self.submit_form(case).await,
            Api::V1 => self.submit_json(case).await,
        }
    }

    /// The same claim as v1 writes it. Its refusals have fewer codes.
    async fn submit_json(&self, case: &Case) -> String {
        let body = v1_body(&case.fields);
        let call = Call::post("/v1/solves", body);
        let remote = Remote::new(&self.base, Secret::new(case.key), None).unwrap();
        let reply = remote.send(&call).await.unwrap();
        match (reply.status.as_u16(), reply.body["code"].as_str()) {
            (200..=202, _) => OK.to_owned(),
            (403, Some("site_not_declared")) => UNDECLARED.to_owned(),
            (400, Some(_)) => BAD.to_owned(),
            (status, _) => format!("{status} {}", reply.body),
        }
    }

    async fn submit_form(&self, case: &Case) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&case.fields);
        query.extend_pairs([
            ("key", case.key),
            ("json", "1"),
            ("soft_id", "7"),
            ("header_acao", "1"),
        ]);
        let call = Call::get(format!("/in.php?{}", query.finish()));
        let remote = Remote::new(&self.base, Secret::new(case.key), None).unwrap();
        let reply = remote.send(&call).await.unwrap();
        let request = reply.body["request"].as_str().unwrap().to_owned();
        if reply.body["status"] == 1 { OK.to_owned() } else { request }
    }
}

/// The form of in.php as the body of `POST /v1/solves`.
fn v1_body(fields: &[(String, String)]) -> Value {
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let version = get("version");
    let kind = match get("method").unwrap() {
        "userrecaptcha" if version == Some("v3") => "recaptcha_v3",
        "userrecaptcha" => "recaptcha_v2",
        "geetest" if version == Some("4") => "geetest_v4",
        "rotatecaptcha" => "rotate",
        "post" => "text",
        "base64" if get("recaptcha").is_some() => "grid",
        "base64" if get("coordinatescaptcha").is_some() => "coordinates",
        "base64" => "image",
        other => other,
    };
    let sitekey = match kind {
        "recaptcha_v2" | "recaptcha_v3" => "googlekey",
        "geetest" => "gt",
        "geetest_v4" => "captcha_id",
        "funcaptcha" => "publickey",
        _ => "sitekey",
    };
    let is_kind = |name: &str| {
        matches!(name, "method" | "recaptcha" | "coordinatescaptcha") || name == "version"
    };
    let mut body = json!({ "kind": kind, "params": {}, "fresh": true });
    for (name, value) in fields.iter().filter(|(name, _)| !is_kind(name)) {
        match name.as_str() {
            "pageurl" => body["pageurl"] = json!(value),
            // An opened method has pictures among its parameters.
            "body"
                if kind == "image"
                    || kind == "grid"
                    || kind == "coordinates"
                    || kind == "rotate" =>
            {
                body["image"] = json!(value);
            }
            name if name == sitekey => body["sitekey"] = json!(value),
            name => body["params"][name] = json!(value),
        }
    }
    body
}

// === judge ===

/// What the provider has to get for an accepted claim.
fn expected_fields(case: &Case) -> Sent {
    case.fields.iter().cloned().collect()
}

fn without_account(mut sent: Sent) -> Sent {
    for name in ["key", "json"] {
        sent.remove(name);
    }
    sent
}

fn counted(all: impl Iterator<Item = Sent>) -> BTreeMap<Sent, usize> {
    let mut counts = BTreeMap::new();
    all.for_each(|sent| *counts.entry(sent).or_default() += 1);
    counts
}

async fn judge(api: Api, images: &str, cases: Vec<Case>) {
    let dir = tempfile::tempdir().unwrap();
    let provider = LoggingProvider::start().await;
    let gateway = Gateway::start(dir.path(), &provider, images);
    for batch in cases.chunks(16) {
        let answers = join_all(batch.iter().map(|case| gateway.submit(api, case))).await;
        for (case, answer) in batch.iter().zip(answers) {
            let is_one_of_v1 = matches!(case.expected, OK | UNDECLARED) || api == Api::InPhp;
            let expected = if is_one_of_v1 { case.expected } else { BAD };
            assert_eq!(answer, expected, "{:?}", case.fields);
        }
    }
    let accepted: Vec<&Case> = cases.iter().filter(|case| case.expected == OK).collect();
    eventually("all accepted claims at the provider", async || {
        (provider.sent().len() >= accepted.len()).then_some(())
    })
    .await;
    let sent = counted(provider.sent().into_iter().map(without_account));
    assert_eq!(sent, counted(accepted.into_iter().map(expected_fields)));
    let named_evil = |sent: &Sent| sent.values().any(|value| value.contains("evil"));
    assert!(!sent.keys().any(named_evil), "an undeclared target arrived");
}

/// Kinds with a page: `[images]` means nothing to them.
fn with_pages() -> Vec<Case> {
    let mut cases = pages();
    cases.extend(listed());
    cases.extend(script_hosts());
    cases.extend(opened());
    cases.extend(the_rest());
    cases
}

async fn judge_pages(api: Api) {
    let mut cases = with_pages();
    cases.extend(pictures(&[]));
    judge(api, "", cases).await;
    let mut cases = with_pages();
    cases.extend(pictures(BY_DEFAULT));
    judge(api, "[images]\nbasis = \"own forms\"", cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_the_guard_allows_reaches_the_provider() {
    judge_pages(Api::InPhp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_the_guard_allows_reaches_the_provider_through_v1() {
    judge_pages(Api::V1).await;
}

/// `[images]` by itself allows two kinds.
const BY_DEFAULT: &[&str] = &["image", "text"];
/// All of them but `text`, to see that the list replaces the default.
const NAMED: &[&str] = &[
    "image",
    "grid",
    "coordinates",
    "bls",
    "rotate",
    "audio",
    "vkimage",
    "temuimage",
    "bounding_box",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_picture_reaches_the_provider_after_the_end_of_images() {
    let images = "[images]\nbasis = \"own forms\"\nexpires = \"2020-01-01\"";
    for api in [Api::InPhp, Api::V1] {
        judge(api, images, pictures(&[])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pictures_reach_the_provider_only_when_their_kind_is_named() {
    let images = format!("[images]\nbasis = \"own forms\"\nkinds = {NAMED:?}");
    for api in [Api::InPhp, Api::V1] {
        judge(api, &images, pictures(NAMED)).await;
    }
}

/// What is revived has to pass the guard as it is then.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_revived_only_for_what_is_still_declared() {
    let dir = tempfile::tempdir().unwrap();
    let provider = LoggingProvider::start().await;
    provider.refuse_all(Some("ERROR_BAD_TOKEN_OR_PAGEURL"));
    let images = "[images]\nbasis = \"own forms\"";
    let admin = format!("{images}\n[admin]\nkey = \"{ADMIN}\"");
    let gateway = Gateway::start(dir.path(), &provider, &admin);
    let turnstile =
        |page| case(&[("method", "turnstile"), ("sitekey", "k"), ("pageurl", page)], OK);
    let of_three = |case: Case| Case { key: WORKER_THREE, ..case };
    let picture = Case { key: WORKER_THREE, fields: pageless(&Kind::Image, 1), expected: OK };
    let page = of_three(turnstile(OPEN));
    let pinned =
        case(&[("method", "turnstile"), ("sitekey", "pinned-key"), ("pageurl", PINNED)], OK);
    let kept = turnstile(SHOP);
    for case in [&picture, &page, &pinned, &kept] {
        assert_eq!(gateway.submit(Api::InPhp, case).await, OK, "{:?}", case.fields);
    }
    let admin = Remote::new(&gateway.base, Secret::new(ADMIN), None).unwrap();
    let ids: Vec<Value> = eventually("four dead letters", async || {
        let letters = admin.send(&Call::get("/v1/dead-letters")).await.unwrap();
        let letters = letters.body["items"].as_array()?.clone();
        (letters.len() == 4).then(|| letters.iter().map(|letter| letter["id"].clone()).collect())
    })
    .await;
    let before = provider.sent().len();
    provider.refuse_all(None);
    let file = dir.path().join("solvegate.toml");
    let config = fs::read_to_string(&file).unwrap();
    let narrowed = config
        .replace(
            "sites = [\"open.example.com\"]\n            images = true",
            "sites = [\"shop.example.com\"]\n            images = false",
        )
        .replace("sitekeys = [\"pinned-key\"]", "sitekeys = [\"another-key\"]");
    assert_ne!(config, narrowed);
    fs::write(&file, narrowed).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the reload", async || {
        gateway.process.stderr().contains("configuration reloaded").then_some(())
    })
    .await;
    let revive = Call::post("/v1/dead-letters/revive", json!({ "ids": ids }));
    let reply = admin.send(&revive).await.unwrap();
    assert!(reply.status.is_success(), "{}", reply.body);
    let arrived = eventually("the claim that is still declared", async || {
        let sent = provider.sent();
        (sent.len() > before).then(|| sent[before..].to_vec())
    })
    .await;
    let arrived = counted(arrived.into_iter().map(without_account));
    assert_eq!(arrived, counted([expected_fields(&kept)].into_iter()), "{}", reply.body);
    let opened = |result: &&Value| result["result"] == "opened";
    let results = reply.body["results"].as_array().unwrap();
    assert_eq!((results.len(), results.iter().filter(opened).count()), (4, 1), "{}", reply.body);
}
