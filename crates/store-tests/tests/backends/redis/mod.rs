//! The Redis store when the server loses data, connections or replies.

mod budgets;
mod concurrent_callers;
mod differential;
mod keys;
mod losses;
mod notifications;
mod replicas;
mod skew;
mod tls;
