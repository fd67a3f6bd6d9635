//! Where the server is: `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+cluster://h1:p,h2:p`, each with
//! `?prefix=name`, and over TLS with `ca=file`.

use std::{fs, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};
use socket2::TcpKeepalive;

/// A server or a cluster, and the prefix of the keys there.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) nodes: Vec<ConnectionInfo>,
    pub(super) is_cluster: bool,
    pub(super) prefix: String,
    /// Who vouches for the server, in PEM; `None`: the authorities everybody trusts.
    authorities: Option<Vec<u8>>,
}

/// What may stand behind the question mark.
struct Wishes {
    prefix: String,
    authorities: Option<Vec<u8>>,
}

/// A connection that was silent for so long is tried.
const IDLE: Duration = Duration::from_secs(8);
/// What the prefix is when nobody says.
const PREFIX: &str = "solvegate";

impl Address {
    /// Reads a URL; what is wrong with it is said without repeating it, for it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let Wishes { prefix, authorities } = Wishes::parse(query)?;
        let (scheme, rest) = place.split_once("://").ok_or("it has no ://")?;
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
        if authorities.is_some() && scheme != "rediss" {
            return Err("ca=FILE is for rediss://, which is over TLS".to_owned());
        }
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, is_cluster, prefix, authorities })
    }

    /// Whether what travels there is encrypted.
    pub(super) fn is_over_tls(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. }))
    }

    /// Whom to trust, where it is not everybody's authorities.
    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.authorities.clone()?);
        Some(TlsCertificates { client_tls: None, root_cert })
    }

    /// The servers, for messages.
    pub(super) fn shown(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        nodes.join(", ")
    }
}

fn node(url: &str) -> Result<ConnectionInfo, String> {
    let wrong = |error: RedisError| {
        format!("{} (write it as redis://[user:password@]host[:port][/db])", error.category())
    };
    let info = url.into_connection_info().map_err(wrong)?;
    let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    // A commit is several packets, and none of them may wait for the answer to the one before. A way that was cut
    // without a word is noticed within half a minute.
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE).with_retries(3);
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

impl Wishes {
    fn parse(query: &str) -> Result<Self, String> {
        let mut wishes = Self { prefix: PREFIX.to_owned(), authorities: None };
        for wish in query.split('&').filter(|wish| !wish.is_empty()) {
            match wish.split_once('=') {
                Some(("prefix", name)) if is_prefix(name) => name.clone_into(&mut wishes.prefix),
                Some(("prefix", _)) => {
                    return Err("its prefix must be 1 to 40 of a-z, 0-9, - and _".to_owned());
                }
                Some(("ca", file)) => {
                    let read = fs::read(file);
                    let pem = read.map_err(|why| format!("its ca file cannot be read: {why}"))?;
                    wishes.authorities = Some(pem);
                }
                _ => return Err("after ? only prefix=NAME and ca=FILE are known".to_owned()),
            }
        }
        Ok(wishes)
    }
}

/// Whether keys of a Redis may begin with this name: 1 to 40 of a-z, 0-9, - and _.
pub fn is_prefix(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    (1..=40).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let one = Address::parse("redis://127.0.0.1:7000/2?prefix=qa-1").unwrap();
        assert_eq!((one.prefix.as_str(), one.is_cluster, one.nodes.len()), ("qa-1", false, 1));
        assert_eq!(one.nodes[0].redis_settings().db(), 2);
        let many = Address::parse("redis+cluster://u:p@a:1,b:2").unwrap();
        assert_eq!(
            (many.prefix.as_str(), many.is_cluster, many.nodes.len()),
            ("solvegate", true, 2)
        );
        assert!(many.nodes.iter().all(|node| node.redis_settings().password() == Some("p")));
        assert_eq!(many.shown(), "a:1, b:2");
        assert!(!many.is_over_tls());
        assert!(Address::parse("rediss+cluster://a:1,b:2").unwrap().is_over_tls());
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
            let Err(why) = Address::parse(bad) else { panic!("{bad} was taken") };
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
