//! Checks the books of the budgets against the ledger, the solves in progress and the limits (I23).

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    budget::{Allowance, Amount, BudgetScope, BudgetUse, Budgets},
    challenge::Kind,
    declarations::POOL,
    id::{SolveId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    ports::{ActiveSolve, DaySpending},
    retry::own,
};

/// The only list price of a simulated world is that of Turnstile.
pub const PRICE: Money = Money::from_micros(1000);
/// More than the provider charges for any task.
const MOST_CHARGED: Money = Money::from_micros(5000);

/// What the ledger says about money.
#[derive(Clone, Debug, Default)]
pub struct LedgerBooks {
    /// Attempts that ended, or that are given up.
    settled: Amount,
    /// What they cost; at list price where that is unknown.
    charged: Money,
    /// Attempts whose charge is unknown so far, with their list price.
    assumed: BTreeMap<(SolveId, u32), Money>,
    closed: BTreeSet<(SolveId, u32)>,
    /// The last intent of each solve.
    current: BTreeMap<SolveId, u32>,
    /// What may be used beyond the limits of a worker, or of the pools together: charges above the list price, and charges for
    /// attempts that had ended.
    beyond: BTreeMap<WorkerName, Amount>,
    /// The solves whose last attempt ended without an answer.
    failed: BTreeSet<SolveId>,
    /// What workers may use beyond their limits because a token of a pool came in place of another attempt.
    passed_on: BTreeMap<WorkerName, Amount>,
}

fn add(sums: &mut BTreeMap<WorkerName, Amount>, worker: &WorkerName, more: Amount) {
    let known = sums.entry(worker.clone()).or_default();
    *known = sum([*known, more].iter());
}

fn sum<'a>(all: impl Iterator<Item = &'a Amount>) -> Amount {
    all.fold(Amount::default(), |sum, one| Amount {
        solves: sum.solves + one.solves,
        cost: sum.cost + one.cost,
    })
}

fn list_price(kind: Option<&Kind>) -> Money {
    if kind == Some(&Kind::Turnstile) { PRICE } else { Money::ZERO }
}

// === impl LedgerBooks ===

impl LedgerBooks {
    pub fn add(&mut self, entry: &Entry) {
        let Some(solve) = entry.solve else { return };
        let by = (&entry.worker, list_price(entry.kind.as_ref()));
        match &entry.event {
            Event::Intent { attempt, .. } => {
                self.failed.remove(&solve);
                self.current.insert(solve, *attempt);
            }
            Event::TaskOver { attempt, cost, .. } => {
                self.failed.insert(solve);
                self.close((solve, *attempt), by, *cost);
            }
            Event::Ready { attempt, cost, .. } => self.close((solve, *attempt), by, *cost),
            Event::Authorised { attempt, .. } | Event::WrittenOff { attempt } => {
                self.close((solve, *attempt), by, None);
            }
            Event::Failed { code } if code.as_str() == own::POISON => {
                let attempt = self.current.get(&solve).copied().unwrap_or(0);
                self.close((solve, attempt), by, None);
            }
            Event::Allotted { paid_by, .. }
                if *paid_by != solve && self.failed.contains(&solve) =>
            {
                add(&mut self.passed_on, &entry.worker, Amount::one(Some(MOST_CHARGED)));
            }
            Event::Orphaned { attempt, by, .. } => {
                if let Some(assumed) = self.assumed.remove(&(solve, *attempt)) {
                    self.assumed.insert((*by, 1), assumed);
                }
            }
            _ => {}
        }
    }

    /// Closes an attempt that this worker bought at this list price.
    fn close(
        &mut self,
        attempt: (SolveId, u32),
        (worker, price): (&WorkerName, Money),
        cost: Option<Money>,
    ) {
        if let Some(assumed) = self.assumed.get(&attempt).copied() {
            let Some(cost) = cost else { return };
            self.assumed.remove(&attempt);
            self.charged = self.charged + cost - assumed;
            self.exceed(worker, cost, assumed);
            return;
        }
        let is_late = !self.closed.insert(attempt) || !self.is_intended(attempt);
        if is_late {
            add(&mut self.beyond, worker, Amount::one(Some(cost.unwrap_or(price))));
        } else {
            self.exceed(worker, cost.unwrap_or(price), price);
        }
        if cost.is_none() {
            self.assumed.insert(attempt, price);
        }
        self.settled.solves += 1;
        self.settled.cost = self.settled.cost + price;
        self.charged = self.charged + cost.unwrap_or(price);
    }

    fn is_intended(&self, (solve, attempt): (SolveId, u32)) -> bool {
        self.current.get(&solve) == Some(&attempt)
    }

    fn exceed(&mut self, worker: &WorkerName, charge: Money, price: Money) {
        if charge > price {
            add(&mut self.beyond, worker, Amount { solves: 0, cost: charge - price });
        }
    }

    /// What may be used beyond the limits of a budget.
    fn beyond(&self, scope: &BudgetScope) -> Amount {
        let of = |name: &str| {
            let all = [&self.beyond, &self.passed_on].into_iter().flatten();
            sum(all.filter(|(worker, _)| worker.as_str() == name).map(|(_, amount)| amount))
        };
        match scope {
            BudgetScope::Account => sum(self.beyond.values()),
            BudgetScope::Worker(worker) => of(worker.as_str()),
            BudgetScope::Pool(_) => of(POOL),
        }
    }

    /// What the books say that is not so.
    pub fn violations(
        &self,
        spending: &DaySpending,
        active: &[ActiveSolve],
        budgets: &Budgets,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        let mut sum = BudgetUse::default();
        for (scope, book) in &spending.books {
            if *scope != BudgetScope::Account {
                sum.add_bought(&book.month);
            }
        }
        let reserved = active.iter().filter_map(|solve| solve.reserved);
        let outstanding = reserved.fold(Amount::default(), |sum, one| Amount {
            solves: sum.solves + 1,
            cost: sum.cost + one.price.unwrap_or_default(),
        });
        if sum.outstanding() != outstanding {
            let books = sum.outstanding();
            broken.push(format!("I23: {books:?} is outstanding, the solves hold {outstanding:?}"));
        }
        let reserved = sum.settled.solves + sum.released.solves + outstanding.solves;
        if sum.reserved.solves != reserved {
            let books = sum.reserved;
            broken.push(format!("I23: {books:?} is reserved, {reserved} are explained"));
        }
        if sum.settled != self.settled || sum.charged - sum.corrected != self.charged {
            let (settled, charged) = (sum.settled, sum.charged - sum.corrected);
            broken.push(format!(
                "I23: {settled:?} is settled at {charged}, the ledger has {:?} at {}",
                self.settled, self.charged
            ));
        }
        let account = spending.books.get(&BudgetScope::Account).map(|book| book.month);
        if account.unwrap_or_default() != sum {
            broken.push(format!("I23: the account has {account:?}, its parts have {sum:?}"));
        }
        for (scope, book) in &spending.books {
            let (most, beyond) = (limits(budgets, scope), self.beyond(scope));
            let over = |used: Amount, solves: Option<u64>, cost: Option<Money>| {
                solves.is_some_and(|most| used.solves > most + beyond.solves)
                    || cost.is_some_and(|most| used.cost > most + beyond.cost)
            };
            let days = book.days.iter().map(|(_, sums)| sums.used());
            let is_over = over(book.month.used(), most.solves_per_month, most.cost_per_month)
                || days.into_iter().any(|used| over(used, most.solves_per_day, most.cost_per_day));
            if is_over {
                broken.push(format!("I23: {scope} spent beyond {most:?}: {book:?}"));
            }
        }
        broken
    }
}

fn limits(budgets: &Budgets, scope: &BudgetScope) -> Allowance {
    match scope {
        BudgetScope::Account => budgets.account,
        BudgetScope::Worker(worker) => budgets.of_worker(worker),
        BudgetScope::Pool(id) => {
            let found =
                budgets.pools.iter().find(|(pool, _)| domain::pool::PoolId::of(pool) == *id);
            found.map(|(_, allowance)| *allowance).unwrap_or_default()
        }
    }
}
