//! in.php: the one call that costs. A fresh connection each time, no repetition of any sort, and four outcomes:
//! accepted, rejected, not sent, ambiguous. After: engine/submit.rs decides what each means for the solve.

use bytes::Bytes;
use domain::{
    challenge::Challenge,
    id::AttemptName,
    ports::{Fault, Submission},
};
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use tokio::time::timeout;
use wire::submit::Reply;

use crate::{
    Pingback, Upstream,
    counted::Sent,
    line::{Bounds, LONGEST},
};

impl Upstream {
    /// Submits once and says what is known.
    pub(crate) async fn send(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        let request = self.submission(challenge, attempt);
        let sent = Sent::default();
        let exchanged =
            timeout(self.config.submit_timeout, self.exchange(request, sent.clone())).await;
        match exchanged.unwrap_or_else(|_| Err(Fault::seen("no whole answer within the timeout"))) {
            Ok(body) => self.judge(&body),
            Err(Fault { code: Some(code), retry_after, .. }) => {
                Submission::Rejected { code, retry_after }
            }
            Err(Fault { code: None, why, .. }) if sent.nothing() => Submission::NotSent(why),
            Err(Fault { code: None, why, retry_after }) => {
                Submission::Ambiguous { why, retry_after }
            }
        }
    }

    fn submission(&self, challenge: &Challenge, attempt: AttemptName) -> Request<Full<Bytes>> {
        let mut fields = wire::submit::fields_in(self.config.dialect, challenge);
        if let Some(Pingback { base, secret }) = &self.config.pingback {
            let path = wire::pingback::path(attempt, secret);
            fields.push(("pingback".to_owned(), format!("{base}{path}")));
        }
        let mut request = self.request("in.php", fields);
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        request
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, sent: Sent) -> Result<Bytes, Fault> {
        let line = self.connector.open(sent).await?;
        let bounds = Bounds { first_byte: self.config.first_byte_timeout, longest: LONGEST };
        Ok(line.ask(request, bounds).await?.body)
    }

    /// An answer was read to its end: only a valid id or a valid code settles the matter.
    fn judge(&self, body: &[u8]) -> Submission {
        match wire::submit::read_reply(body) {
            Ok(Reply::Accepted(task)) => Submission::Accepted(task),
            Ok(Reply::Refused(code)) => {
                Submission::Rejected { code: self.redact(&code), retry_after: None }
            }
            Err(garbled) => Submission::Ambiguous { why: garbled.to_string(), retry_after: None },
        }
    }
}
