//! Which addresses may receive webhooks: at least one table row for every way into a private network.

use std::sync::Arc;

use domain::ports::WebhookSender as _;
use upstream::{BadWebhookConfig, WebhookClient, WebhookConfig};

use crate::{
    callbacks::{hooks, secret, webhook},
    support::{HandClock, Server, ok},
};

/// The refused addresses by reason. Each has a canary where a secret might be.
#[rustfmt::skip]
const REFUSED: &[(&str, &[&str])] = &[
    ("is a loopback address", &[
        "https://127.0.0.1/canary", "https://127.1/canary", "https://2130706433/canary",
        "https://0x7f000001/canary", "https://0177.0.0.1/canary", "https://0x7f.1:8443/canary",
        "https://127.0.0.1./canary", "https://[::1]/canary", "https://[::ffff:127.0.0.1]/canary",
        "https://[::127.0.0.1]/canary", "https://[64:ff9b::7f00:1]/canary", "https://[2002:7f00:1::]/canary",
        "https://①②⑦.⓪.⓪.①/canary", "https://%31%32%37.0.0.1/canary", r"https:\\127.0.0.1\canary",
    ]),
    ("is a private address", &[
        "https://10.0.0.1/canary", "https://172.16.0.1/canary", "https://192.168.1.1/canary",
        "https://[::ffff:10.0.0.1]/canary", "https://[fd00::1]/canary", "https://[64:ff9b::a00:1]/canary",
    ]),
    ("is a link-local address", &[
        "https://169.254.169.254/canary", "https://0xa9fea9fe/canary", "https://[fe80::1]/canary",
        "https://[::ffff:169.254.169.254]/canary", "https://[2002:a9fe:a9fe::]/canary",
    ]),
    ("is a carrier's private address", &["https://100.64.0.1/canary", "https://100.100.100.200/canary"]),
    ("is an unspecified address", &["https://0/canary", "https://0.0.0.0/canary", "https://[::]/canary"]),
    ("is a multicast address", &["https://224.0.0.1/canary", "https://[ff02::1]/canary"]),
    ("is a broadcast address", &["https://255.255.255.255/canary", "https://4294967295/canary"]),
    ("is a documentation address", &["https://192.0.2.1/canary", "https://[2001:db8::1]/canary"]),
    ("is a benchmarking address", &["https://198.18.0.1/canary"]),
    ("is a reserved address", &[
        "https://240.0.0.1/canary", "https://192.0.0.192/canary", "https://[2001:0:4136:e378::1]/canary",
        "https://[64:ff9b:1::a00:1]/canary",
    ]),
    ("is a site-local address", &["https://[fec0::1]/canary"]),
    ("resolves to a loopback address", &["https://localhost/canary", "https://LOCALHOST./canary"]),
    ("is not encrypted", &["http://127.0.0.1:6379/canary", "http://hooks.example.com/?canary"]),
    ("neither 443 nor 8443", &["https://hooks.example.com:25/canary", "https://hooks.example.com:80/canary"]),
    ("does not start with https://", &[
        "file:///etc/canary", "gopher://127.0.0.1/canary", "ftp://hooks.example.com/canary", "data:,canary",
    ]),
    ("not an absolute URL", &["", "/canary", "hooks.example.com/canary", "https://", "https://1.2.3.4.5/canary", "https://[::1/canary"]),
    ("user name or a password", &["https://canary@hooks.example.com/", "https://a:canary@hooks.example.com/"]),
    ("contains a fragment", &["https://hooks.example.com/#canary", "https://hooks.example.com/#"]),
    ("spaces or control characters", &[
        " https://hooks.example.com/canary", "https://hooks.example.com/ca nary\r\nx: y",
        "https://hooks\t.example.com/canary", "https://hooks.example.com/canary\0", "https://hooks.example.com/\u{85}canary",
    ]),
    ("neither a DNS name nor an IP address", &["https://-hooks-.example.com/canary", "https://a..b/canary", "https://hooks.exa!mple.com/canary"]),
];

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_with_a_reason() {
    let hooks = hooks(&[]);
    for (reason, addresses) in REFUSED {
        for address in *addresses {
            let refused = hooks.check(None, address).await.expect_err(address);
            assert!(refused.0.contains(reason), "{address}: {refused}");
            assert!(refused.0.starts_with("the address is refused: "), "{refused}");
            assert!(refused.0.len() <= 250 && !refused.0.contains("canary"), "{refused}");
            let not_delivered = hooks.send(&webhook(address)).await.expect_err(address);
            assert_eq!(not_delivered.0, refused.0, "{address}");
        }
    }
}

#[tokio::test]
async fn an_address_of_2048_characters_is_read_and_a_longer_one_is_not() {
    let of = |length: usize| format!("{:x<length$}", "https://93.184.215.14/");
    let hooks = hooks(&[]);
    hooks.check(None, &of(2048)).await.unwrap();
    let refused = hooks.check(None, &of(2049)).await.unwrap_err();
    assert!(refused.0.contains("longer than 2048"), "{refused}");
}

#[tokio::test]
async fn a_public_address_is_taken_in_any_notation() {
    let hooks = hooks(&[]);
    for address in [
        "https://93.184.215.14",
        "https://93.184.215.14:8443/hook?id=1",
        "https://0x5db8d70e/",
        "https://[2606:4700::1111]/",
        "https://[64:ff9b::5db8:d70e]/",
    ] {
        assert_eq!(hooks.check(None, address).await, Ok(()), "{address}");
    }
}

/// The listener is on this machine, so any connection to it has passed the rules.
#[tokio::test]
async fn a_listener_on_this_machine_receives_nothing_unless_its_host_is_listed() {
    let server = Server::answering(ok("")).await;
    let port = server.url.rsplit(':').next().unwrap();
    let hosts = ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "[::ffff:127.0.0.1]", "localhost"];
    for listed in [vec![], vec!["127.0.0.1:1"], vec!["127.0.0.2"], vec!["localhost.example.com"]] {
        let hooks = hooks(&listed);
        for host in hosts {
            for scheme in ["http", "https"] {
                let url = format!("{scheme}://{host}:{port}/");
                assert!(hooks.check(None, &url).await.is_err(), "{listed:?} {url}");
                assert!(hooks.send(&webhook(&url)).await.is_err(), "{listed:?} {url}");
            }
        }
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_listed_host_may_be_private_and_unencrypted_on_its_port_or_on_any() {
    let hooks = hooks(&[
        "Hooks.Internal.:8080",
        "10.0.0.1",
        "b\u{fc}cher.internal",
        "plain:80",
        "[fd00::1]:443",
    ]);
    for allowed in [
        "http://hooks.internal:8080/",
        "https://HOOKS.internal.:8080/",
        "http://10.0.0.1/",
        "http://0x0a.1:9/",
        "http://xn--bcher-kva.internal/",
        "http://plain/",
        "https://plain:80/",
        "https://[fd00::1]/",
        "http://[fd00:0::1]:443/",
    ] {
        assert_eq!(hooks.check(None, allowed).await, Ok(()), "{allowed}");
    }
    for refused in [
        "http://hooks.internal/",
        "http://hooks.internal:8081/",
        "http://sub.hooks.internal:8080/",
        "https://plain:81/",
        "http://[fd00::1]/",
        "http://user@10.0.0.1/",
        "ftp://10.0.0.1/",
    ] {
        assert!(hooks.check(None, refused).await.is_err(), "{refused}");
    }
}

#[test]
fn a_listed_host_that_is_not_a_host_is_refused_at_start() {
    for bad in [
        "",
        ":80",
        "a b",
        "http://hooks.internal",
        "hooks/",
        "u@hooks",
        "::1",
        "a:99999",
        "a..b",
        "*.internal",
    ] {
        let config = WebhookConfig { trusted: vec![bad.into()], ..WebhookConfig::new(secret()) };
        let refused = WebhookClient::new(config, Arc::new(HandClock::default())).unwrap_err();
        assert!(matches!(refused, BadWebhookConfig::Host(_)), "{bad}: {refused}");
    }
}
