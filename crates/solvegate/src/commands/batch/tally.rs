//! What a batch has done so far: the progress bar on a terminal, and the sentence at the end.

use domain::money::Money;
use serde_json::Value;

use crate::commands::progress::Progress;

pub(super) struct Tally {
    progress: Progress,
    served: u64,
    /// Served by claims of an earlier run.
    again: u64,
    failed: u64,
    /// In the file of answers already.
    kept: u64,
    cost: Money,
    unknown_cost: u64,
    currency: Option<String>,
}

impl Tally {
    pub(super) fn new(total: Option<u64>, json: bool) -> Self {
        let total = total.and_then(|total| usize::try_from(total).ok());
        let progress = Progress::new("", total, json);
        Self {
            progress,
            served: 0,
            again: 0,
            failed: 0,
            kept: 0,
            cost: Money::ZERO,
            unknown_cost: 0,
            currency: None,
        }
    }

    pub(super) fn keep(&mut self) {
        self.kept += 1;
        self.show();
    }

    pub(super) fn fail(&mut self) {
        self.failed += 1;
        self.show();
    }

    pub(super) fn serve(&mut self, solve: &Value) {
        self.served += 1;
        self.currency = solve["currency"].as_str().map(str::to_owned);
        let cost = solve["cost"].as_str().and_then(Money::parse);
        match (solve["source"].as_str(), cost) {
            // The claim was made, and paid, before.
            (Some("replay"), _) => self.again += 1,
            (_, Some(cost)) => self.cost = self.cost + cost,
            (_, None) => self.unknown_cost += 1,
        }
        self.show();
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    fn show(&self) {
        self.progress.add(1);
        let rate = self.progress.per_second();
        let message = format!("served, {} failed, {rate:.1}/s, cost {}", self.failed, self.cost());
        self.progress.say(message);
    }

    fn cost(&self) -> String {
        let known = match &self.currency {
            Some(currency) => format!("{} {currency}", self.cost),
            None => self.cost.to_string(),
        };
        match self.unknown_cost {
            0 => known,
            unknown if self.cost == Money::ZERO => format!("unknown for {unknown}"),
            unknown => format!("{known}, and unknown for {unknown}"),
        }
    }

    /// Removes the bar and prints the sums.
    pub(super) fn end(&self) {
        self.progress.clear();
        eprintln!("{}", self.summary());
    }

    /// The sums in one sentence.
    fn summary(&self) -> String {
        let Self { served, again, failed, kept, .. } = self;
        let again = if *again == 0 { String::new() } else { format!(" ({again} again, for free)") };
        let kept = if *kept == 0 { String::new() } else { format!(", {kept} kept from before") };
        format!("{served} served{again}, {failed} failed{kept}; cost {}", self.cost())
    }
}
