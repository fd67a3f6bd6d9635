//! The claims of the table, and the answer that docs/guard.md says each gets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::challenge::Kind;

use super::{
    BAD, Case, EVIL, OK, OPEN, OVER, PICTURE, PINNED, SHOP, UNDECLARED, WORKER_FOUR, WORKER_THREE,
};
use crate::support::{WORKER, WORKER_TWO};

pub(super) fn case(fields: &[(&str, &str)], expected: &'static str) -> Case {
    let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Case { key: WORKER, fields, expected }
}

/// The fields without which a method is incomplete, besides the page.
pub(super) fn needed(kind: &Kind) -> Vec<(&'static str, &'static str)> {
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

/// Every kind with a page: declared, not declared or no longer, absent, and for workers that are restricted to another site.
pub(super) fn pages() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in Kind::known().filter(|kind| !kind.is_pageless()) {
        let mut proxies = 8000..;
        let mut with = |page: Option<&str>, expected| {
            // Workers with one proxy share the clearance of a page.
            let proxy = format!("u:p@proxy.example.net:{}", proxies.next().unwrap());
            let mut fields = needed(&kind);
            for (name, value) in &mut fields {
                if *name == "proxy" {
                    *value = &proxy;
                }
            }
            fields.extend(page.map(|page| ("pageurl", page)));
            case(&fields, expected)
        };
        cases.push(with(Some(SHOP), OK));
        cases.push(with(Some(EVIL), UNDECLARED));
        cases.push(with(Some(OVER), UNDECLARED));
        cases.push(with(Some("https://shop.example.com:80/"), UNDECLARED));
        cases.push(with(None, "ERROR_PAGEURL"));
        for narrowed in [WORKER_TWO, WORKER_THREE] {
            cases.push(Case { key: narrowed, ..with(Some(SHOP), UNDECLARED) });
            cases.push(Case { key: narrowed, ..with(Some(OPEN), OK) });
            cases.push(Case { key: narrowed, ..with(Some(EVIL), UNDECLARED) });
        }
        cases.push(Case { key: WORKER_FOUR, ..with(Some(SHOP), OK) });
    }
    cases
}

/// Every listed parameter of every kind with a page passes with a value of the site, and a foreign host passes in none.
pub(super) fn listed() -> Vec<Case> {
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

/// The parameters that may name a vendor's host: the vendor's, the site's, and no other vendor's.
pub(super) fn script_hosts() -> Vec<Case> {
    let recaptcha = needed(&Kind::RecaptchaV2);
    let geetest = needed(&Kind::Geetest);
    let funcaptcha = needed(&Kind::Funcaptcha);
    let method = |name| vec![("method", name), ("sitekey", "k")];
    let table = [
        (recaptcha, SHOP, "domain", "www.recaptcha.net", "api.geetest.com"),
        (geetest, SHOP, "api_server", "api.geetest.com", "client-api.arkoselabs.com"),
        (funcaptcha, SHOP, "surl", "https://client-api.arkoselabs.com", "www.google.com"),
        (method("lemin"), OPEN, "api_server", "https://api.leminnow.com/", "www.google.com"),
        (
            method("datadome"),
            OPEN,
            "captcha_url",
            "https://geo.captcha-delivery.com/captcha/?cid=1",
            "https://geo.captcha-delivery.com/captcha/?referer=https%3A%2F%2Fevil.example%2F",
        ),
        (
            method("amazon_waf"),
            OPEN,
            "challenge_script",
            "https://a.token.awswaf.com/a/challenge.js",
            "https://captcha-delivery.com/a.js",
        ),
        (
            method("amazon_waf"),
            OPEN,
            "captcha_script",
            "https://a.captcha.awswaf.com/a/captcha.js",
            "https://awswaf.com.evil.example/a.js",
        ),
        (
            method("tencent"),
            OPEN,
            "captcha_script",
            "https://ca.turing.captcha.qcloud.com/T.js",
            "https://captcha.gtimg.com@evil.example/T.js",
        ),
    ];
    let mut cases = Vec::new();
    for (needed, page, name, own, foreign) in table {
        for (value, expected) in [
            (own, OK),
            (foreign, UNDECLARED),
            ("evil.example", UNDECLARED),
            ("https://evil.example/", UNDECLARED),
        ] {
            let more = [("pageurl", page), (name, value)];
            cases.push(case(&[&needed[..], &more].concat(), expected));
        }
    }
    cases
}

/// The methods and parameters of the review that choose the real target. The shop opened none of them.
pub(super) fn opened() -> Vec<Case> {
    let methods: [(&str, &[&str]); 16] = [
        ("vkcaptcha", &["redirect_uri"]),
        ("datadome", &["captcha_url"]),
        ("altcha", &["challenge_url", "challenge_json"]),
        ("amazon_waf", &["iv", "context", "challenge_script", "captcha_script"]),
        ("lemin", &["captcha_id", "api_server", "div_id"]),
        ("capy", &["captchakey", "api_server"]),
        ("atb_captcha", &["app_id", "api_server"]),
        ("tencent", &["app_id", "captcha_script"]),
        (
            "keycaptcha",
            &[
                "s_s_c_user_id",
                "s_s_c_session_id",
                "s_s_c_web_server_sign",
                "s_s_c_web_server_sign2",
            ],
        ),
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
        cases.extend(narrowed(method, params.first().copied()));
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

/// A method for the workers that are restricted to the site that opened it, with one of its parameters.
fn narrowed(method: &str, param: Option<&str>) -> Vec<Case> {
    let with = |key, page, target, expected| {
        let mut fields = vec![("method", method), ("sitekey", "k"), ("pageurl", page)];
        fields.extend(param.map(|name| (name, target)));
        Case { key, ..case(&fields, expected) }
    };
    let (own, foreign) = ("https://open.example.com/cb", "https://evil.example/cb");
    let mut cases = Vec::new();
    for key in [WORKER_TWO, WORKER_THREE] {
        cases.extend([with(key, OPEN, own, OK), with(key, SHOP, own, UNDECLARED)]);
        if param.is_some() {
            cases.push(with(key, OPEN, foreign, UNDECLARED));
        }
    }
    cases
}

/// Vendors' hosts, names that stand in for checked fields, and pinned site keys.
pub(super) fn the_rest() -> Vec<Case> {
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

/// The fields of the n-th challenge without a page. No two are equal, because equal pictures are solved once.
pub(super) fn pageless(kind: &Kind, n: usize) -> Vec<(String, String)> {
    let picture = STANDARD.encode(format!("GIF89a picture {n}"));
    let data = format!("data:image/gif;base64,{picture}");
    let question = format!("{n}+2");
    let fields: Vec<(&str, &str)> = if let Kind::Other(method) = kind {
        vec![("method", method), ("body", &picture)]
    } else {
        needed(kind)
    };
    fields
        .into_iter()
        .map(|(name, value)| {
            let value = match name {
                "body" => &picture,
                "image_base64_1" => &data,
                "textcaptcha" => &question,
                _ => value,
            };
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// Challenges without a page: every kind and method, with a page that is declared, opens methods, was declared, is not declared or
/// is absent, for every worker. `allowed` are the `kinds` of `[images]`.
pub(super) fn pictures(allowed: &[&str]) -> Vec<Case> {
    let methods = ["audio", "vkimage", "temuimage", "bounding_box"];
    let opened = methods.map(|method| Kind::Other(method.into()));
    let mut cases = Vec::new();
    for kind in Kind::known().filter(Kind::is_pageless).chain(opened) {
        for page in [None, Some(SHOP), Some(OPEN), Some(OVER), Some(EVIL)] {
            for key in [WORKER, WORKER_TWO, WORKER_THREE, WORKER_FOUR] {
                let expected = expected_of_picture(&kind, page, key, allowed);
                let mut fields = pageless(&kind, cases.len());
                fields.extend(page.map(|page| ("pageurl".to_owned(), page.to_owned())));
                cases.push(Case { key, fields, expected });
            }
        }
        cases.extend(foreign_parts(&kind, cases.len(), allowed.contains(&kind.name())));
    }
    cases
}

/// The rule of docs/guard.md.
fn expected_of_picture(
    kind: &Kind,
    page: Option<&str>,
    key: &str,
    allowed: &[&str],
) -> &'static str {
    let is_method = matches!(kind, Kind::Other(_));
    let is_narrowed = [WORKER_TWO, WORKER_THREE].contains(&key);
    let may_send = [WORKER, WORKER_THREE].contains(&key);
    match page {
        None if is_method => BAD,
        Some(EVIL | OVER) => UNDECLARED,
        Some(SHOP) if is_narrowed => UNDECLARED,
        _ if !may_send || !allowed.contains(&kind.name()) => UNDECLARED,
        Some(SHOP) if is_method => BAD,
        None | Some(_) => OK,
    }
}

/// A picture may name no target, and has its kind's parameters only.
fn foreign_parts(kind: &Kind, n: usize, is_allowed: bool) -> Vec<Case> {
    if matches!(kind, Kind::Other(_)) {
        return Vec::new();
    }
    let with = |n: usize, name: &str, value: &str, expected| {
        let mut fields = pageless(kind, n);
        fields.push((name.to_owned(), value.to_owned()));
        Case { key: WORKER, fields, expected: if is_allowed { expected } else { UNDECLARED } }
    };
    vec![
        with(n, "redirect_uri", EVIL, BAD),
        with(n + 1, "lang", "https://evil.example/", UNDECLARED),
        with(n + 2, "userAgent", "Mozilla/5.0 (https://evil.example/)", UNDECLARED),
        with(n + 3, "lang", "https://shop.example.com/", UNDECLARED),
        with(n + 4, "lang", "en", OK),
        with(n + 5, "proxy", "u:p@proxy.example.net:8080", OK),
    ]
}
