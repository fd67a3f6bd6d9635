//! The URL of the store: `postgres://[user[:password]@]host[:port][/database]`, with the options `schema=NAME`, `listen=URL`,
//! `sslmode=disable|prefer|require|verify-full`, `sslrootcert=FILE`, and those of PostgreSQL's own URLs.

use std::{fmt, path::PathBuf, time::Duration};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use url::Url;

use crate::backends::server::{is_this_machine, options::UrlOptions};

/// A server, and the schema of the tables there.
#[derive(Clone)]
pub(super) struct PostgresAddress {
    pub(super) config: Config,
    pub(super) tls: TlsOptions,
    pub(super) schema: String,
    /// Where to listen for notifications, if the server is behind a pooler.
    listen: Option<Box<PostgresAddress>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsOptions {
    /// Whether the server's certificate is verified.
    pub(super) is_verified: bool,
    /// The certificate authorities; `None`: the public ones.
    pub(super) roots: Option<PathBuf>,
}

const DEFAULT_SCHEMA: &str = "solvegate";
/// An idle connection is probed after this time.
const KEEPALIVE: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Our options first, then those that `tokio_postgres` reads.
const OPTIONS: &[&str] = &[
    "schema",
    "listen",
    "sslmode",
    "sslrootcert",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

impl PostgresAddress {
    /// Reads a URL. Errors do not repeat it, because it may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let mut url = Url::parse(url).map_err(|why| format!("{why} ({FORM})"))?;
        let mut options = UrlOptions::parse(url.query().unwrap_or_default(), OPTIONS)?;
        let schema = options.take("schema").unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        if !is_schema(&schema) {
            return Err(BAD_SCHEMA.to_owned());
        }
        let roots = options.take("sslrootcert").map(PathBuf::from);
        let (ssl, is_verified) = ssl_mode(options.take("sslmode").as_deref(), roots.is_some())?;
        let listen = options.take("listen").map(|url| Self::parse(&url)).transpose();
        let listen = listen.map_err(|why| format!("in listen=: {why}"))?.map(Box::new);
        url.set_query(None);
        let rest = options.rest();
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        let mut config: Config =
            url.as_str().parse().map_err(|_| format!("an option has an invalid value ({FORM})"))?;
        if config.get_hosts().is_empty() {
            return Err(format!("it names no host ({FORM})"));
        }
        config.ssl_mode(ssl).application_name("solvegate").connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(3);
        Ok(Self { config, tls: TlsOptions { is_verified, roots }, schema, listen })
    }

    /// Whether the server is on this machine, or verified by its certificate.
    pub(super) fn is_private(&self) -> bool {
        let local = |host: &Host| match host {
            Host::Tcp(name) => is_this_machine(name),
            Host::Unix(_) => true,
        };
        // `hostaddr` is where the connection goes, whatever the host's name.
        let is_here = self.config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
        self.tls.is_verified || (is_here && self.config.get_hosts().iter().all(local))
    }

    /// Whether the connection may be unencrypted.
    pub(super) fn may_be_plain(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Require
    }

    /// The server to listen to for notifications.
    pub(super) fn listen_address(&self) -> &Self {
        self.listen.as_deref().unwrap_or(self)
    }

    /// The channel of the claim notifications.
    pub(super) fn channel(&self) -> String {
        format!("{}_bell", self.schema)
    }
}

const FORM: &str = "write it as postgres://user:password@host:5432/database";
const BAD_SCHEMA: &str =
    "schema= must be 1 to 40 of a-z, 0-9 and _, and begin with neither a digit nor pg_";

/// The servers without user and password.
impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let hosts = self.config.get_hosts().iter().enumerate().map(|(at, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(dir) => dir.display().to_string(),
        });
        f.write_str(&hosts.collect::<Vec<_>>().join(", "))
    }
}

/// Whether a name is allowed as the schema: 1 to 40 of a-z, 0-9 and _, beginning with neither a digit nor pg_.
pub fn is_schema(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    begins && name.len() <= 40 && name.bytes().all(plain) && !name.starts_with("pg_")
}

fn ssl_mode(mode: Option<&str>, has_roots: bool) -> Result<(SslMode, bool), String> {
    Ok(match mode {
        None | Some("prefer") if !has_roots => (SslMode::Prefer, false),
        Some("disable") => (SslMode::Disable, false),
        Some("require") if !has_roots => (SslMode::Require, false),
        None | Some("prefer" | "require" | "verify-ca" | "verify-full") => (SslMode::Require, true),
        Some(_) => {
            return Err("sslmode= must be disable, prefer, require or verify-full".to_owned());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let one = PostgresAddress::parse("postgres://u:p@db:6432/shop?schema=qa_1&sslmode=require")
            .unwrap();
        assert_eq!((one.schema.as_str(), one.to_string().as_str()), ("qa_1", "db:6432"));
        assert_eq!(one.config.get_dbname(), Some("shop"));
        assert_eq!(one.config.get_password(), Some(&b"p"[..]));
        assert!(!one.may_be_plain() && !one.is_private());
        let two =
            PostgresAddress::parse("postgresql://db/x?listen=postgres%3A%2F%2Fdirect%3A5433%2Fx")
                .unwrap();
        assert_eq!(
            (two.schema.as_str(), two.listen_address().to_string().as_str()),
            ("solvegate", "direct:5433")
        );
        let three = PostgresAddress::parse("postgres://db/x?sslrootcert=ca.pem").unwrap();
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
            let Err(why) = PostgresAddress::parse(bad) else { panic!("{bad} was taken") };
            assert!(!why.contains("geheim"), "{why}");
        }
    }
}
