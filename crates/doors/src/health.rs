//! Liveness and readiness, for orchestrators.

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use crate::{
    Doors,
    caller::{Caller, Role},
    error::Refusal,
};

/// `GET /healthz`: the process answers.
pub(crate) async fn alive() -> &'static str {
    "ok"
}

/// `GET /readyz`: whether claims are accepted. Trouble with the provider or the account there does not make the gateway
/// unready, because claims can wait and every other replica has the same trouble; the body says `degraded`. Admins see why;
/// everybody else sees one word for each part in trouble, because details may name servers.
pub(crate) async fn ready(
    State(doors): State<Doors>,
    caller: Result<Caller, Refusal>,
) -> (StatusCode, Json<Value>) {
    let health = doors.engine().health();
    let is_admin = caller.is_ok_and(|caller| matches!(caller.role, Role::Admin(_)));
    let state = match (health.ready, health.troubles.is_empty()) {
        (false, _) => "not ready",
        (true, false) => "degraded",
        (true, true) => "ready",
    };
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let troubles = if is_admin { json!(health.troubles) } else { json!(health.failing) };
    (status, Json(json!({ "state": state, "troubles": troubles })))
}
