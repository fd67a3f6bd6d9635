//! Tells public addresses from all others, which could lead a webhook into the operator's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address that is not public, worded for "its host is …"; `None` for a public one.
pub(super) fn why_not_public(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => why_not_v4(ip),
        IpAddr::V6(ip) => why_not_v6(ip),
    }
}

/// The IANA special-purpose address registry, plus the one public address that Azure uses for its own services.
fn why_not_v4(ip: Ipv4Addr) -> Option<&'static str> {
    Some(match ip.octets() {
        [127, ..] => "a loopback address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        [169, 254, ..] => "a link-local address",
        [100, 64..=127, ..] => "a carrier's private address",
        [0, ..] => "an unspecified address",
        [224..=239, ..] => "a multicast address",
        [255, 255, 255, 255] => "a broadcast address",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "a documentation address",
        [198, 18..=19, ..] => "a benchmarking address",
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => "a reserved address",
        [168, 63, 129, 16] => "a cloud's metadata address",
        _ => return None,
    })
}

/// Global unicast is `2000::/3`; outside of it only NAT64 reaches the public internet. NAT64 and 6to4 are judged by the
/// IPv4 address they embed.
fn why_not_v6(ip: Ipv6Addr) -> Option<&'static str> {
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            why_not_v4(joined(high, low))
        }
        // Teredo, benchmarking and other protocol assignments.
        [0x2001, 0..=0x1ff, ..] => Some("a reserved address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("a documentation address"),
        [0x2000..=0x3fff, ..] => None,
        other => Some(outside(other)),
    }
}

fn outside(segments: [u16; 8]) -> &'static str {
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an unspecified address",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        // IPv4-mapped and IPv4-compatible addresses, which no receiver needs.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => {
            why_not_v4(joined(high, low)).unwrap_or("an IPv4 address in disguise")
        }
        [0xfc00..=0xfdff, ..] => "a private address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xfec0..=0xfeff, ..] => "a site-local address",
        [0xff00..=0xffff, ..] => "a multicast address",
        _ => "a reserved address",
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_address_has_its_name_at_both_ends() {
        for (class, ends) in [
            (
                "a loopback address",
                &["127.0.0.0", "127.255.255.255", "::1", "::ffff:127.0.0.1"][..],
            ),
            ("a private address", &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255"]),
            ("a private address", &["192.168.0.0", "192.168.255.255", "fc00::", "fdff::1"]),
            ("a private address", &["::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1"]),
            ("a private address", &["2002:a00:1::", "2002:c0a8:101::1"]),
            ("a link-local address", &["169.254.0.0", "169.254.169.254", "fe80::1", "febf::1"]),
            ("a link-local address", &["64:ff9b::169.254.169.254", "2002:a9fe:a9fe::"]),
            ("a carrier's private address", &["100.64.0.0", "100.127.255.255", "100.100.100.200"]),
            ("an unspecified address", &["0.0.0.0", "0.255.255.255", "::"]),
            ("a multicast address", &["224.0.0.0", "239.255.255.255", "ff02::1", "ffff::"]),
            ("a broadcast address", &["255.255.255.255", "::ffff:255.255.255.255"]),
            ("a documentation address", &["192.0.2.1", "198.51.100.1", "203.0.113.1"]),
            (
                "a documentation address",
                &["2001:db8::", "2001:db8:ffff::1", "3fff::", "3fff:fff::"],
            ),
            ("a benchmarking address", &["198.18.0.0", "198.19.255.255"]),
            ("a reserved address", &["192.0.0.192", "192.88.99.1", "240.0.0.0", "255.255.255.254"]),
            ("a reserved address", &["2001::1", "2001:0:4136:e378::", "2001:2::", "2001:1ff::"]),
            (
                "a reserved address",
                &["64:ff9b:1::", "64:ff9b:0:1::", "100::1", "5f00::1", "4000::"],
            ),
            ("a site-local address", &["fec0::1", "feff::1"]),
            ("a cloud's metadata address", &["168.63.129.16"]),
            ("an IPv4 address in disguise", &["::ffff:8.8.8.8", "::8.8.8.8"]),
        ] {
            for ip in ends {
                assert_eq!(why_not_public(ip.parse().unwrap()), Some(class), "{ip}");
            }
        }
    }

    #[test]
    fn addresses_just_outside_are_public() {
        for ip in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "8.8.8.8",
            "168.63.129.17",
            "2000::",
            "2001:200::",
            "2001:db7::",
            "2001:db9::",
            "2606:4700::1111",
            "2a00::1",
            "3ffe::1",
            "3fff:1000::",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(why_not_public(ip.parse().unwrap()), None, "{ip}");
        }
    }
}
