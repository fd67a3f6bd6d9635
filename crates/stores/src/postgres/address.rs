//! Where the server is: `postgres://[user[:password]@]host[:port][/database]`, with `?schema=name`, `?listen=URL`,
//! `?sslmode=disable|prefer|require|verify-full`, `?sslrootcert=FILE` and what else PostgreSQL's URLs know.

use std::{path::PathBuf, time::Duration};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use url::Url;

/// A server, and the schema of the tables there.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) schema: String,
    /// Where hints are listened for, if not there: past a pooler.
    pub(super) listen: Option<Box<Address>>,
}

/// How much is asked of the way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    /// Whether the server must prove who it is.
    pub(super) is_verified: bool,
    /// Who vouches for it, if not the public authorities.
    pub(super) roots: Option<PathBuf>,
}

/// What the schema is when nobody says.
const SCHEMA: &str = "solvegate";
/// A connection that was silent for so long is tried.
const IDLE: Duration = Duration::from_secs(8);
/// A server that does not take a connection within this is away.
const CONNECTING: Duration = Duration::from_secs(2);

impl Address {
    /// Reads a URL; what is wrong with it is said without repeating it, for it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let mut url = Url::parse(url).map_err(|why| format!("{why} ({FORM})"))?;
        let asked: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into(), value.into())).collect();
        let (mut schema, mut listen, mut mode, mut roots) = (SCHEMA.to_owned(), None, None, None);
        let mut others = Vec::new();
        for (name, value) in asked {
            match name.as_str() {
                "schema" => schema = checked_schema(value)?,
                "listen" => listen = Some(value),
                "sslmode" => mode = Some(value),
                "sslrootcert" => roots = Some(PathBuf::from(value)),
                _ => others.push((name, value)),
            }
        }
        url.set_query(None);
        if !others.is_empty() {
            url.query_pairs_mut().extend_pairs(others);
        }
        let mut config: Config =
            url.as_str().parse().map_err(|_| format!("it is not understood ({FORM})"))?;
        if config.get_hosts().is_empty() {
            return Err(format!("it names no host ({FORM})"));
        }
        let (ssl, is_verified) = ssl_mode(mode.as_deref(), roots.is_some())?;
        config.ssl_mode(ssl).application_name("solvegate").connect_timeout(CONNECTING);
        config.keepalives_idle(IDLE).keepalives_interval(IDLE).keepalives_retries(3);
        let listen = listen.map(|url| Self::parse(&url)).transpose();
        let listen = listen.map_err(|why| format!("in listen=: {why}"))?.map(Box::new);
        Ok(Self { config, tls: Tls { is_verified, roots }, schema, listen })
    }

    /// The server, for messages.
    pub(super) fn shown(&self) -> String {
        let ports = self.config.get_ports();
        let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
        let hosts = self.config.get_hosts().iter().enumerate().map(|(place, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(place)),
            Host::Unix(dir) => dir.display().to_string(),
        });
        hosts.collect::<Vec<_>>().join(", ")
    }

    /// Whether the way there is on this machine, or encrypted to one that has proved who it is.
    pub(super) fn is_private(&self) -> bool {
        let local = |host: &Host| match host {
            Host::Tcp(name) => ["127.0.0.1", "::1", "localhost"].contains(&name.as_str()),
            Host::Unix(_) => true,
        };
        self.tls.is_verified || self.config.get_hosts().iter().all(local)
    }

    /// Whether it may be unencrypted.
    pub(super) fn may_be_plain(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Require
    }

    /// Where hints are listened for.
    pub(super) fn listening(&self) -> &Self {
        self.listen.as_deref().unwrap_or(self)
    }

    /// The channel of the hints.
    pub(super) fn channel(&self) -> String {
        format!("{}_bell", self.schema)
    }
}

const FORM: &str = "write it as postgres://user:password@host:5432/database";

/// Whether a schema of PostgreSQL may have this name: 1 to 40 of a-z, 0-9 and _, beginning with neither a digit nor pg_.
pub fn is_schema(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    begins && name.len() <= 40 && name.bytes().all(plain) && !name.starts_with("pg_")
}

fn checked_schema(name: String) -> Result<String, String> {
    if is_schema(&name) {
        return Ok(name);
    }
    Err("its schema must be 1 to 40 of a-z, 0-9 and _, and begin with neither a digit nor pg_"
        .to_owned())
}

fn ssl_mode(mode: Option<&str>, has_roots: bool) -> Result<(SslMode, bool), String> {
    Ok(match mode {
        None | Some("prefer") if !has_roots => (SslMode::Prefer, false),
        Some("disable") => (SslMode::Disable, false),
        Some("require") if !has_roots => (SslMode::Require, false),
        None | Some("prefer" | "require" | "verify-ca" | "verify-full") => (SslMode::Require, true),
        Some(_) => {
            return Err("its sslmode must be disable, prefer, require or verify-full".to_owned());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let one =
            Address::parse("postgres://u:p@db:6432/shop?schema=qa_1&sslmode=require").unwrap();
        assert_eq!((one.schema.as_str(), one.shown().as_str()), ("qa_1", "db:6432"));
        assert_eq!(one.config.get_dbname(), Some("shop"));
        assert_eq!(one.config.get_password(), Some(&b"p"[..]));
        assert!(!one.may_be_plain() && !one.is_private());
        let two =
            Address::parse("postgresql://db/x?listen=postgres%3A%2F%2Fdirect%3A5433%2Fx").unwrap();
        assert_eq!(
            (two.schema.as_str(), two.listening().shown().as_str()),
            ("solvegate", "direct:5433")
        );
        let three = Address::parse("postgres://db/x?sslrootcert=ca.pem").unwrap();
        assert!(three.is_private() && !three.may_be_plain());
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        for bad in [
            "postgres://",
            "postgres://u:geheim@h:notaport/x",
            "postgres://u:geheim@h/x?schema=",
            "postgres://u:geheim@h/x?schema=a\"b",
            "postgres://u:geheim@h/x?schema=pg_catalog",
            "postgres://u:geheim@h/x?sslmode=maybe",
            "postgres://u:geheim@h/x?listen=postgres%3A%2F%2Fu%3Ageheim%40h%3Anoport",
            "postgres://u:geheim@h/x?unheard=of",
        ] {
            let Err(why) = Address::parse(bad) else { panic!("{bad} was taken") };
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
