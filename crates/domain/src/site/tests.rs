use proptest::prelude::*;

use super::*;

fn verdict(url: &str) -> &'static str {
    let rules =
        ["shop.example.com", "*.corp.example.org", "xn--bcher-kva.example", "api.example.net:8443"];
    let rules = rules.map(|rule| rule.parse::<HostRule>().unwrap());
    match PageUrl::parse(url) {
        Err(_) => "invalid",
        Ok(page) if rules.iter().any(|rule| rule.covers(&page)) => "declared",
        Ok(_) => "denied",
    }
}

#[test]
fn pages_on_which_parsers_disagree_are_refused() {
    for (url, expected) in [
        ("https://shop.example.com/login", "declared"),
        ("https://SHOP.Example.COM/login", "declared"),
        ("https://shop.example.com./", "declared"),
        ("https://shop.example.com:443/", "declared"),
        ("https://a.corp.example.org/", "declared"),
        ("https://a.b.corp.example.org/", "declared"),
        ("https://xn--bcher-kva.example/", "declared"),
        ("https://api.example.net:8443/x", "declared"),
        ("https://api.example.net/x", "denied"),
        ("https://shop.example.com:8443/", "denied"),
        ("http://shop.example.com/", "declared"),
        ("http://shop.example.com:443/", "denied"),
        ("https://shop.example.com:80/", "denied"),
        ("https://corp.example.org/", "denied"),
        ("https://evilcorp.example.org/", "denied"),
        ("https://evilshop.example.com/", "denied"),
        ("https://shop.example.com.evil.example/", "denied"),
        ("https://evil.example?@shop.example.com/", "denied"),
        ("http://localhost/", "denied"),
        ("https://shop.example.com@evil.example/", "invalid"),
        ("https://evil.example\\@shop.example.com/", "invalid"),
        ("https:shop.example.com", "invalid"),
        ("https:///shop.example.com", "invalid"),
        ("https:\\\\shop.example.com", "invalid"),
        ("https://shop\t.example.com/", "invalid"),
        ("https://ｓｈｏｐ.example.com/", "invalid"),
        ("https://sh\u{ad}op.example.com/", "invalid"),
        ("https://shop。example。com/", "invalid"),
        ("https://shop%2eexample.com/", "invalid"),
        ("https://shop.example.com%00.evil.example/", "invalid"),
        ("https://shop.xn--exmple-4nf.com/", "denied"),
        ("https://*.corp.example.org/", "invalid"),
        ("https://shop.example.com:0/", "invalid"),
        ("http://2130706433/", "invalid"),
        ("http://127.1/", "invalid"),
        ("http://[::1]/", "invalid"),
        ("http://intranet/", "invalid"),
        ("", "invalid"),
    ] {
        assert_eq!(verdict(url), expected, "{url}");
    }
}

#[test]
fn only_the_canonical_form_goes_on() {
    for (url, canonical) in [
        ("HTTPS://SHOP.Example.COM/Login?a=B#frag", "https://shop.example.com/Login?a=B"),
        ("https://shop.example.com.:443", "https://shop.example.com/"),
        ("https://shop.example.com/%0d%0aX", "https://shop.example.com/%0d%0aX"),
    ] {
        assert_eq!(PageUrl::parse(url).unwrap().as_str(), canonical);
    }
}

#[test]
fn a_unicode_host_is_answered_with_its_punycode_spelling() {
    let refusal = PageUrl::parse("https://shop.ex\u{430}mple.com/").unwrap_err();
    assert!(refusal.to_string().contains("xn--"), "{refusal}");
}

#[test]
fn rules_that_cover_too_much_are_refused() {
    for rule in [
        "*",
        "*.com",
        "*.co.uk",
        "https://shop.example.com",
        "127.0.0.1",
        "Shop.example.com",
        "a.example:0",
        "",
    ] {
        assert!(rule.parse::<HostRule>().is_err(), "{rule}");
    }
    for rule in ["shop.example.com", "*.example.com", "localhost", "a.example.com:8443"] {
        assert_eq!(rule.parse::<HostRule>().unwrap().to_string(), rule);
    }
}

proptest! {
    /// A URL that we call declared has the same host for a second parser.
    #[test]
    fn two_parsers_agree_on_what_is_taken(url in "(https?:)?[/\\\\]{0,3}[a-z@.%:\\[\\]0-9*\\-]{0,12}shop\\.example\\.com[ -~]{0,20}") {
        if let Ok(page) = PageUrl::parse(&url) {
            let second = Url::parse(page.as_str()).unwrap();
            prop_assert_eq!(second.host_str(), Some(page.host()));
            prop_assert_eq!(PageUrl::parse(page.as_str()).unwrap(), page);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(url in "\\PC{0,60}") {
        drop(PageUrl::parse(&url));
        drop(url.parse::<HostRule>());
    }
}

#[test]
fn rules_share_hosts_whatever_their_ports() {
    let share = |one: &str, other: &str| {
        let (one, other): (HostRule, HostRule) = (one.parse().unwrap(), other.parse().unwrap());
        let shared = one.shares_hosts_with(&other);
        assert_eq!(shared, other.shares_hosts_with(&one), "{one} and {other}");
        shared
    };
    assert!(share("shop.example.com", "shop.example.com:8443"));
    assert!(share("*.example.com", "shop.example.com"));
    assert!(share("*.example.com", "*.shop.example.com"));
    assert!(!share("*.example.com", "example.com"));
    assert!(!share("shop.example.com", "pay.example.com"));
    assert!(!share("*.example.com", "shopexample.com"));
}
