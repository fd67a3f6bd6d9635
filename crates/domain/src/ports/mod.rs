//! What the engine asks of the outside. Trait objects, no associated types: the backend is chosen by configuration.

mod archive;
mod chance;
mod clock;
mod courier;
mod doorbell;
mod provider;
mod records;
mod store;

pub use archive::{Archive, History, Lot};
pub use chance::Chance;
pub use clock::Clock;
pub use courier::{AddressRefused, Courier, NoCourier, NotTold, Parcel};
pub use doorbell::{Doorbell, Ear};
pub use provider::{BatchRefused, Fault, Feedback, Poll, Polled, Provider, Submission, Threads};
pub use records::{
    ActiveSolve, ClaimFilter, Cursor, DaySpending, DeadLetterFilter, LearnedMargin, Paged,
    PoolState, Records, Scope, Spent, StockLevel, TotalsAsk,
};
pub use store::{
    BoxError, LeaseAsk, Note, Refill, Refilled, Revival, Revive, Settled, Store, StoreError,
    SweepAsk, Swept, Withdrawal,
};
