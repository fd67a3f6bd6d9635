//! The traits between the engine and the outside world. They are trait objects without associated types, because the
//! configuration chooses the backend at run time.

mod archive;
mod chance;
mod clock;
mod notifier;
mod provider;
mod records;
mod requests;
mod store;
mod webhooks;

pub use archive::{Archive, ArchiveBatch, History};
pub use chance::Chance;
pub use clock::{Clock, ClockOffset, MAX_CLOCK_OFFSET, ServerTime};
pub use notifier::{Notifier, Subscription};
pub use provider::{BatchRefused, Fault, Feedback, Poll, Polled, Provider, Submission, Threads};
pub use records::{
    ActiveSolve, AuditFilter, ClaimFilter, Cursor, DaySpending, DeadLetterFilter, LearnedMargin,
    Paged, PoolState, Records, Scope, TotalsFilter,
};
pub use requests::{LeaseRequest, Note, PauseRequest, RefillRequest, ReviveRequest, SweepRequest};
pub use store::{
    Advanced, BoxError, PauseResult, Refilled, Revival, Settled, Store, StoreError, StoreResult,
    Swept, Withdrawal,
};
pub use webhooks::{AddressRefused, NoWebhooks, Webhook, WebhookError, WebhookSender};
