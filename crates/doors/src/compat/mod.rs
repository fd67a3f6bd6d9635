//! `in.php` and `res.php`, compatible with programs written for the provider: always HTTP 200, the code in the body.
//! `wire` parses the forms; docs/api/compat.md lists what real clients assume.

mod fetch;
mod form_body;
mod reply;
mod submit;

use std::sync::Arc;

use axum::extract::Request;
use domain::retry::Code;
use wire::{ReplyStyle, form::Form};

pub(crate) use fetch::fetch;
pub(crate) use submit::submit;

use crate::{
    Doors,
    caller::{AuthError, CallerName, Role},
    error,
    peer::Peer,
    worker::KnownWorker,
};
use form_body::content_type;
use reply::style_of_query;

/// A request with a readable form.
struct CompatCall {
    form: Form,
    style: ReplyStyle,
    peer: Option<Peer>,
    caller_name: Option<CallerName>,
}

impl CompatCall {
    /// Merges query and body into one form. A body of more than `max` bytes is refused.
    async fn read(doors: &Doors, request: Request, max: usize) -> Result<Self, (Code, ReplyStyle)> {
        let (parts, body) = request.into_parts();
        // Until the form is parsed, only the query can ask for a reply style.
        let style = || style_of_query(parts.uri.query());
        let body = form_body::read(doors, &parts, body, max)
            .await
            .map_err(|unread| (unread.code(), style()))?;
        let form = Form::read(parts.uri.query(), content_type(&parts.headers), &body.bytes)
            .map_err(|bad| (Code::from(bad), style()))?;
        let style = ReplyStyle::of(&form);
        let peer = parts.extensions.get::<Peer>().cloned();
        let caller_name = parts.extensions.get::<CallerName>().cloned();
        Ok(Self { form, style, peer, caller_name })
    }

    /// The worker with the form's key. An admin's key is refused, because cost is charged to a worker's project.
    fn worker(&self, doors: &Doors) -> Result<Arc<KnownWorker>, Code> {
        let role = doors.identify(self.form.get("key"), self.peer.as_ref());
        let code = |refused| error::code_of_auth_error(&refused);
        match role.map_err(code)? {
            Role::Worker(known) => {
                if let Some(caller_name) = &self.caller_name {
                    caller_name.fill(&Role::Worker(Arc::clone(&known)));
                }
                Ok(known)
            }
            Role::Admin(_) => Err(code(AuthError::Unknown)),
        }
    }
}
