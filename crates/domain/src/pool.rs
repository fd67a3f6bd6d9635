//! Standing orders: how many tokens a pool keeps ready.

mod demand;

pub use demand::{Demand, DemandAsk, Target, Timing, Why};
