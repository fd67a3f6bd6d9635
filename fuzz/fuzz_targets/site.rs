//! The site matcher: a page is covered by a rule only if every parser sees the declared host in what is sent.

#![no_main]

use domain::site::{HostRule, PageUrl};
use libfuzzer_sys::fuzz_target;

const EXACT: &str = "shop.example.com";
const BELOW: &str = "*.example.com";
const WITH_PORT: &str = "shop.example.com:8443";

fuzz_target!(|text: &str| {
    let Ok(page) = PageUrl::parse(text) else { return };
    let sent = page.as_str();
    let again = PageUrl::parse(sent).expect("the canonical form is a page");
    assert_eq!(page, again, "the canonical form is stable");

    // The provider may use another URL parser. All of them must see the host that was checked.
    let parsed = url::Url::parse(sent).expect("a browser's parser accepts the canonical form");
    let host = parsed.host_str().expect("a page has a host");
    assert_eq!(host, page.host(), "{sent}");
    assert!(parsed.username().is_empty() && parsed.password().is_none(), "{sent}");
    let authority = sent.split_once("://").expect("a page has a scheme").1;
    let authority = &authority[..authority.find(['/', '?', '#', '\\']).unwrap_or(authority.len())];
    assert_eq!(authority.split(':').next(), Some(page.host()), "{sent}");

    let covers = |rule: &str| rule.parse::<HostRule>().expect("a rule").covers(&page);
    assert!(!covers(EXACT) || host == "shop.example.com", "{sent}");
    assert!(!covers(BELOW) || host.ends_with(".example.com"), "{sent}");
    let port = parsed.port_or_known_default();
    assert!(!covers(WITH_PORT) || (host == "shop.example.com" && port == Some(8443)), "{sent}");
    if covers(EXACT) {
        assert!(matches!(port, Some(80 | 443)), "{sent}");
    }
});
