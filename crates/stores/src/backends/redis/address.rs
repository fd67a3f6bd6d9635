//! The URL of the store: `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+cluster://h1:p,h2:p`, with the options
//! `prefix=NAME` and, over TLS, `ca=FILE`.

use std::{fmt, path::Path, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};
use socket2::TcpKeepalive;

use crate::backends::server::{is_this_machine, options::UrlOptions, tls::read_authorities};

/// A server or a cluster, and the prefix of the store's keys.
#[derive(Clone)]
pub(super) struct RedisAddress {
    /// At least one.
    pub(super) nodes: Vec<ConnectionInfo>,
    pub(super) is_cluster: bool,
    pub(super) prefix: String,
    /// The certificate authorities in PEM; `None`: the public ones.
    authorities: Option<Vec<u8>>,
}

/// An idle connection is probed after this time.
const KEEPALIVE: Duration = Duration::from_secs(8);
const DEFAULT_PREFIX: &str = "solvegate";

impl RedisAddress {
    /// Reads a URL. Errors do not repeat it, because it may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = UrlOptions::parse(query, &["prefix", "ca"])?;
        let (scheme, rest) = location.split_once("://").ok_or("it has no ://")?;
        let (is_cluster, scheme) = match scheme {
            "redis+cluster" => (true, "redis"),
            "rediss+cluster" => (true, "rediss"),
            other => (false, other),
        };
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), rest),
        };
        let hosts: Vec<&str> = if is_cluster { hosts.split(',').collect() } else { vec![hosts] };
        let nodes = hosts.iter().map(|host| node(&format!("{scheme}://{user}{host}")));
        let nodes = nodes.collect::<Result<_, _>>()?;
        let prefix = options.take("prefix").unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        if !is_prefix(&prefix) {
            return Err("prefix= must be 1 to 40 of a-z, 0-9, - and _".to_owned());
        }
        let authorities = options.take("ca");
        if authorities.is_some() && scheme != "rediss" {
            return Err("ca=FILE needs TLS: use rediss://".to_owned());
        }
        let authorities =
            authorities.map(|file| read_authorities("ca", Path::new(&file))).transpose()?;
        let authorities = authorities.map(|(pem, _)| pem);
        Ok(Self { nodes, is_cluster, prefix, authorities })
    }

    /// Whether the connection to a node leaves this machine unencrypted.
    pub(super) fn is_exposed(&self) -> bool {
        // TLS always verifies the certificate here, and a Unix socket does not leave the machine.
        let leaves = |node: &ConnectionInfo| matches!(node.addr(), ConnectionAddr::Tcp(host, _) if !is_this_machine(host));
        self.nodes.iter().any(leaves)
    }

    pub(super) fn is_over_tls(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. }))
    }

    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.authorities.clone()?);
        Some(TlsCertificates { client_tls: None, root_cert })
    }
}

/// The servers without user and password.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        f.write_str(&nodes.join(", "))
    }
}

fn node(url: &str) -> Result<ConnectionInfo, String> {
    let malformed = |error: RedisError| {
        format!("{} (write it as redis://[user:password@]host[:port][/db])", error.category())
    };
    let info = url.into_connection_info().map_err(malformed)?;
    let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    // A commit is several packets, and none may wait for the acknowledgement of the one before. Keepalives notice a dead
    // connection within half a minute.
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

/// Whether a name is allowed as the prefix of the keys: 1 to 40 of a-z, 0-9, - and _.
pub fn is_prefix(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    (1..=40).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_to_another_machine_is_exposed() {
        let is_exposed = |url| RedisAddress::parse(url).unwrap().is_exposed();
        for url in ["redis://127.0.0.1", "redis://localhost:1", "redis://[::1]:1", "rediss://cache"]
        {
            assert!(!is_exposed(url), "{url}");
        }
        let mixed = "redis+cluster://127.0.0.1:1,10.0.0.1:2";
        for url in ["redis://cache", "redis://10.0.0.1", "redis://127.evil.example", mixed] {
            assert!(is_exposed(url), "{url}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let one = RedisAddress::parse("redis://127.0.0.1:7000/2?prefix=qa-1").unwrap();
        assert_eq!((one.prefix.as_str(), one.is_cluster, one.nodes.len()), ("qa-1", false, 1));
        assert_eq!(one.nodes[0].redis_settings().db(), 2);
        let many = RedisAddress::parse("redis+cluster://u:p@a:1,b:2").unwrap();
        assert_eq!(
            (many.prefix.as_str(), many.is_cluster, many.nodes.len()),
            ("solvegate", true, 2)
        );
        assert!(many.nodes.iter().all(|node| node.redis_settings().password() == Some("p")));
        assert_eq!(many.to_string(), "a:1, b:2");
        assert!(!many.is_over_tls());
        assert!(RedisAddress::parse("rediss+cluster://a:1,b:2").unwrap().is_over_tls());
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        for bad in [
            "redis://",
            "redis:/h",
            "redis://u:geheim@h:notaport",
            "redis://u:geheim@h?prefix=",
            "redis://u:geheim@h?prefix=A{b}",
            "redis://u:geheim@h?db=1",
            "redis://u:geheim@h?ca=Cargo.toml",
            "rediss://u:geheim@h?ca=no-such-file",
        ] {
            let Err(why) = RedisAddress::parse(bad) else { panic!("{bad} was taken") };
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
