//! `POST /v1/batches`: many claims in one request. Lines of JSON come in, answers go out as they arrive; each is what
//! `POST /v1/solves` would answer to that line.
//!
//! The body is a stream in both directions. A window of lines is in flight; while it is full, nothing more is read. The
//! stream runs while the client reads, so a client that disappears stops it. Its claims go on, and the same line sent again
//! finds its claim by its id.
//!
//! # Layout
//! - this file: the handler and the window; `lines`: the body as lines; `claims`: one line from its text to its answer

mod claims;
mod lines;

use std::convert::Infallible;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use domain::key::KeyDigest;
use futures_util::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};

use super::query::Query;
use crate::{
    Doors,
    caller::{WorkerCaller, bearer},
    error::Refusal,
    limits::{BATCH_ADMISSIONS, BATCH_BYTES, BATCH_LEAST_LINES, BATCH_LINES},
    peer::{InFlightRequest, Peer},
};
use claims::{Answer, BatchCaller, Step};
use lines::Lines;

const NDJSON: &str = "application/x-ndjson";
const ACCEPTED_TYPES: [&str; 4] =
    [NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// A batch under way.
struct Batch {
    doors: Doors,
    caller: BatchCaller,
    lines: Lines,
    /// Lines that are parsed and admitted, with the bytes of their texts.
    admitting: FuturesUnordered<BoxFuture<'static, Step>>,
    admitting_bytes: usize,
    /// Claims that wait for their end.
    waiting: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// No further line is read: the body ended, or its rest cannot be used.
    is_over: bool,
    /// Keeps the connection from being idle while answers are written.
    _under_way: Option<InFlightRequest>,
}

pub(super) async fn run(
    State(doors): State<Doors>,
    caller: WorkerCaller,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    check_type(&parts.headers)?;
    let key = bearer(&parts.headers).and_then(|key| KeyDigest::of(key).ok());
    let key = key.ok_or(Refusal::Unauthorized)?;
    let batch = Batch::new(doors, BatchCaller { key, peer: caller.peer }, body);
    let answers = stream::unfold(batch, |mut batch| async {
        let line = batch.next().await?;
        Some((Ok::<_, Infallible>(line), batch))
    });
    let head = [(header::CONTENT_TYPE, NDJSON)];
    Ok((head, Body::from_stream(answers)).into_response())
}

fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let is_accepted = ACCEPTED_TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence));
    if is_accepted { Ok(()) } else { Err(Refusal::NotLines) }
}

// === impl Batch ===

impl Batch {
    fn new(doors: Doors, caller: BatchCaller, body: Body) -> Self {
        let lines = Lines::new(body, doors.limits());
        let under_way = caller.peer.as_ref().map(Peer::begin_request);
        Self {
            doors,
            caller,
            lines,
            admitting: FuturesUnordered::new(),
            admitting_bytes: 0,
            waiting: FuturesUnordered::new(),
            is_over: false,
            _under_way: under_way,
        }
    }

    /// The next answer as a line; `None` when all lines are answered.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let may_read = !self.is_over && self.has_room();
            if !may_read {
                self.lines.pause();
            }
            tokio::select! {
                biased;
                Some(answer) = self.waiting.next() => return Some(answer.to_line()),
                Some(step) = self.admitting.next() => {
                    if let Some(answer) = self.take_step(step) {
                        return Some(answer.to_line());
                    }
                }
                line = self.lines.next(), if may_read => match line {
                    Some((number, Ok(text))) => self.start(number, text),
                    Some((number, Err(refusal))) => {
                        self.is_over = !matches!(refusal, Refusal::TooLarge(_));
                        return Some(Answer::refused(number, None, &refusal, self.doors.now()).to_line());
                    }
                    None => self.is_over = true,
                },
                else => return None,
            }
        }
    }

    /// Twice the slots keep every slot busy. More lines would only wait in the queue, where their deadlines run.
    fn window(&self) -> usize {
        let slots = usize::try_from(self.doors.engine().threads().total).unwrap_or(usize::MAX);
        slots.saturating_mul(2).clamp(BATCH_LEAST_LINES, BATCH_LINES)
    }

    fn has_room(&self) -> bool {
        self.admitting.len() < BATCH_ADMISSIONS
            && self.admitting_bytes < BATCH_BYTES
            && self.admitting.len() + self.waiting.len() < self.window()
    }

    fn start(&mut self, number: u64, text: Bytes) {
        self.admitting_bytes += text.len();
        let admitting = claims::admit(self.doors.clone(), self.caller.clone(), number, text);
        self.admitting.push(Box::pin(admitting));
    }

    fn take_step(&mut self, step: Step) -> Option<Answer> {
        self.admitting_bytes -= step.bytes;
        self.is_over |= step.ends_batch;
        match step.result {
            Ok(claim) => {
                let waiting = claims::wait(self.doors.clone(), self.caller.clone(), claim);
                self.waiting.push(Box::pin(waiting));
                None
            }
            Err(answer) => Some(answer),
        }
    }
}
