//! Connections: a few, each used by one at a time, made when needed, dropped when they fail, and made again after a pause
//! that grows. Statements of one transaction are sent together and answered together. Nothing is kept in a session, so
//! that a pooler may give each transaction another one.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Mutex as StdMutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{future::maybe_done, poll};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};
use tokio_postgres::{
    Client, Error, Row,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::remote::pause;

use super::{address::Address, sql::Ask, tls::Secure};

/// The way to a server: at most so many connections.
pub(super) struct Line {
    pub(super) address: Address,
    pub(super) secure: Secure,
    seats: Semaphore,
    idle: StdMutex<Vec<Client>>,
    /// Who connects has it meanwhile; whoever finds or leaves a connection does not need it.
    door: Mutex<Door>,
}

#[derive(Default)]
struct Door {
    failures: u32,
    not_before: Option<Instant>,
}

/// A connection nobody else uses. It is dropped unless it is given back.
pub(super) struct Seat<'l> {
    client: Client,
    line: &'l Line,
    _permit: SemaphorePermit<'l>,
}

/// Something to be sent.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Statements without parameters, whose answers do not matter.
    Plain(&'static str),
    Ask(Ask),
}

/// Why no answer came.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) sort: Trouble,
    pub(super) why: String,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone or was ended: what was sent last may have been carried out.
    Broken,
    /// The server took it back because others were in the way: asked again, it may work.
    Crowded,
    /// It cannot be reached just now.
    Away,
    /// It is just starting, or recovering from a crash.
    Starting,
    /// It refuses.
    Refused,
}

/// A server that does not answer within this is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

// === impl Line ===

impl Line {
    pub(super) fn new(address: Address, secure: Secure, seats: usize) -> Self {
        let (idle, door) = (StdMutex::default(), Mutex::default());
        Self { address, secure, seats: Semaphore::new(seats), idle, door }
    }

    /// Sends a whole transaction and gives its answers.
    pub(super) async fn run(&self, steps: &[Step]) -> Result<Vec<Vec<Row>>, Failure> {
        let seat = self.seat().await?;
        let answers = seat.run(steps).await?;
        seat.give_back();
        Ok(answers)
    }

    /// A connection for oneself.
    pub(super) async fn seat(&self) -> Result<Seat<'_>, Failure> {
        let waiting = timeout(PATIENCE, self.seats.acquire());
        let Ok(Ok(permit)) = waiting.await else {
            return Err(Failure::away("all connections are busy"));
        };
        Ok(Seat { client: self.client().await?, line: self, _permit: permit })
    }

    /// A new connection, for work that takes longer than any look or decision.
    pub(super) async fn client_alone(&self) -> Result<Client, Failure> {
        connect(&self.address, &self.secure).await
    }

    async fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = self.idle_client() {
            return Ok(client);
        }
        let mut door = self.door.lock().await;
        // One may have been left here meanwhile.
        if let Some(client) = self.idle_client() {
            return Ok(client);
        }
        // Everybody who asks meanwhile is told so at once: nobody queues up before a closed door.
        if door.not_before.is_some_and(|at| Instant::now() < at) {
            return Err(Failure::away("it did not answer and is asked again in a moment"));
        }
        let late = || Failure::away("it did not answer within two seconds");
        let connecting = timeout(PATIENCE, connect(&self.address, &self.secure));
        match connecting.await.unwrap_or_else(|_| Err(late())) {
            Ok(client) => {
                *door = Door::default();
                Ok(client)
            }
            Err(failure) => {
                door.failures += 1;
                door.not_before = Some(Instant::now() + pause(door.failures));
                Err(failure)
            }
        }
    }

    /// A connection that nobody uses and that is still good.
    fn idle_client(&self) -> Option<Client> {
        let mut idle = self.idle();
        while let Some(client) = idle.pop() {
            if !client.is_closed() {
                return Some(client);
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and sees to it that the connection is served as long as it is used. One that breaks half way is made again:
/// nothing was sent on it.
async fn connect(address: &Address, secure: &Secure) -> Result<Client, Failure> {
    let (client, connection) = match address.config.connect(secure.clone()).await {
        Err(error) if trouble(&error) == Trouble::Broken => {
            address.config.connect(secure.clone()).await
        }
        connected => connected,
    }
    .map_err(|error| Failure::from(error).of_connecting())?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = said(&error), "PostgreSQL connection closed");
        }
    });
    Ok(client)
}

// === impl Seat ===

impl Seat<'_> {
    /// Sends all of it at once; the answers come within the patience or not at all.
    pub(super) async fn run(&self, steps: &[Step]) -> Result<Vec<Vec<Row>>, Failure> {
        let answers = timeout(PATIENCE, pipeline(&self.client, steps));
        let late =
            || Failure { sort: Trouble::Broken, why: "it did not answer in time".to_owned() };
        Ok(answers.await.map_err(|_| late())??)
    }

    /// Leaves the connection to the next. A failed one is not given back: whatever was open on it ends with it.
    pub(super) fn give_back(self) {
        self.line.idle().push(self.client);
    }
}

type Sent<'s> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 's>>;

/// Sends the steps one after the other without waiting, then waits for their answers. The first failure is the one told.
async fn pipeline(client: &Client, steps: &[Step]) -> Result<Vec<Vec<Row>>, Error> {
    let mut sent: Vec<_> = steps.iter().map(|step| maybe_done(send(client, step))).collect();
    for step in &mut sent {
        // The first look at it sends it.
        let _is_sent = poll!(Pin::new(&mut *step));
    }
    let mut answers = Vec::with_capacity(sent.len());
    for mut step in sent {
        let mut step = Pin::new(&mut step);
        step.as_mut().await;
        answers.extend(step.take_output().transpose()?);
    }
    Ok(answers)
}

pub(super) fn send<'s>(client: &'s Client, step: &'s Step) -> Sent<'s> {
    match step {
        Step::Plain(text) => {
            Box::pin(async { client.batch_execute(text).await.map(|()| Vec::new()) })
        }
        Step::Ask(ask) => Box::pin(async {
            let params: Vec<(&(dyn ToSql + Sync), Type)> = ask
                .params
                .iter()
                .map(|(param, ty)| (param as &(dyn ToSql + Sync), ty.clone()))
                .collect();
            client.query_typed(&ask.text, &params).await
        }),
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn away(why: &str) -> Self {
        Self { sort: Trouble::Away, why: why.to_owned() }
    }

    /// Where nothing was sent yet, nothing is in doubt.
    fn of_connecting(self) -> Self {
        let sort = if self.sort == Trouble::Broken { Trouble::Away } else { self.sort };
        Self { sort, ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { sort: trouble(&error), why: said(&error) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

fn trouble(error: &Error) -> Trouble {
    error.code().map_or(Trouble::Broken, trouble_of)
}

fn trouble_of(code: &SqlState) -> Trouble {
    let crowded = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
    ];
    // The server's own words before it ends a connection, for whatever reason, those of later releases too.
    let is_ended = |code: &SqlState| {
        code.code().starts_with("08")
            || code.code().starts_with("57P")
            || ["25P03", "25P04"].contains(&code.code())
    };
    if crowded.contains(code) {
        Trouble::Crowded
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        Trouble::Starting
    } else if is_ended(code) {
        Trouble::Broken
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        Trouble::Away
    } else {
        Trouble::Refused
    }
}

/// What went wrong, in words that hold no data: the server's details and hints may.
pub(super) fn said(error: &Error) -> String {
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
    fn a_connection_the_server_ends_is_made_again_and_a_refusal_is_not() {
        for (code, sort) in [
            // Shut down, crashed, the database dropped, idle for too long, and too long in a transaction.
            ("57P01", Trouble::Broken),
            ("57P02", Trouble::Broken),
            ("57P04", Trouble::Broken),
            ("57P05", Trouble::Broken),
            ("25P03", Trouble::Broken),
            ("25P04", Trouble::Broken),
            ("08P01", Trouble::Broken),
            ("57P03", Trouble::Starting),
            ("57014", Trouble::Crowded),
            ("40P01", Trouble::Crowded),
            ("53300", Trouble::Away),
            ("42501", Trouble::Refused),
            ("25006", Trouble::Refused),
            ("54000", Trouble::Refused),
        ] {
            assert_eq!(trouble_of(&SqlState::from_code(code)), sort, "{code}");
        }
    }
}
