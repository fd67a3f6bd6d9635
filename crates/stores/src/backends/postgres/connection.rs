//! The connection pool: connections are opened when needed, used by one caller at a time, dropped when they fail, and opened again
//! with backoff. The statements of a transaction are pipelined. Nothing is kept in a session, so that a pooler in transaction
//! mode (`PgBouncer`) can give each transaction another server connection.
//!
//! This is neither deadpool-postgres nor bb8: there, a connection returns to the pool when it is dropped, so a cancelled commit
//! would hand its open transaction to the next caller, and callers wait for connection attempts instead of failing fast.

use std::{future::Future, pin::Pin, time::Duration};

use futures_util::{future::maybe_done, poll};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_postgres::{
    Client, Error, Row,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::{
    OpenError,
    backends::server::backoff::{BACKING_OFF, Backoff},
};

use super::{SERVER, address::PostgresAddress, sql::Statement, tls::MakeTls};

pub(super) struct Pool {
    pub(super) address: PostgresAddress,
    tls: MakeTls,
    permits: Semaphore,
    idle: parking_lot::Mutex<Vec<Client>>,
    /// Held by the caller that opens a connection. Callers that find an idle connection do not need it.
    backoff: Mutex<Backoff>,
}

/// A connection of its own for one caller. It is closed when it is dropped, and returns to the pool when it is released.
pub(super) struct PooledConnection<'p> {
    client: Client,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

pub(super) enum SqlStep {
    /// Statements without parameters, whose results are ignored.
    Plain(&'static str),
    Query(Statement),
}

/// Why a query got no result.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct QueryError {
    pub(super) kind: QueryErrorKind,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryErrorKind {
    /// The connection broke or was closed: the server may have executed the last statements.
    Broken,
    /// The server rolled back because of a lock, a deadlock or a statement timeout: a retry may succeed.
    Conflict,
    Unreachable,
    /// The server is starting, or recovering from a crash.
    Starting,
    /// The server refuses the statement; a retry does not help.
    Refused,
}

/// The timeout of a request, a connection attempt, and the wait for a free connection.
const TIMEOUT: Duration = Duration::from_secs(2);

// === impl Pool ===

impl Pool {
    pub(super) fn new(address: &PostgresAddress, size: usize) -> Result<Self, OpenError> {
        Ok(Self {
            address: address.clone(),
            tls: MakeTls::new(&address.tls)?,
            permits: Semaphore::new(size),
            idle: parking_lot::Mutex::default(),
            backoff: Mutex::default(),
        })
    }

    pub(super) fn failed_to_open(&self, error: &QueryError) -> OpenError {
        SERVER.unreachable(self.address.to_string(), error)
    }

    /// Runs a whole transaction and returns the rows of each step.
    pub(super) async fn run(&self, steps: &[SqlStep]) -> Result<Vec<Vec<Row>>, QueryError> {
        let connection = self.get().await?;
        let results = connection.run(steps).await?;
        connection.release();
        Ok(results)
    }

    pub(super) async fn query(&self, statement: Statement) -> Result<Vec<Row>, QueryError> {
        let results = self.run(&[SqlStep::Query(statement)]).await?;
        Ok(results.into_iter().flatten().collect())
    }

    pub(super) async fn get(&self) -> Result<PooledConnection<'_>, QueryError> {
        let Ok(Ok(permit)) = timeout(TIMEOUT, self.permits.acquire()).await else {
            return Err(QueryError::unreachable("timeout: all connections are busy"));
        };
        Ok(PooledConnection { client: self.client().await?, pool: self, _permit: permit })
    }

    async fn client(&self) -> Result<Client, QueryError> {
        if let Some(client) = self.idle_client() {
            return Ok(client);
        }
        let mut backoff = self.backoff.lock().await;
        // A connection may have been released while this caller waited.
        if let Some(client) = self.idle_client() {
            return Ok(client);
        }
        if backoff.is_waiting() {
            return Err(QueryError::unreachable(BACKING_OFF));
        }
        let connecting = timeout(TIMEOUT, self.dedicated());
        let timed_out = |_| Err(QueryError::unreachable("timeout: no connection within 2 seconds"));
        let connected = connecting.await.unwrap_or_else(timed_out);
        match &connected {
            Ok(_) => backoff.reset(),
            Err(_) => backoff.failed(),
        }
        connected
    }

    fn idle_client(&self) -> Option<Client> {
        let mut idle = self.idle.lock();
        std::iter::from_fn(|| idle.pop()).find(|client| !client.is_closed())
    }

    /// A connection outside the pool, for work that takes longer than a commit. If it breaks during the handshake, connects
    /// once more: nothing was sent on it.
    pub(super) async fn dedicated(&self) -> Result<Client, QueryError> {
        let connect = || self.address.config.connect(self.tls.clone());
        let connected = match connect().await {
            Err(error) if kind_of(&error) == QueryErrorKind::Broken => connect().await,
            connected => connected,
        };
        let (client, connection) =
            connected.map_err(|error| QueryError::from(error).while_connecting())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = describe(&error), "PostgreSQL connection closed");
            }
        });
        Ok(client)
    }
}

// === impl PooledConnection ===

impl PooledConnection<'_> {
    /// Sends all steps at once and waits for their results, up to the timeout.
    pub(super) async fn run(&self, steps: &[SqlStep]) -> Result<Vec<Vec<Row>>, QueryError> {
        let timed_out = |_| QueryError {
            kind: QueryErrorKind::Broken,
            message: "timeout: no reply within 2 seconds".to_owned(),
        };
        let results = timeout(TIMEOUT, pipeline(&self.client, steps));
        Ok(results.await.map_err(timed_out)??)
    }

    /// Returns the connection to the pool. A failed connection must be dropped instead, which ends its open transaction.
    pub(super) fn release(self) {
        self.pool.idle.lock().push(self.client);
    }
}

type PendingRows<'s> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 's>>;

/// Sends the steps without waiting in between, then waits for their results. Returns the first error.
async fn pipeline(client: &Client, steps: &[SqlStep]) -> Result<Vec<Vec<Row>>, Error> {
    let mut sent: Vec<_> = steps.iter().map(|step| maybe_done(send(client, step))).collect();
    for step in &mut sent {
        // The first poll sends the step.
        let _is_sent = poll!(Pin::new(&mut *step));
    }
    let mut results = Vec::with_capacity(sent.len());
    for mut step in sent {
        let mut step = Pin::new(&mut step);
        step.as_mut().await;
        results.extend(step.take_output().transpose()?);
    }
    Ok(results)
}

fn send<'s>(client: &'s Client, step: &'s SqlStep) -> PendingRows<'s> {
    match step {
        SqlStep::Plain(text) => {
            Box::pin(async { client.batch_execute(text).await.map(|()| Vec::new()) })
        }
        SqlStep::Query(statement) => Box::pin(async {
            let params: Vec<(&(dyn ToSql + Sync), Type)> = statement
                .params
                .iter()
                .map(|(param, ty)| (&**param as &(dyn ToSql + Sync), ty.clone()))
                .collect();
            client.query_typed(&statement.text, &params).await
        }),
    }
}

// === impl QueryError ===

impl QueryError {
    pub(super) fn unreachable(why: &str) -> Self {
        Self { kind: QueryErrorKind::Unreachable, message: why.to_owned() }
    }

    /// Before anything was sent, no outcome is unknown.
    fn while_connecting(mut self) -> Self {
        if self.kind == QueryErrorKind::Broken {
            self.kind = QueryErrorKind::Unreachable;
        }
        self
    }
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self { kind: kind_of(&error), message: describe(&error) }
    }
}

fn kind_of(error: &Error) -> QueryErrorKind {
    error.code().map_or(QueryErrorKind::Broken, kind_of_code)
}

fn kind_of_code(code: &SqlState) -> QueryErrorKind {
    match code.code() {
        // Serialization failure, deadlock, lock timeout, statement timeout.
        "40001" | "40P01" | "55P03" | "57014" => QueryErrorKind::Conflict,
        "57P03" => QueryErrorKind::Starting,
        // Too many connections.
        "53300" => QueryErrorKind::Unreachable,
        // The codes with which the server closes a connection, including those that later releases may add.
        "25P03" | "25P04" => QueryErrorKind::Broken,
        code if code.starts_with("08") || code.starts_with("57P") => QueryErrorKind::Broken,
        _ => QueryErrorKind::Refused,
    }
}

/// The error without the server's details and hints, which may contain stored data.
pub(super) fn describe(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_is_retried_and_a_refusal_is_not() {
        for (code, kind) in [
            // Shutdown, crash, dropped database, idle session timeout, idle transaction timeout, transaction timeout.
            ("57P01", QueryErrorKind::Broken),
            ("57P02", QueryErrorKind::Broken),
            ("57P04", QueryErrorKind::Broken),
            ("57P05", QueryErrorKind::Broken),
            ("25P03", QueryErrorKind::Broken),
            ("25P04", QueryErrorKind::Broken),
            ("08P01", QueryErrorKind::Broken),
            ("57P03", QueryErrorKind::Starting),
            ("57014", QueryErrorKind::Conflict),
            ("40P01", QueryErrorKind::Conflict),
            ("53300", QueryErrorKind::Unreachable),
            ("42501", QueryErrorKind::Refused),
            ("25006", QueryErrorKind::Refused),
            ("54000", QueryErrorKind::Refused),
        ] {
            assert_eq!(kind_of_code(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
