//! Where the server is: `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+cluster://h1:p,h2:p`, each with
//! `?prefix=name`.

use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo, RedisError};
use socket2::TcpKeepalive;

/// A server or a cluster, and the prefix of the keys there.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) nodes: Vec<ConnectionInfo>,
    pub(super) is_cluster: bool,
    pub(super) prefix: String,
}

/// A connection that was silent for so long is tried.
const IDLE: Duration = Duration::from_secs(8);
/// What the prefix is when nobody says.
const PREFIX: &str = "solvegate";

impl Address {
    /// Reads a URL; what is wrong with it is said without repeating it, for it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let prefix = prefix_of(query)?;
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
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, is_cluster, prefix })
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

fn prefix_of(query: &str) -> Result<String, String> {
    if query.is_empty() {
        return Ok(PREFIX.to_owned());
    }
    let is_name = |name: &str| {
        (1..=40).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
    };
    match query.strip_prefix("prefix=") {
        Some(prefix) if is_name(prefix) => Ok(prefix.to_owned()),
        Some(_) => Err("its prefix must be 1 to 40 of a-z, 0-9, - and _".to_owned()),
        None => Err("after ? only prefix=NAME is known".to_owned()),
    }
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
        ] {
            let Err(why) = Address::parse(bad) else { panic!("{bad} was taken") };
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
