//! `in.php` and `res.php`, as programs written for the provider know them: always HTTP 200, the code in the body.
//! What each request form means is in `wire`; what real clients assume is in docs/api/compat.md.

mod fetch;
mod reply;
mod submit;

use std::sync::Arc;

use axum::extract::Request;
use domain::retry::Code;
use wire::form::Form;

pub(crate) use fetch::fetch;
pub(crate) use submit::submit;

use crate::{
    Doors, body,
    caller::{CalledBy, NoEntry, Role},
    error::{self, Refusal},
    peer::Peer,
    worker::Known,
};
use reply::Style;

/// A request whose form could be read.
struct Asked {
    form: Form,
    style: Style,
    peer: Option<Peer>,
    called_by: Option<CalledBy>,
}

impl Asked {
    /// Reads query and body into one form.
    async fn read(doors: &Doors, request: Request) -> Result<Self, (Code, Style)> {
        let (parts, body) = request.into_parts();
        // Before the form is read, a code can only be told in the style the query asks for.
        let style = || Style::of_query(parts.uri.query());
        let body = body::read(doors, &parts.headers, body, doors.limits().form_bytes)
            .await
            .map_err(|refusal: Refusal| (error::code_of_body(&refusal), style()))?;
        let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
        let form = Form::read(parts.uri.query(), content_type, &body)
            .map_err(|bad| (Code::from(bad), style()))?;
        let style = Style::of(&form);
        let peer = parts.extensions.get::<Peer>().cloned();
        let called_by = parts.extensions.get::<CalledBy>().cloned();
        Ok(Self { form, style, peer, called_by })
    }

    /// The worker whose key the form shows. The admin's key opens nothing here: cost is charged to a worker's project.
    fn worker(&self, doors: &Doors) -> Result<Arc<Known>, Code> {
        let role = doors.identify(self.form.get("key"), self.peer.as_ref());
        let told = |refused| error::code_of_no_entry(&refused);
        match role.map_err(told)? {
            Role::Worker(known) => {
                if let Some(called_by) = &self.called_by {
                    called_by.fill(&Role::Worker(Arc::clone(&known)));
                }
                Ok(known)
            }
            Role::Admin => Err(told(NoEntry::Unknown)),
        }
    }
}
