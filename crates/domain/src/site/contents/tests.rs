use std::collections::BTreeMap;

use super::*;
use crate::challenge::ChallengeParts;

const PAGE: &str = "https://shop.example.com/login";

fn site() -> Site {
    Site::new("shop.example.com".parse().unwrap(), "own shop")
}

fn challenge(kind: Kind, params: &[(&str, &str)]) -> Challenge {
    let params: BTreeMap<_, _> =
        params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (sitekey, pageurl) = (Some("key-1".to_owned()), PageUrl::parse(PAGE).ok());
    Challenge::new(kind, ChallengeParts { sitekey, pageurl, params, ..ChallengeParts::default() })
        .unwrap()
}

fn refusal(site: &Site, challenge: &Challenge) -> String {
    site.check_contents(challenge).unwrap_err().to_string()
}

#[test]
fn an_unknown_method_is_refused_with_the_nearest_name_until_the_site_opens_it() {
    let yandex = challenge(Kind::Other("yandex".into()), &[]);
    let typo = challenge(Kind::Other("turnstyle".into()), &[]);
    let said = refusal(&site(), &typo);
    assert!(said.contains("did you mean \"turnstile\"? Otherwise, to open it, add"), "{said}");
    let half = challenge(Kind::Other("recaptcha".into()), &[]);
    let said_of_half = refusal(&site(), &half);
    assert!(said_of_half.contains("did you mean \"recaptcha_v2\"?"), "{said_of_half}");
    let alone = refusal(&site(), &challenge(Kind::Other("xyz".into()), &[]));
    assert!(alone.contains("\"xyz\"; to open it, add methods"), "{alone}");
    assert!(said.contains("methods = [\"turnstyle\"] to [[site]] shop.example.com"), "{said}");
    let mut open = site();
    open.opened.methods = vec!["yandex".into()];
    assert_eq!(open.check_contents(&yandex), Ok(()));
    let near = challenge(Kind::Other("yandx".into()), &[]);
    assert!(refusal(&open, &near).contains("did you mean \"yandex\"?"));
}

#[test]
fn a_parameter_beyond_the_kinds_list_is_refused_until_the_site_opens_it() {
    let typo = challenge(Kind::Turnstile, &[("actoin", "login")]);
    let said = refusal(&site(), &typo);
    assert!(
        said.contains("turnstile has no parameter `actoin`, did you mean \"action\"?"),
        "{said}"
    );
    assert!(said.contains("add params = [\"actoin\"] to [[site]] shop.example.com"), "{said}");
    let mut open = site();
    open.opened.params = vec!["div_id".into()];
    assert_eq!(open.check_contents(&challenge(Kind::Turnstile, &[("divId", "lemin")])), Ok(()));
    let foreign = challenge(Kind::Turnstile, &[("div_id", "https://evil.example/")]);
    assert!(refusal(&open, &foreign).contains("`div_id` names evil.example"));
}

#[test]
fn a_file_counts_as_a_parameter() {
    let parts = ChallengeParts {
        sitekey: Some("key-1".into()),
        pageurl: PageUrl::parse(PAGE).ok(),
        files: [("body".to_owned(), vec![1, 2, 3])].into(),
        ..ChallengeParts::default()
    };
    let pictured = Challenge::new(Kind::Turnstile, parts).unwrap();
    assert!(refusal(&site(), &pictured).contains("no parameter `body`"));
}

#[test]
fn pinned_site_keys_are_the_only_ones() {
    let mut pinned = site();
    pinned.opened.sitekeys = vec!["key-1".into(), "key-2".into()];
    pinned.opened.methods = vec!["lemin".into(), "datadome".into()];
    pinned.opened.params = vec!["captcha_id".into()];
    assert_eq!(pinned.check_contents(&challenge(Kind::Turnstile, &[])), Ok(()));
    pinned.opened.sitekeys = vec!["key-2".into()];
    assert!(refusal(&pinned, &challenge(Kind::Turnstile, &[])).contains("`sitekeys`"));
    let keyless = |params: &[(&str, &str)]| {
        let params: BTreeMap<_, _> =
            params.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let pageurl = PageUrl::parse(PAGE).ok();
        let parts = ChallengeParts { pageurl, params, ..ChallengeParts::default() };
        Challenge::new(Kind::Other("lemin".into()), parts).unwrap()
    };
    assert!(refusal(&pinned, &keyless(&[])).contains("has no site key"));
    assert!(refusal(&pinned, &keyless(&[("captcha_id", "key-3")])).contains("is not one of"));
    assert_eq!(pinned.check_contents(&keyless(&[("captcha_id", "key-2")])), Ok(()));
    // The page is opened, and there is no key.
    let clearance =
        challenge(Kind::CloudflareChallenge, &[("proxy", "h.example:1"), ("proxytype", "HTTP")]);
    assert_eq!(pinned.check_contents(&clearance), Ok(()));
}

#[test]
fn hosts_of_the_widget_are_allowed_in_their_own_parameter_only() {
    let passes = |kind: Kind, name: &str, value: &str| {
        let mut params = vec![(name, value)];
        if kind == Kind::Geetest {
            params.push(("challenge", "c"));
        }
        site().check_contents(&challenge(kind, &params)).is_ok()
    };
    assert!(passes(Kind::RecaptchaV2, "domain", "www.recaptcha.net"));
    assert!(passes(Kind::Geetest, "api_server", "api-na.geetest.com"));
    assert!(passes(Kind::Geetest, "apiServer", "https://api.geetest.com/"));
    assert!(passes(Kind::Funcaptcha, "surl", "https://client-api.arkoselabs.com"));
    assert!(!passes(Kind::RecaptchaV2, "domain", "evil.example"));
    assert!(!passes(Kind::RecaptchaV2, "action", "www.google.com"));
    assert!(!passes(Kind::Geetest, "api_server", "www.google.com"));
    assert!(!passes(Kind::Funcaptcha, "surl", "https://evil.example"));
    let cookies = r#"[{"name":"NID","domain":".google.com"},{"name":"a","domain":".example.com"}]"#;
    assert!(passes(Kind::RecaptchaV2, "json_cookies", cookies));
    assert!(!passes(Kind::RecaptchaV2, "json_cookies", r#"[{"domain":".evil.example"}]"#));
}

#[test]
fn without_a_page_no_host_is_covered() {
    let question = |text: &str| {
        let params = [("textcaptcha".to_owned(), text.to_owned())].into();
        let parts = ChallengeParts { params, ..ChallengeParts::default() };
        super::check(None, &Challenge::new(Kind::TextQuestion, parts).unwrap())
    };
    assert_eq!(question("What is two plus two?"), Ok(()));
    assert!(question("read https://shop.example.com/").is_err());
}

#[test]
fn the_ledger_sees_which_parameters_name_a_target() {
    let mixed = challenge(
        Kind::RecaptchaV2,
        &[("domain", "google.com"), ("action", "login"), ("proxy", "u:p@h.example:1")],
    );
    let names: Vec<_> = targets_of(&mixed).map(|(name, _)| name).collect();
    assert_eq!(names, ["domain"]);
}
