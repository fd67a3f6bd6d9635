use proptest::{prelude::*, sample};

use super::*;

const SHOP: &str = "shop.example.com";

/// Whether every target in the value is the shop's.
fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn passes(value: &str, reading: Reading) -> bool {
    let rule: HostRule = SHOP.parse().unwrap();
    find(value, reading).iter().all(|target| target.is_covered_by(&rule))
}

#[test]
fn foreign_targets_are_found_however_they_are_written() {
    for value in FOREIGN {
        assert!(!passes(value, Reading::Full), "{value}");
    }
}

#[test]
fn the_sites_own_targets_and_ordinary_values_pass() {
    for value in [
        "",
        "login",
        "0.3",
        "1",
        "v3",
        "en-GB",
        "shop.example.com",
        "shop.example.com.",
        "SHOP.example.com:443",
        "shop.example.com/a/b",
        "//shop.example.com/x",
        "https://shop.example.com",
        "http://shop.example.com/a?b=c#d",
        "https%3A%2F%2Fshop.example.com%2F",
        "https://shop.example.com/?next=https%3A%2F%2Fshop.example.com%2Fa&x=1",
        "next=https://shop.example.com&x=1",
        r#"{"a":"https://shop.example.com","b":"c"}"#,
        "/relative/path",
        "homepage/login",
        "a:b;c:d",
        "0x4AAAAAAADnPIDROrmt1Wwj",
        "2026-11-18T12:30:00Z",
        "100%",
    ] {
        let found = find(value, Reading::Full);
        assert!(passes(value, Reading::Full), "{value}: {found:?}");
    }
}

#[test]
fn data_of_widgets_passes_unless_it_has_a_url() {
    let jwt =
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
    for value in [
        jwt,
        "//8AAAB+/w==",
        "Ab3.Co/xyz+12==",
        "a.b/c.de/+f",
        "_ga:GA1.2.123.456;session:abc",
        "utm:google.com|x;k:v",
        "80001aa1affffc21",
    ] {
        assert!(passes(value, Reading::Blob), "{value}");
    }
    for value in [
        "https://evil.example",
        "evil.example",
        r#"{"u":"evil.example"}"#,
        "a:https%3A%2F%2Fevil.example",
    ] {
        assert!(!passes(value, Reading::Blob), "{value}");
    }
}

#[test]
fn words_for_people_pass_unless_they_have_a_url() {
    for value in [
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
        "Click every bus. Then press OK",
        "If tomorrow is Saturday, what day is today?",
        "type what you see: 3/4 or a//b",
        "What is the first word on example.org?",
        "点击公交车。然后按确定",
    ] {
        assert!(passes(value, Reading::Prose), "{value}");
    }
    for value in [
        "solve the challenge at https://evil.example/login",
        "open //evil.example/x please",
        "Googlebot/2.1 (+http://www.google.com/bot.html)",
    ] {
        assert!(!passes(value, Reading::Prose), "{value}");
    }
}

#[test]
fn a_value_that_means_a_host_is_the_widgets_or_the_sites() {
    let vendors = &["www.google.com", "*.geetest.com"];
    let is_fine = |value: &str| {
        let rule: HostRule = SHOP.parse().unwrap();
        find(value, Reading::Vendor(vendors))
            .iter()
            .all(|target| target.is_covered_by(&rule) || target.is_one_of(vendors))
    };
    for value in [
        "",
        "www.google.com",
        "WWW.google.com.",
        "https://www.google.com/recaptcha/api.js",
        "//api.geetest.com",
        "api.geetest.com/get.php",
        SHOP,
    ] {
        assert!(is_fine(value), "{value}");
    }
    for value in [
        "google",
        "evil.example",
        "geetest.com",
        "www.google.com:8443",
        "www.google.com@evil.example",
        "www.google.com.evil.example",
        "evil.example/?https://www.google.com/",
        "https://www.google.com/url?q=https://evil.example",
        "javascript:alert(1)",
        "evil.unknownsuffix",
    ] {
        assert!(!is_fine(value), "{value}");
    }
}

#[test]
fn a_proxy_is_no_target() {
    assert!(find("user:pass@proxy.example.net:8080", Reading::Proxy).is_empty());
}

/// The ways to hide a URL in a value.
fn wrap(url: &str, how: usize) -> String {
    let encoded: String = form_encode(url);
    match how % 8 {
        0 => url.to_owned(),
        1 => encoded,
        2 => form_encode(&encoded),
        3 => format!("https://{SHOP}/?next={encoded}"),
        4 => format!("https://{SHOP}/?a=1&next={url}"),
        5 => serde_json::json!({ "a": [{ "b": url }] }).to_string(),
        6 => format!("a=1; b={url}; c=2"),
        _ => serde_json::json!(serde_json::json!({ "u": url }).to_string()).to_string(),
    }
}

fn form_encode(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") }
        })
        .collect()
}

proptest! {
    #[test]
    fn a_foreign_url_is_found_in_every_wrapping(
        name in "[a-z]{1,10}", top in sample::select(vec!["com", "net", "de", "co.uk", "example", "io"]),
        scheme in sample::select(vec!["https://", "http://", "//", "HTTPS:", "https:/", ""]),
        path in "(/[a-z0-9]{0,6}){0,3}", how in 0_usize..8, twice in 0_usize..8,
    ) {
        let url = format!("{scheme}{name}.{top}{path}");
        prop_assert!(!passes(&wrap(&url, how), Reading::Full), "{}", wrap(&url, how));
        if how != 2 && twice != 2 {
            let wrapped = wrap(&wrap(&url, how), twice);
            prop_assert!(!passes(&wrapped, Reading::Full), "{}", wrapped);
        }
    }

    #[test]
    fn the_shops_own_url_passes_in_every_wrapping(
        scheme in sample::select(vec!["https://", "http://", "//", ""]), path in "(/[a-z0-9]{1,6}){0,3}", how in 0_usize..8,
    ) {
        let wrapped = wrap(&format!("{scheme}{SHOP}{path}"), how);
        prop_assert!(passes(&wrapped, Reading::Full), "{}: {:?}", wrapped, find(&wrapped, Reading::Full));
    }

    /// Where a browser's parser reads an http URL, the detector either finds the same host or something that no rule covers.
    #[test]
    fn no_url_is_covered_whose_host_a_browser_reads_differently(
        value in "(https?:)?[/\\\\]{0,3}[a-z@.%:;,&=\"'\\[\\]0-9*\\-]{0,12}(shop\\.example\\.com)?[ -~]{0,20}",
    ) {
        let base = url::Url::parse("https://shop.example.com/dir/").unwrap();
        if let Ok(url) = base.join(&value) && matches!(url.scheme(), "http" | "https") && url.host_str().map(|host| host.trim_end_matches('.')) != Some(SHOP) {
            prop_assert!(!passes(&value, Reading::Full), "{} reads as {}", value, url);
        }
    }

    #[test]
    fn base64_and_hex_are_no_targets(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        use base64::Engine as _;
        let texts = [
            base64::engine::general_purpose::STANDARD.encode(&bytes),
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&bytes),
            hex(&bytes),
        ];
        for text in texts {
            prop_assert!(passes(&text, Reading::Blob), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_detector_panic(value in "\\PC{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for reading in [Reading::Full, Reading::Blob, Reading::Prose, Reading::Vendor(&["a.example"])] {
            drop(find(&value, reading));
            drop(find(&String::from_utf8_lossy(&bytes), reading));
        }
    }
}

const FOREIGN: [&str; 62] = [
    "https://evil.example/",
    "HTTPS://EVIL.example",
    "http://evil.example:8080/x",
    "https:evil.example",
    "https:/evil.example",
    "https:\\\\evil.example",
    "https:///evil.example",
    "//evil.example/x",
    "\\\\evil.example",
    "/\\evil.example",
    "///evil.example",
    "//evil",
    "//2130706433/",
    "ws://evil.example",
    "ftp://evil.example",
    "chrome-extension://abcdef/x",
    "http://127.0.0.1/",
    "http://[::1]/",
    "http://0x7f000001/",
    "https://evil",
    "https://shop.example.com@evil.example/",
    "https://shop.example.com,@evil.example/",
    "https://shop.example.com\"@evil.example/",
    "https://shop.example.com&.evil.example/",
    "https://shop.example.com;evil.example/",
    "https://shop.example.com:8443/",
    "https://shop.example.com:80/",
    "https://shop.example.com.evil.example/",
    "https%3A%2F%2Fevil.example",
    "https%253A%252F%252Fevil.example",
    "%2f%2fevil.example",
    "https:\\/\\/evil.example\\/x",
    "https:\\u002f\\u002fevil.example",
    "https://shop.example.com/?next=https://evil.example/",
    "https://shop.example.com/?next=https%3A%2F%2Fevil.example%2F",
    "https://shop.example.com/?next=//evil.example",
    "https://shop.example.com/go/https://evil.example",
    "https://shop.example.com/?host=evil.example&x=1",
    "https://shop.example.com/#evil.example",
    r#"{"a":{"b":["https://evil.example/"]}}"#,
    r#"{"a":"https://evil.example/","a":"x"}"#,
    r#"{"a":"{\"b\":\"evil.example\"}"}"#,
    r#"{"\u0068ost":"\u0065vil.example"}"#,
    "evil.example",
    "evil.example.",
    "EVIL.Example",
    "evil.co.uk",
    "evil.example:443",
    "evil.example/path",
    "someone@evil.example",
    "a=evil.example;b=2",
    "127.0.0.1",
    "::1",
    "[::1]:80",
    "localhost",
    "localhost:3000",
    "bücher.de",
    "xn--bcher-kva.de",
    "evil。com",
    "ｅｖｉｌ.com",
    "server.internal",
    "%25252525252525252525",
];
