//! The URL of the store. It may hold a password and prints without it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use domain::secret::Secret;
use url::Url;

use crate::config::{ConfigError, Environment, written::Given};

/// The directory of the embedded store and of made keys.
const DEFAULT_DATA: &str = "./solvegate-data";

const REDIS: &str = "redis://host:6379, rediss://user:password@host:6379/0 or redis+cluster://host:7000,host:7001, \
                     with ?prefix=name to share the server and, over TLS, ?ca=FILE";
const POSTGRES: &str = "postgres://user:password@host:5432/database, with ?schema=name to share it";

/// The options after the `?` of a PostgreSQL URL.
const POSTGRES_OPTIONS: &str = "schema listen sslmode sslrootcert user password host port dbname options \
                                connect_timeout tcp_user_timeout keepalives target_session_attrs";

/// A store's URL. Shown, it has neither password nor query: `redis://…@host:6379/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    url: Secret,
    shown: String,
    is_shared: bool,
}

/// Which connections to stores are allowed.
#[derive(Clone, Copy)]
pub(super) struct Links<'e> {
    pub(super) environment: &'e Environment,
    /// `insecure_store`.
    pub(super) may_be_insecure: bool,
}

/// The parts of a server's URL.
struct Server<'u> {
    scheme: &'u str,
    user: Option<&'u str>,
    hosts: &'u str,
    database: &'u str,
    query: Option<&'u str>,
}

/// The store, and the directory for keys and certificates the program makes.
pub(super) fn check(
    url: Option<Given<StoreUrl>>,
    links: Links<'_>,
    data: Option<&Path>,
) -> Result<(StoreUrl, Option<PathBuf>), ConfigError> {
    let own = || data.unwrap_or(Path::new(DEFAULT_DATA)).to_owned();
    let store = match (url, data) {
        (Some(url), _) => url.check(|url| links.check(url))?,
        // --data chooses the embedded store.
        (None, Some(_)) => StoreUrl::embedded(&own()),
        (None, None) => named_by_tutorials(links)?.unwrap_or_else(|| StoreUrl::embedded(&own())),
    };
    let data = match store.directory() {
        Some(dir) => Some(data.unwrap_or(dir).to_owned()),
        // Keys and certificates made at the first start are needed at the next one, with any store.
        None if store.is_shared => Some(own()),
        None => data.map(Path::to_owned),
    };
    Ok((store, data))
}

/// The store of the history, if it is another one.
pub(super) fn check_ledger(
    ledger: Option<Given<StoreUrl>>,
    store: &StoreUrl,
    links: Links<'_>,
) -> Result<Option<StoreUrl>, ConfigError> {
    let check = |ledger: StoreUrl| {
        let what =
            "is the store itself; name another one, or remove the key to keep history in the store";
        if ledger.is_where(store) { Err(what.to_owned()) } else { links.check(ledger) }
    };
    ledger.map(|ledger| ledger.check(check)).transpose()
}

/// The store named by the variables of CaptchaAI's tutorials.
fn named_by_tutorials(links: Links<'_>) -> Result<Option<StoreUrl>, ConfigError> {
    let environment = links.environment;
    let named = |variable, store: Result<StoreUrl, String>| {
        let store = store.and_then(|store| links.check(store));
        store.map(Some).map_err(|what| ConfigError::at(variable, what))
    };
    if let Some(url) = environment.get("REDIS_URL") {
        return named("REDIS_URL", StoreUrl::parse(url));
    }
    if let Some(host) = environment.get("REDIS_HOST") {
        let port = environment.get("REDIS_PORT").unwrap_or("6379");
        if port.parse::<u16>().is_err() {
            return named("REDIS_PORT", Err("expected a port number such as 6379".into()));
        }
        return named("REDIS_HOST", StoreUrl::parse(&format!("redis://{host}:{port}")));
    }
    if let Some(url) = environment.get("DATABASE_URL") {
        return named("DATABASE_URL", StoreUrl::parse_database(url));
    }
    match environment.get("DYNAMODB_TABLE") {
        Some(table) => named("DYNAMODB_TABLE", StoreUrl::parse(&format!("dynamodb:{table}"))),
        None => Ok(None),
    }
}

// === impl Links ===

impl Links<'_> {
    /// Refuses a store that others on the network could read, or pretend to be.
    fn check(self, store: StoreUrl) -> Result<StoreUrl, String> {
        if self.may_be_insecure || !self.is_exposed(&store) {
            return Ok(store);
        }
        let remedy = match store.expose() {
            url if url.starts_with("postgres") => {
                "add ?sslmode=verify-full, with &sslrootcert=FILE for a certificate authority of your own"
            }
            url if url.starts_with("redis") => {
                "use rediss://, with ?ca=FILE for a certificate authority of your own"
            }
            _ => "use an endpoint with https://",
        };
        Err(format!(
            "{store} is on another machine, and others on the network could read the connection or pretend to be the \
             server; {remedy}, or, on a network that you trust as a whole, set insecure_store = true"
        ))
    }

    /// Amazon's SDK takes the endpoint from these variables if the URL has none.
    fn is_exposed(self, store: &StoreUrl) -> bool {
        let url = store.expose();
        let variables = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"];
        let endpoint = variables.iter().find_map(|name| self.environment.get(name));
        match endpoint.filter(|_| store.is_table() && !url.contains("endpoint=")) {
            Some(endpoint) => {
                let and = if url.contains('?') { '&' } else { '?' };
                stores::is_exposed(&format!("{url}{and}endpoint={endpoint}"))
            }
            None => stores::is_exposed(url),
        }
    }
}

// === impl StoreUrl ===

impl StoreUrl {
    /// The URL with its password: for connecting, never for people.
    pub fn expose(&self) -> &str {
        self.url.expose()
    }

    /// Whether other gateways may use it too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether both name the same store. Tables with the same name count as the same unless both name different regions or
    /// endpoints, because the environment may name the region.
    fn is_where(&self, other: &Self) -> bool {
        if !self.is_table() || !other.is_table() {
            return self.place() == other.place();
        }
        let (here, there) = (self.table_place(), other.table_place());
        let is_open = here.is_empty() || there.is_empty();
        self.shown == other.shown && (is_open || here == there)
    }

    /// The region and endpoint of a table.
    fn table_place(&self) -> Vec<&str> {
        let query = self.expose().split_once('?').map_or("", |(_, query)| query);
        let says_where = |wish: &&str| wish.starts_with("region=") || wish.starts_with("endpoint=");
        let mut wishes: Vec<&str> = query.split('&').filter(says_where).collect();
        wishes.sort_unstable();
        wishes
    }

    /// The URL without user and password, with the default database filled in.
    fn place(&self) -> (&str, &str, Option<&str>) {
        match Server::split(self.expose()).filter(|_| self.is_shared) {
            Some(server) => {
                let database = server.database.trim_start_matches('/');
                let usual = if server.is_postgres() { "" } else { "0" };
                (
                    server.hosts,
                    if database.is_empty() { usual } else { database },
                    server.namespace(),
                )
            }
            None => (self.expose(), "", None),
        }
    }

    /// Whether it is a DynamoDB table.
    pub fn is_table(&self) -> bool {
        self.expose().starts_with("dynamodb:")
    }

    /// Whether it ends with the process.
    pub fn is_memory(&self) -> bool {
        self.expose() == "memory:"
    }

    /// The directory of the embedded store.
    pub fn directory(&self) -> Option<&Path> {
        self.expose().strip_prefix("embedded:").map(Path::new)
    }

    /// Whether others on the network could read the connection, or pretend to be the server.
    pub fn is_exposed(&self) -> bool {
        stores::is_exposed(self.expose())
    }

    fn embedded(dir: &Path) -> Self {
        Self::local(format!("embedded:{}", dir.display()))
    }

    fn local(url: String) -> Self {
        Self { shown: url.clone(), url: Secret::new(url), is_shared: false }
    }

    /// Whether a URL holds a password, so that the file it is written in must be private.
    pub(crate) fn has_secret(url: &str) -> bool {
        Server::split(url).is_some_and(|server| server.has_secret())
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::local(text.into())),
            Some(("embedded", dir)) if !dir.is_empty() => Ok(Self::local(text.into())),
            Some((
                "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "postgres" | "postgresql",
                _,
            )) => Self::server(text),
            Some(("dynamodb", _)) => Self::table(text),
            Some(_) | None => Err(
                "expected memory:, embedded:DIR, redis://host:6379, rediss://host:6379, redis+cluster://host:7000,host:7001, \
                 postgres://host:5432/database or dynamodb:TABLE"
                    .into(),
            ),
        }
    }

    #[cfg(feature = "dynamodb")]
    fn table(text: &str) -> Result<Self, String> {
        let (table, _) = stores::table_of(text)?;
        Ok(Self { url: Secret::new(text), shown: format!("dynamodb:{table}"), is_shared: true })
    }

    #[cfg(not(feature = "dynamodb"))]
    fn table(_text: &str) -> Result<Self, String> {
        Err("this program was built without DynamoDB; build it with the feature dynamodb, or name another store".into())
    }

    /// Other programs use `DATABASE_URL` for any database.
    fn parse_database(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => Self::server(text),
            Some(_) | None => Err(format!(
                "is not PostgreSQL; write postgres://user:password@host:5432/database, or, to use the embedded store, \
                 [store] url = \"embedded:{DEFAULT_DATA}\" or --data DIR"
            )),
        }
    }

    fn server(text: &str) -> Result<Self, String> {
        let form = if text.starts_with("postgres") { POSTGRES } else { REDIS };
        let refused = |what: &str| format!("{what}; write {form}");
        let server =
            Server::split(text).ok_or_else(|| refused("is not the address of a server"))?;
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
    /// Split by hand, because `url::Url` refuses a list of hosts.
    fn split(text: &'u str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        // Split at the last `@`: a password may hold one, and its second half must not be printed.
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
            return Err("has no host, or one that is not a host name");
        }
        match self.database {
            "" | "/" => {}
            _ if is_cluster => return Err("names a database, but a cluster has none"),
            number if number[1..].parse::<u16>().is_ok() => {}
            _ => return Err("names a database that is not a number"),
        }
        self.query.map_or(Ok(()), check_query)
    }

    fn check_postgres(&self) -> Result<(), &'static str> {
        if self.hosts.contains(',') {
            return Err("names several hosts; name the primary or a proxy in front of it");
        }
        if !is_host(self.hosts) {
            return Err("has no host, or one that is not a host name");
        }
        let known = |name: &str| POSTGRES_OPTIONS.split_whitespace().any(|known| known == name);
        if !self.options().all(|(name, _)| known(name)) {
            return Err("has an unknown option after the `?`");
        }
        self.namespace().map_or(Ok(()), check_schema)
    }

    fn is_postgres(&self) -> bool {
        self.scheme.starts_with("postgres")
    }

    /// Whether it holds a password. In a Redis URL the user part may be one.
    fn has_secret(&self) -> bool {
        let in_user = self.user.is_some_and(|user| !self.is_postgres() || user.contains(':'));
        in_user || self.options().any(|(name, value)| name == "password" || value.contains("%40"))
    }

    fn options(&self) -> impl Iterator<Item = (&'u str, &'u str)> {
        let pairs = self.query.into_iter().flat_map(|query| query.split('&'));
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// The prefix or the schema, which divide one server among several stores.
    fn namespace(&self) -> Option<&'u str> {
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
            _ => {
                return Err(
                    "has an unknown option after the `?`; known are prefix=name and ca=FILE",
                );
            }
        }
    }
    Ok(())
}
