//! `solvegate batch`: sends a file of challenges to `POST /v1/batches` and writes the answers as they arrive.
//!
//! # Layout
//! - this file: both directions of the exchange; `input`, `csv`: lines to claims; `ids`: each once; `answers`: the file of answers; `tally`:
//!   progress and sums

mod answers;
mod csv;
mod ids;
mod input;
mod tally;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{Context, gateway_client::GatewayClient};
use crate::{
    assemble::Purpose,
    cli::BatchArgs,
    client::{Call, line_body, without_position},
    exit::{Exit, Failure},
    signals::Signals,
};
use answers::Answers;
use ids::InputIds;
use input::{Input, InputLine};
use tally::Tally;

struct Batch {
    input: Input,
    answers: Answers,
    ids: InputIds,
    tally: Tally,
    /// The gateway's number of each line that has no answer yet, and its number in the file.
    unanswered: BTreeMap<u64, u64>,
    /// Lines sent so far; the gateway numbers them.
    sent: u64,
    is_input_over: bool,
    /// The reader of the answers has closed the pipe.
    is_unread: bool,
}

/// What an exchange goes on with.
enum Event {
    Answer(Option<Bytes>),
    /// Whether the request takes one more line.
    Room(bool),
    Line(Option<InputLine>),
}

/// More than the gateway has in flight for one batch, so that it never waits for us.
const MOST_UNANSWERED: usize = 600;

const GO_ON: &str = "run the same command again to go on: nothing is paid twice";

pub(super) async fn run(context: &Context, args: &BatchArgs) -> Result<(), Failure> {
    let input = Input::open(&args.file)?;
    let answers = Answers::open(args.out.as_deref())?;
    let tally = Tally::new(input.total, args.client.json);
    let mut batch = Batch {
        input,
        answers,
        ids: InputIds::default(),
        tally,
        unanswered: BTreeMap::new(),
        sent: 0,
        is_input_over: false,
        is_unread: false,
    };
    let mut signals = Signals::listen()?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Solving).await?;
    let ended = tokio::select! {
        biased;
        () = signals.stop() => Err(Failure::new(Exit::Interrupted, format!("interrupted; {GO_ON}"))),
        ended = batch.exchange(&gateway) => ended,
    };
    let tally = batch.finish();
    // An engine in this process waits for tasks that are paid for, unless the user is in a hurry.
    tokio::select! {
        biased;
        () = gateway.close() => {}
        () = signals.stop() => {}
    }
    ended?;
    match tally.failed() {
        0 => Ok(()),
        failed => {
            let lines = if failed == 1 { "line" } else { "lines" };
            let what = format!(
                "{failed} {lines} failed; `error` in the answer says why, and the same command tries again"
            );
            Err(Failure::new(Exit::Failed, what))
        }
    }
}

// === impl Batch ===

impl Batch {
    /// Sends lines and takes answers until both are over.
    async fn exchange(&mut self, gateway: &GatewayClient) -> Result<(), Failure> {
        let (sender, body) = line_body();
        let mut lines = gateway.send_lines(&Call::lines("/v1/batches"), body).await?;
        let mut sender = Some(sender);
        let mut next_line: Option<Bytes> = None;
        loop {
            let may_read =
                next_line.is_none() && sender.is_some() && self.unanswered.len() < MOST_UNANSWERED;
            let event = tokio::select! {
                biased;
                answer = lines.next() => Event::Answer(answer.map_err(|failure| go_on(&failure))?),
                room = room(sender.as_ref()), if next_line.is_some() => Event::Room(room),
                line = self.input.next(), if may_read => Event::Line(line.transpose()?),
            };
            match event {
                Event::Answer(None) => break,
                Event::Answer(Some(answer)) => self.take_answer(&answer)?,
                Event::Line(Some(line)) => next_line = self.prepare(line)?,
                Event::Line(None) => {
                    self.is_input_over = true;
                    sender = None;
                }
                Event::Room(true) => {
                    if let (Some(line), Some(sender)) = (next_line.take(), &sender)
                        && sender.try_send(line).is_err()
                    {
                        tracing::debug!("request ended before its last line");
                    }
                }
                // The request broke off; the answers say why.
                Event::Room(false) => (next_line, sender) = (None, None),
            }
            if self.is_unread {
                return Ok(());
            }
        }
        if self.is_input_over && self.unanswered.is_empty() {
            return Ok(());
        }
        let what = "the gateway ended the batch before its last line";
        Err(go_on(&Failure::new(Exit::Unreachable, what)))
    }

    /// The text to send for a line; `None` when it needs no answer of the gateway.
    fn prepare(&mut self, line: InputLine) -> Result<Option<Bytes>, Failure> {
        let InputLine { number, claim } = line;
        let claim = match claim {
            Ok(claim) => claim,
            Err(why) => return self.refuse(number, None, "bad_line", &why).map(|()| None),
        };
        let Some(id) = line_id(&claim) else {
            let why = "`id` is missing: it is the line's idempotency key, a text or a whole number";
            return self.refuse(number, None, "missing_id", why).map(|()| None);
        };
        if let Some(first) = self.ids.repeats(&id, number) {
            let why =
                format!("`id` is that of line {first}; each line needs its own, which pays once");
            return self.refuse(number, Some(&id), "repeated_id", &why).map(|()| None);
        }
        if self.answers.has(&id) {
            self.tally.keep();
            return Ok(None);
        }
        self.sent += 1;
        self.unanswered.insert(self.sent, number);
        let mut text = Value::Object(claim).to_string();
        text.push('\n');
        Ok(Some(text.into()))
    }

    /// Answers a line that cannot be sent, as the gateway would.
    fn refuse(
        &mut self,
        number: u64,
        id: Option<&str>,
        code: &str,
        why: &str,
    ) -> Result<(), Failure> {
        let error = json!({ "status": 400, "code": code, "detail": why });
        let answer = json!({ "line": number, "id": id, "status": 400, "error": error });
        self.tally.fail();
        self.write(&answer)
    }

    fn take_answer(&mut self, line: &[u8]) -> Result<(), Failure> {
        let mut answer: Value = serde_json::from_slice(line).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot read an answer of the gateway: {error}"))
        })?;
        let number = answer["line"].as_u64().and_then(|sent| self.unanswered.remove(&sent));
        let Some(number) = number else {
            let detail = answer["error"]["detail"].as_str().unwrap_or("unknown answer");
            return Err(go_on(&Failure::new(Exit::Unreachable, detail)));
        };
        answer["line"] = json!(number);
        // The gateway read a line that was written again from the input.
        if let Some(detail) = answer.pointer_mut("/error/detail")
            && let Some(text) = detail.as_str()
        {
            *detail = json!(without_position(text));
        }
        match answer.get("solve") {
            Some(solve) => self.tally.serve(solve),
            None => self.tally.fail(),
        }
        self.write(&answer)
    }

    fn write(&mut self, answer: &Value) -> Result<(), Failure> {
        self.is_unread = !self.answers.write(&answer.to_string())?;
        Ok(())
    }

    /// Removes the progress bar and prints the sums.
    fn finish(self) -> Tally {
        let tally = self.tally;
        tally.end();
        tally
    }
}

/// Waits until a line can be sent.
async fn room(sender: Option<&mpsc::Sender<Bytes>>) -> bool {
    match sender {
        Some(sender) => sender.reserve().await.is_ok(),
        None => false,
    }
}

fn line_id(claim: &Map<String, Value>) -> Option<String> {
    match claim.get("id")? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        Value::String(_)
        | Value::Number(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}

fn go_on(failure: &Failure) -> Failure {
    Failure::new(failure.exit, format!("{failure}; {GO_ON}"))
}
