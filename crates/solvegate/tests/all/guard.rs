//! The table of docs/guard.md, through the real binary, against a provider that keeps what it is sent: exactly the declared
//! claims arrive, and no undeclared target.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use domain::{challenge::Kind, secret::Secret};
use futures_util::future::join_all;
use solvegate::client::{Call, Remote};
use url::form_urlencoded;

use crate::support::{LoggingProvider, Process, Sent, WORKER, WORKER_TWO, command, eventually};

const SHOP: &str = "https://shop.example.com/login";
const OPEN: &str = "https://open.example.com/login";
const PINNED: &str = "https://pinned.example.com/login";
const EVIL: &str = "https://evil.example/login";
const PICTURE: &str = "R0lGODlhAQABAAAAACw=";

const OK: &str = "OK";
const BAD: &str = "ERROR_BAD_PARAMETERS";
const UNDECLARED: &str = "ERROR_SITE_NOT_DECLARED";

/// One claim and the answer it gets. A claim that is accepted has to arrive at the provider as it was sent.
struct Case {
    key: &'static str,
    fields: Vec<(String, String)>,
    expected: &'static str,
}

struct Gateway {
    _process: Process,
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
            [[site]]
            host = "shop.example.com"
            basis = "own shop"
            [[site]]
            host = "open.example.com"
            basis = "own shop, everything of H2 opened"
            methods = [
                "vkcaptcha", "datadome", "altcha", "amazon_waf", "lemin", "capy", "atb_captcha", "tencent",
                "keycaptcha", "cybersiara", "cutcaptcha", "mt_captcha", "friendly_captcha", "prosopo", "captchafox",
                "yandex", "audio",
            ]
            params = [
                "redirect_uri", "captcha_url", "challenge_url", "challenge_json", "iv", "context", "challenge_script",
                "captcha_script", "captcha_id", "captchakey", "app_id", "api_server", "s_s_c_user_id", "master_url_id",
                "misery_key", "api_key", "div_id",
            ]
            [[site]]
            host = "pinned.example.com"
            basis = "own shop"
            sitekeys = ["pinned-key"]
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
        Self { _process: process, base }
    }

    async fn submit(&self, case: &Case) -> String {
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

// === cases ===

fn case(fields: &[(&str, &str)], expected: &'static str) -> Case {
    let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Case { key: WORKER, fields, expected }
}

/// The fields without which a method is incomplete, besides the page.
fn needed(kind: &Kind) -> Vec<(&'static str, &'static str)> {
    match kind {
        Kind::RecaptchaV2 => vec![("method", "userrecaptcha"), ("googlekey", "k")],
        Kind::RecaptchaV3 => {
            vec![("method", "userrecaptcha"), ("version", "v3"), ("googlekey", "k")]
        }
        Kind::Hcaptcha => vec![("method", "hcaptcha"), ("sitekey", "k")],
        Kind::Turnstile => vec![("method", "turnstile"), ("sitekey", "k")],
        Kind::CloudflareChallenge => vec![
            ("method", "cloudflare_challenge"),
            ("proxy", "u:p@proxy.example.net:8080"),
            ("proxytype", "HTTP"),
        ],
        Kind::Geetest => vec![("method", "geetest"), ("gt", "k"), ("challenge", "c")],
        Kind::GeetestV4 => vec![("method", "geetest"), ("version", "4"), ("captcha_id", "k")],
        Kind::Funcaptcha => vec![("method", "funcaptcha"), ("publickey", "k")],
        Kind::Image => vec![("method", "base64"), ("body", PICTURE)],
        Kind::TextQuestion => vec![("method", "post"), ("textcaptcha", "2+2")],
        Kind::Grid => vec![("method", "base64"), ("recaptcha", "1"), ("body", PICTURE)],
        Kind::Coordinates => {
            vec![("method", "base64"), ("coordinatescaptcha", "1"), ("body", PICTURE)]
        }
        Kind::Bls => vec![("method", "bls"), ("instructions", "i"), ("image_base64_1", PICTURE)],
        Kind::Rotate => vec![("method", "rotatecaptcha"), ("body", PICTURE)],
        Kind::Other(_) => unreachable!("only known kinds are asked for"),
    }
}

/// Every kind with a page: declared, not declared, absent, and for a worker that is restricted to another site.
fn pages() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in Kind::known().filter(|kind| !kind.is_pageless()) {
        let with = |page: Option<&str>, expected| {
            let mut fields = needed(&kind);
            fields.extend(page.map(|page| ("pageurl", page)));
            case(&fields, expected)
        };
        cases.push(with(Some(SHOP), OK));
        cases.push(with(Some(EVIL), UNDECLARED));
        cases.push(with(Some("https://shop.example.com:80/"), UNDECLARED));
        cases.push(with(None, "ERROR_PAGEURL"));
        cases.push(Case { key: WORKER_TWO, ..with(Some(SHOP), UNDECLARED) });
        cases.push(Case { key: WORKER_TWO, ..with(Some(OPEN), OK) });
    }
    cases
}

/// Every listed parameter of every kind with a page passes with a value of the site, and a foreign host passes in none.
fn listed() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in Kind::known().filter(|kind| !kind.is_pageless()) {
        for listed in kind.params().filter(|name| !matches!(*name, "version" | "proxytype")) {
            let name = listed.replace('*', "blob");
            let with = |value: &str, expected| {
                let mut fields = needed(&kind);
                fields.retain(|(given, _)| *given != name);
                fields.extend([("pageurl", SHOP), (name.as_str(), value)]);
                case(&fields, expected)
            };
            if name != "proxy" {
                cases.push(with("https://shop.example.com/a", OK));
                cases.push(with("https://evil.example/a", UNDECLARED));
                cases.push(with("https%3A%2F%2Fevil.example%2Fa", UNDECLARED));
                cases.push(with("//evil.example/a", UNDECLARED));
            }
        }
        let mut fields = needed(&kind);
        fields.extend([("pageurl", SHOP), ("redirect_uri", "x")]);
        cases.push(case(&fields, BAD));
    }
    cases
}

/// The methods and parameters of the review that choose the real target. The shop opened none of them.
fn opened() -> Vec<Case> {
    let methods: [(&str, &[&str]); 16] = [
        ("vkcaptcha", &["redirect_uri"]),
        ("datadome", &["captcha_url"]),
        ("altcha", &["challenge_url", "challenge_json"]),
        ("amazon_waf", &["iv", "context", "challenge_script", "captcha_script"]),
        ("lemin", &["captcha_id", "api_server", "div_id"]),
        ("capy", &["captchakey", "api_server"]),
        ("atb_captcha", &["app_id", "api_server"]),
        ("tencent", &["app_id", "captcha_script"]),
        ("keycaptcha", &["s_s_c_user_id"]),
        ("cybersiara", &["master_url_id"]),
        ("cutcaptcha", &["misery_key", "api_key"]),
        ("mt_captcha", &[]),
        ("friendly_captcha", &[]),
        ("prosopo", &[]),
        ("captchafox", &[]),
        ("yandex", &[]),
    ];
    let mut cases = Vec::new();
    for (method, params) in methods {
        let with = |page, more: Option<(&str, &str)>, expected| {
            let mut fields = vec![("method", method), ("sitekey", "k"), ("pageurl", page)];
            fields.extend(more);
            case(&fields, expected)
        };
        cases.extend([with(SHOP, None, BAD), with(OPEN, None, OK), with(EVIL, None, UNDECLARED)]);
        cases.push(with(OPEN, Some(("not_opened", "x")), BAD));
        cases.push(case(&[("method", method), ("sitekey", "k")], BAD));
        for param in params {
            cases.push(with(OPEN, Some((param, "https://open.example.com/cb")), OK));
            for foreign in [
                "https://evil.example/cb",
                "evil.example",
                "https://open.example.com@evil.example/",
            ] {
                cases.push(with(OPEN, Some((param, foreign)), UNDECLARED));
            }
        }
    }
    let nested = "https://open.example.com/?referer=https%3A%2F%2Fevil.example%2F";
    cases.push(case(
        &[("method", "datadome"), ("pageurl", OPEN), ("captcha_url", nested)],
        UNDECLARED,
    ));
    cases
}

/// Vendors' hosts, names that stand in for checked fields, and pinned site keys.
fn the_rest() -> Vec<Case> {
    let recaptcha = [("method", "userrecaptcha"), ("googlekey", "k"), ("pageurl", SHOP)];
    let with = |name, value, expected| {
        let mut fields = recaptcha.to_vec();
        fields.push((name, value));
        case(&fields, expected)
    };
    let mut cases = vec![
        with("domain", "www.recaptcha.net", OK),
        with("action", "www.recaptcha.net", UNDECLARED),
        with("userAgent", "Mozilla/5.0 (X11) Chrome/120.0.0.0 (KHTML, like Gecko)", OK),
        with("min_score", "0.3", OK),
        with("data-s", "Ab3.Co/xyz+12==", OK),
        with("body", PICTURE, BAD),
        case(&[("method", "turnstyle"), ("sitekey", "k"), ("pageurl", SHOP)], BAD),
        case(&[("method", "turnstile"), ("sitekey", "a b"), ("pageurl", SHOP)], "ERROR_GOOGLEKEY"),
        case(&[("method", "turnstile"), ("sitekey", "pinned-key"), ("pageurl", PINNED)], OK),
        case(&[("method", "turnstile"), ("sitekey", "k"), ("pageurl", PINNED)], UNDECLARED),
    ];
    for shadow in [
        "PageUrl",
        "PAGEURL",
        "page_url",
        "url",
        "websiteURL",
        "websiteKey",
        "sitekey",
        "Pingback",
        "callback",
        "callbackUrl",
        "softId",
        "Key",
        "pageurl[]",
        "pageurl[0]",
    ] {
        cases.push(with(shadow, SHOP, BAD));
    }
    cases
}

/// Pictures and questions, with and without `[images]`.
fn pictures(expected: &'static str) -> Vec<Case> {
    let kinds = [Kind::Image, Kind::TextQuestion];
    let mut cases: Vec<Case> = kinds.iter().map(|kind| case(&needed(kind), expected)).collect();
    for foreign in kinds.iter().map(needed) {
        let mut with_page = foreign.clone();
        with_page.push(("pageurl", EVIL));
        cases.push(case(&with_page, UNDECLARED));
        let mut with_param = foreign;
        with_param.push(("redirect_uri", EVIL));
        cases.push(case(&with_param, if expected == OK { BAD } else { UNDECLARED }));
    }
    cases
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

async fn judge(images: &str, cases: Vec<Case>) {
    let dir = tempfile::tempdir().unwrap();
    let provider = LoggingProvider::start().await;
    let gateway = Gateway::start(dir.path(), &provider, images);
    for batch in cases.chunks(16) {
        let answers = join_all(batch.iter().map(|case| gateway.submit(case))).await;
        for (case, answer) in batch.iter().zip(answers) {
            assert_eq!(answer, case.expected, "{:?}", case.fields);
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

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_the_guard_allows_reaches_the_provider() {
    let mut cases = pages();
    cases.extend(listed());
    cases.extend(opened());
    cases.extend(the_rest());
    cases.extend(pictures(UNDECLARED));
    judge("", cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_reach_the_provider_only_when_images_are_declared() {
    judge("[images]\nbasis = \"own forms\"", pictures(OK)).await;
}
