//! Where decisions are made: the store's URL, which may hold a password and is shown without it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use domain::secret::Secret;
use url::Url;

use crate::config::{
    ConfigError,
    environment::Environment,
    raw::{RawSecret, RawStore},
    secret::Reader,
};

/// Where the embedded store and what the program keeps for itself are, when nothing is said.
const DEFAULT_DATA: &str = "./solvegate-data";

const LEDGER: &str = "[store] ledger";

/// What the URLs of servers look like.
const SERVERS: &str = "redis://host:6379, rediss://user:password@host:6379/0 or \
                       redis+cluster://host:7000,host:7001, each with ?prefix=name where wanted and over \
                       TLS with ?ca=FILE, or postgres://user:password@host:5432/database with ?schema=name, or \
                       dynamodb:TABLE?region=NAME";

/// What may stand after the `?` of a PostgreSQL URL.
const POSTGRES_OPTIONS: &str = "schema listen sslmode sslrootcert user password host port dbname options \
                                connect_timeout tcp_user_timeout keepalives target_session_attrs";

/// A store's URL. Shown, it has neither password nor query: `redis://…@host:6379/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    url: Secret,
    shown: String,
    is_shared: bool,
}

/// The parts of a server's URL.
struct Server<'u> {
    scheme: &'u str,
    user: Option<&'u str>,
    hosts: &'u str,
    database: &'u str,
    query: Option<&'u str>,
}

/// The store, and the directory for what the program itself keeps.
pub(super) fn check(
    raw: &RawStore,
    secrets: &Reader<'_>,
    data: Option<&Path>,
) -> Result<(StoreUrl, Option<PathBuf>), ConfigError> {
    let own = || data.unwrap_or(Path::new(DEFAULT_DATA)).to_owned();
    let store = match (&raw.url, data) {
        (Some(written), _) => StoreUrl::read("[store] url", written, secrets)?,
        // A directory was named: that chooses the embedded store.
        (None, Some(_)) => StoreUrl::embedded(&own()),
        (None, None) => {
            named_by_tutorials(secrets.environment)?.unwrap_or_else(|| StoreUrl::embedded(&own()))
        }
    };
    let data = match store.directory() {
        Some(dir) => Some(data.unwrap_or(dir).to_owned()),
        // What is made at the first start (keys, a certificate) has to be found at the next, whatever the store.
        None if store.is_shared => Some(own()),
        None => data.map(Path::to_owned),
    };
    Ok((store, data))
}

/// Where the history of the store is kept, if not in itself.
pub(super) fn check_ledger(
    raw: &RawStore,
    store: &StoreUrl,
    secrets: &Reader<'_>,
) -> Result<Option<StoreUrl>, ConfigError> {
    let Some(written) = &raw.ledger else { return Ok(None) };
    let ledger = StoreUrl::read(LEDGER, written, secrets)?;
    if ledger.is_where(store) {
        let what = "is the store itself; name another one, or remove the key: then the store keeps its history";
        return Err(ConfigError::at(LEDGER, what));
    }
    Ok(Some(ledger))
}

/// The store the tutorials' variables name.
fn named_by_tutorials(environment: &Environment) -> Result<Option<StoreUrl>, ConfigError> {
    if let Some(url) = environment.get("REDIS_URL") {
        return StoreUrl::parse("REDIS_URL", url).map(Some);
    }
    if let Some(host) = environment.get("REDIS_HOST") {
        let port = environment.get("REDIS_PORT").unwrap_or("6379");
        if port.parse::<u16>().is_err() {
            return Err(ConfigError::at("REDIS_PORT", "expected a port's number such as 6379"));
        }
        return StoreUrl::parse("REDIS_HOST", &format!("redis://{host}:{port}")).map(Some);
    }
    if let Some(url) = environment.get("DATABASE_URL") {
        return StoreUrl::parse_database("DATABASE_URL", url).map(Some);
    }
    match environment.get("DYNAMODB_TABLE") {
        Some(table) => StoreUrl::parse("DYNAMODB_TABLE", &format!("dynamodb:{table}")).map(Some),
        None => Ok(None),
    }
}

// === impl StoreUrl ===

impl StoreUrl {
    /// The URL itself: for whoever connects, never for people.
    pub fn expose(&self) -> &str {
        self.url.expose()
    }

    /// Whether other gateways may decide there too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether it is the same place as another. Two tables of one name are, unless both say that they are elsewhere: a region may
    /// be left to the environment.
    fn is_where(&self, other: &Self) -> bool {
        if !self.is_table() || !other.is_table() {
            return self.place() == other.place();
        }
        let (here, there) = (self.table_place(), other.table_place());
        let is_open = here.is_empty() || there.is_empty();
        self.shown == other.shown && (is_open || here == there)
    }

    /// Where a table is said to be.
    fn table_place(&self) -> Vec<&str> {
        let query = self.expose().split_once('?').map_or("", |(_, query)| query);
        let says_where = |wish: &&str| wish.starts_with("region=") || wish.starts_with("endpoint=");
        let mut wishes: Vec<&str> = query.split('&').filter(says_where).collect();
        wishes.sort_unstable();
        wishes
    }

    /// What tells two apart, whoever is asked for by whichever name and password.
    fn place(&self) -> (&str, &str, Option<&str>) {
        match Server::split(self.expose()).filter(|_| self.is_shared) {
            Some(server) => {
                let database = server.database.trim_start_matches('/');
                let usual = if server.is_postgres() { "" } else { "0" };
                (server.hosts, if database.is_empty() { usual } else { database }, server.corner())
            }
            None => (self.expose(), "", None),
        }
    }

    /// Whether it is a table of DynamoDB.
    pub fn is_table(&self) -> bool {
        self.expose().starts_with("dynamodb:")
    }

    /// Whether it lives and dies with the process.
    pub fn is_memory(&self) -> bool {
        self.expose() == "memory:"
    }

    /// The directory of the embedded store.
    pub fn directory(&self) -> Option<&Path> {
        self.expose().strip_prefix("embedded:").map(Path::new)
    }

    /// The server's hosts, `host` or `host:port`.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let is_server = self.is_shared && !self.is_table();
        let server = Server::split(self.expose()).filter(|_| is_server);
        server.into_iter().flat_map(|server| server.hosts.split(','))
    }

    /// Whether what travels to the server can be read on the way.
    pub fn is_in_the_clear(&self) -> bool {
        // Of PostgreSQL the store itself says so: it depends on the server, too.
        self.is_shared && ["redis:", "redis+"].iter().any(|plain| self.expose().starts_with(plain))
    }

    fn embedded(dir: &Path) -> Self {
        Self::local(format!("embedded:{}", dir.display()))
    }

    fn local(url: String) -> Self {
        Self { shown: url.clone(), url: Secret::new(url), is_shared: false }
    }

    /// Reads what was written: `env:NAME`, `file:PATH`, or the URL itself. With a password in it, it is a secret.
    fn read(place: &str, written: &RawSecret, secrets: &Reader<'_>) -> Result<Self, ConfigError> {
        let text = &written.0;
        let elsewhere = text.starts_with("env:") || text.starts_with("file:");
        let is_secret = Server::split(text).is_some_and(|server| server.has_secret());
        if elsewhere || is_secret {
            return Self::parse(place, secrets.read(place, written)?.expose());
        }
        Self::parse(place, text)
    }

    fn parse(place: &str, text: &str) -> Result<Self, ConfigError> {
        let refused = |what: String| Err(ConfigError::at(place, what));
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::local(text.into())),
            Some(("embedded", dir)) if !dir.is_empty() => Ok(Self::local(text.into())),
            Some(("redis" | "rediss" | "redis+cluster" | "rediss+cluster", _)) => {
                Self::server(place, text)
            }
            Some(("postgres" | "postgresql", _)) => Self::server(place, text),
            Some(("dynamodb", _)) => Self::table(place, text),
            Some(_) | None => refused(format!("expected memory:, embedded:DIR, {SERVERS}")),
        }
    }

    #[cfg(feature = "dynamodb")]
    fn table(place: &str, text: &str) -> Result<Self, ConfigError> {
        let (table, _) = stores::table_of(text).map_err(|why| ConfigError::at(place, why))?;
        Ok(Self { url: Secret::new(text), shown: format!("dynamodb:{table}"), is_shared: true })
    }

    #[cfg(not(feature = "dynamodb"))]
    fn table(place: &str, _text: &str) -> Result<Self, ConfigError> {
        let what = "this program was built without DynamoDB; build it with the feature dynamodb, or name another store";
        Err(ConfigError::at(place, what))
    }

    /// A variable that other programs use for any database.
    fn parse_database(place: &str, text: &str) -> Result<Self, ConfigError> {
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => Self::server(place, text),
            Some(_) | None => Err(ConfigError::at(
                place,
                format!(
                    "is no PostgreSQL; write postgres://user:password@host:5432/database, or, to go on with the \
                     embedded store, [store] url = \"embedded:{DEFAULT_DATA}\" or --data DIR"
                ),
            )),
        }
    }

    fn server(place: &str, text: &str) -> Result<Self, ConfigError> {
        let refused = |what: &str| ConfigError::at(place, format!("{what}; write {SERVERS}"));
        let server = Server::split(text).ok_or_else(|| refused("is no address of a server"))?;
        server.check().map_err(refused)?;
        let user = if server.user.is_some() { "…@" } else { "" };
        let Server { scheme, hosts, database, .. } = server;
        let shown = format!("{scheme}://{user}{hosts}{database}");
        Ok(Self { url: Secret::new(text), shown, is_shared: true })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

// === impl Server ===

impl<'u> Server<'u> {
    /// By hand: a list of hosts is no URL to others.
    fn split(text: &'u str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        // A password may hold anything but must not be cut in half, or its second half would be shown.
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(u, r)| (Some(u), r));
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
        let (hosts, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Some(Self { scheme, user, hosts, database, query })
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.user.is_some_and(|user| user.contains(['/', '?', '#'])) {
            return Err("has a password with characters that must be written as %2F, %3F and %23");
        }
        if self.is_postgres() {
            return self.check_postgres();
        }
        let is_cluster = self.scheme.ends_with("+cluster");
        if !is_cluster && self.hosts.contains(',') {
            return Err("names several hosts, which only a cluster has");
        }
        if !self.hosts.split(',').all(is_host) {
            return Err("has no host, or one that is none");
        }
        match self.database {
            "" | "/" => {}
            _ if is_cluster => return Err("names a database, which a cluster has none of"),
            number if number[1..].parse::<u16>().is_ok() => {}
            _ => return Err("names a database that is not a number"),
        }
        self.query.map_or(Ok(()), check_query)
    }

    fn check_postgres(&self) -> Result<(), &'static str> {
        if self.hosts.contains(',') {
            return Err("names several hosts; name the primary, or what leads to it");
        }
        if !is_host(self.hosts) {
            return Err("has no host, or one that is none");
        }
        let known = |name: &str| POSTGRES_OPTIONS.split_whitespace().any(|known| known == name);
        if !self.options().all(|(name, _)| known(name)) {
            return Err("has an option at its end that is not known");
        }
        self.corner().map_or(Ok(()), check_schema)
    }

    fn is_postgres(&self) -> bool {
        self.scheme.starts_with("postgres")
    }

    /// Whether there is a password in it. A Redis may have one that looks like a name.
    fn has_secret(&self) -> bool {
        let in_user = self.user.is_some_and(|user| !self.is_postgres() || user.contains(':'));
        in_user || self.options().any(|(name, value)| name == "password" || value.contains("%40"))
    }

    fn options(&self) -> impl Iterator<Item = (&'u str, &'u str)> {
        let pairs = self.query.into_iter().flat_map(|query| query.split('&'));
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// The part of the server that is its own: a prefix or a schema.
    fn corner(&self) -> Option<&'u str> {
        if !self.is_postgres() {
            return self.query;
        }
        self.options().find_map(|(name, value)| (name == "schema").then_some(value))
    }
}

fn check_schema(name: &str) -> Result<(), &'static str> {
    if stores::is_schema(name) {
        return Ok(());
    }
    Err("has a schema that is not 1 to 40 of a-z, 0-9 and _, or begins with a digit or pg_")
}

/// `host`, `host:port`, `[::1]:port`.
fn is_host(text: &str) -> bool {
    let plain = |url: &Url| url.path().is_empty() && url.fragment().is_none();
    let url = Url::parse(&format!("redis://{text}")).ok().filter(plain);
    url.and_then(|url| url.host_str().map(|host| !host.is_empty() && !host.contains('%')))
        .unwrap_or(false)
}

fn check_query(query: &str) -> Result<(), &'static str> {
    for wish in query.split('&') {
        match wish.split_once('=') {
            Some(("prefix", name)) if stores::is_prefix(name) => {}
            Some(("prefix", _)) => {
                return Err("has a prefix that is not 1 to 40 of a-z, 0-9, - and _");
            }
            Some(("ca", file)) if !file.is_empty() => {}
            _ => return Err("has something else than ?prefix=name and ca=FILE at its end"),
        }
    }
    Ok(())
}
