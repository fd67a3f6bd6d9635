use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    challenge::{ChallengeParts, Kind, check_name},
    site::PageUrl,
};

fn challenge(kind: &Kind, sitekey: &str, page: &str, params: &[(&str, &str)]) -> Challenge {
    let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let pageurl = Some(PageUrl::parse(page).unwrap());
    Challenge::new(
        kind.clone(),
        ChallengeParts { sitekey: Some(sitekey.into()), pageurl, params, files: BTreeMap::new() },
    )
    .unwrap()
}

fn image(bytes: &[u8], params: &[(&str, &str)]) -> Challenge {
    let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let files = BTreeMap::from([("body".to_owned(), bytes.to_vec())]);
    Challenge::new(Kind::Image, ChallengeParts { sitekey: None, pageurl: None, params, files })
        .unwrap()
}

fn of(challenge: &Challenge) -> String {
    Fingerprint::of(challenge, Identity::default()).to_string()
}

/// Golden vectors: a change here orphans every key and token at rest, so it needs a new version number.
#[test]
fn golden_vectors() {
    let page = "https://shop.example.com/login";
    for (challenge, expected) in [
        (challenge(&Kind::Turnstile, "0x4AAA", page, &[]), include_str!("golden/turnstile.txt")),
        (
            challenge(
                &Kind::RecaptchaV3,
                "6Lc",
                page,
                &[("action", "login"), ("min_score", "0.4")],
            ),
            include_str!("golden/recaptcha_v3.txt"),
        ),
        (image(b"\x89PNG-bytes", &[("numeric", "1")]), include_str!("golden/image.txt")),
    ] {
        assert_eq!(of(&challenge), expected.trim());
    }
}

#[test]
fn the_proxy_counts_unless_the_site_says_otherwise() {
    let page = "https://shop.example.com/";
    let with =
        |proxy| challenge(&Kind::Turnstile, "k", page, &[("proxy", proxy), ("proxytype", "HTTP")]);
    assert_ne!(of(&with("a:1")), of(&with("b:1")));
    let ignoring = Identity { ignores_proxy: true };
    assert_eq!(Fingerprint::of(&with("a:1"), ignoring), Fingerprint::of(&with("b:1"), ignoring));
}

#[test]
fn separators_cannot_be_forged() {
    let a = challenge(&Kind::Turnstile, "a:b", "https://shop.example.com/c", &[]);
    let b = challenge(&Kind::Turnstile, "a", "https://shop.example.com/b:c", &[]);
    assert_ne!(of(&a), of(&b));
    let a = challenge(&Kind::Turnstile, "k", "https://shop.example.com/", &[("ab", "c")]);
    let b = challenge(&Kind::Turnstile, "k", "https://shop.example.com/", &[("a", "bc")]);
    assert_ne!(of(&a), of(&b));
}

#[test]
fn pictures_with_equal_headers_differ() {
    let mut first = vec![0x55; 4000];
    first[3999] = 1;
    let mut second = first.clone();
    second[3999] = 2;
    assert_ne!(of(&image(&first, &[])), of(&image(&second, &[])));
    assert_ne!(of(&image(&first, &[("phrase", "1")])), of(&image(&first, &[])));
}

#[test]
fn keys_are_scoped_to_their_worker() {
    let [a, b] = ["a", "b"].map(|name| WorkerName::new(name).unwrap());
    assert_ne!(KeyHash::named(&a, "k"), KeyHash::named(&b, "k"));
    assert_ne!(KeyHash::named(&a, "CaSe"), KeyHash::named(&a, "case"));
    for bad in ["", "a\tb", &"k".repeat(256), "ä"] {
        assert_eq!(KeyHash::named(&a, bad), Err(BadKey));
    }
    assert!(KeyHash::named(&a, &"k".repeat(255)).is_ok());
}

type Fields = (String, String, BTreeMap<String, String>);

fn fields() -> impl Strategy<Value = Fields> {
    // Names like `pag__e` are refused, because they could stand in for the page.
    let name = "p[a-z_]{0,6}"
        .prop_filter("a checked field", |name| check_name(&Kind::Turnstile, name).is_ok());
    let params = proptest::collection::btree_map(name, "[ -~]{0,12}", 0..5);
    ("[0-9A-Za-z_-]{1,12}", "[a-z/]{0,8}", params)
}

fn build((sitekey, path, params): &Fields) -> Challenge {
    let page = format!("https://shop.example.com/{path}");
    let params: Vec<_> = params.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    challenge(&Kind::Turnstile, sitekey, &page, &params)
}

proptest! {
    #[test]
    fn any_changed_identity_field_changes_it(a in fields(), b in fields()) {
        let (first, second) = (build(&a), build(&b));
        prop_assert_eq!(first == second, of(&first) == of(&second));
    }

    #[test]
    fn the_order_of_parameters_never_matters(a in fields()) {
        let mut turned: Vec<_> = a.2.clone().into_iter().collect();
        turned.reverse();
        let turned = (a.0.clone(), a.1.clone(), turned.into_iter().collect());
        prop_assert_eq!(of(&build(&a)), of(&build(&turned)));
    }
}
