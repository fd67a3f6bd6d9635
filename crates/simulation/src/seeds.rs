//! Runs seeds and reports on them, for the tests and for the program `sim`.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    judge::{Verdict, judge},
    world::Plan,
};

/// Every test run checks the seeds from 0 up to this one; `SOLVEGATE_SEEDS` raises the number.
pub const FIXED_SEEDS: u64 = 250;

/// A seed that violated an invariant or panicked.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violations: Vec<String>,
}

/// The combined activity of many seeds: a simulation in which nothing happens finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    pub seeds: usize,
    pub paid: usize,
    pub served: usize,
    pub ordered: usize,
    pub crashes: usize,
    pub entries: usize,
}

/// Runs a plan to its end, or to its first violation.
pub fn check(plan: Plan) -> Result<Verdict, Failure> {
    let panicked = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Failure { seed: plan.seed, violations: vec![format!("panicked: {text}")] }
    };
    let verdict = catch_unwind(AssertUnwindSafe(|| judge(&plan.run()))).map_err(panicked)?;
    if verdict.violations.is_empty() {
        return Ok(verdict);
    }
    Err(Failure { seed: plan.seed, violations: verdict.violations })
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed:", self.seed)?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        write!(f, "repeat it with: scripts/sim --seed {}", self.seed)
    }
}

// === impl Activity ===

impl Activity {
    pub fn add(&mut self, verdict: &Verdict) {
        self.seeds += 1;
        self.paid += verdict.paid;
        self.served += verdict.served;
        self.ordered += verdict.ordered;
        self.crashes += verdict.crashes;
        self.entries += verdict.entries;
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tasks paid, {} tokens delivered, {} ordered by pools, {} crashes, {} ledger entries",
            self.paid, self.served, self.ordered, self.crashes, self.entries
        )
    }
}
