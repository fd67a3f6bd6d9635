//! in.php: the one call that costs money. It uses a new connection each time, never retries, and has four outcomes:
//! accepted, rejected, not sent, ambiguous. The engine decides what each means for the solve.

use bytes::Bytes;
use domain::{
    challenge::Challenge,
    id::AttemptName,
    ports::{Fault, Submission},
};
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use tokio::time::timeout;
use wire::submit::SubmitReply;

use crate::{
    Pingback, Upstream,
    connection::{Bounds, MAX_REPLY},
    counted::BytesSent,
};

impl Upstream {
    pub(crate) async fn send(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        let request = self.submission(challenge, attempt);
        let sent = BytesSent::default();
        let exchanged =
            timeout(self.config.submit_timeout, self.exchange(request, sent.clone())).await;
        match exchanged.unwrap_or_else(|_| Err(Fault::seen("no whole answer within the timeout"))) {
            Ok(body) => self.submission_of(&body),
            Err(Fault { code: Some(code), retry_after, .. }) => {
                Submission::Rejected { code, retry_after }
            }
            Err(Fault { code: None, why, .. }) if sent.is_zero() => Submission::NotSent(why),
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

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        sent: BytesSent,
    ) -> Result<Bytes, Fault> {
        let connection = self.connector.open(sent).await?;
        let bounds = Bounds { first_byte: self.config.first_byte_timeout, max_bytes: MAX_REPLY };
        Ok(connection.send(request, bounds).await?.body)
    }

    /// The reply is complete, but only a valid id or a valid code in it is certain.
    fn submission_of(&self, body: &[u8]) -> Submission {
        match wire::submit::read_reply(body) {
            Ok(SubmitReply::Accepted(task)) => Submission::Accepted(task),
            Ok(SubmitReply::Refused(code)) => {
                Submission::Rejected { code: self.redact(&code), retry_after: None }
            }
            Err(garbled) => Submission::Ambiguous { why: garbled.to_string(), retry_after: None },
        }
    }
}
