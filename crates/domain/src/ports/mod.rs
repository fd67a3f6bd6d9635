//! What the engine asks of the outside. Trait objects, no associated types: the backend is chosen by configuration.

mod chance;
mod clock;
mod doorbell;
mod provider;
mod records;
mod store;

pub use chance::Chance;
pub use clock::Clock;
pub use doorbell::{Doorbell, Ear};
pub use provider::{Fault, Feedback, Poll, Polled, Provider, Submission, Threads};
pub use records::{
    ActiveSolve, ClaimFilter, Cursor, DeadLetterFilter, Paged, Records, Scope, StockLevel,
    TotalsAsk,
};
pub use store::{
    BoxError, LeaseAsk, Note, Settled, Store, StoreError, SweepAsk, Swept, Withdrawal,
};
