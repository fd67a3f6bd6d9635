//! Budgets, and the list prices that they are counted with. A budget of money without a price for everything it may be spent
//! on is refused here, because its claims would be refused as "used up".

use std::collections::BTreeSet;

use domain::{
    budget::{Allowance, Budgets},
    challenge::Kind,
    money::Money,
    prices::{ENTERPRISE_KINDS, Plan, PriceList},
};

use super::{Config, Service, Worker};
use crate::config::{
    ConfigError,
    written::{BudgetKeys, Given, PlanKeys, PriceName},
};

/// The name in `price_per_1000` of all kinds that it does not name.
const DEFAULT: &str = "default";
const ENTERPRISE: &str = "_enterprise";

pub(super) fn allowance(keys: BudgetKeys) -> Allowance {
    let number = |given: Option<Given<u64>>| given.map(|given| given.value);
    let amount = |given: Option<Given<Money>>| given.map(|given| given.value);
    Allowance {
        solves_per_day: number(keys.solves_per_day),
        cost_per_day: amount(keys.cost_per_day),
        solves_per_month: number(keys.solves_per_month),
        cost_per_month: amount(keys.cost_per_month),
    }
}

/// Sorts the entries of `price_per_1000`: kinds, their enterprise variants, and `default`. A plan takes their place.
pub(super) fn prices(
    written: impl IntoIterator<Item = (PriceName, Given<Money>)>,
    plan: &PlanKeys,
) -> Result<PriceList, ConfigError> {
    let mut list = PriceList { plan: check_plan(plan)?, ..PriceList::default() };
    for (PriceName(kind), amount) in written {
        let price = amount.value.per_thousand();
        let variant = kind.name().strip_suffix(ENTERPRISE).and_then(|of| of.parse::<Kind>().ok());
        if let Some(of) = variant.filter(|of| ENTERPRISE_KINDS.contains(of)) {
            list.enterprise.insert(of, price);
        } else if kind.name() == DEFAULT {
            list.usual = Some(price);
        } else {
            list.kinds.insert(kind, price);
        }
    }
    let is_listed = PriceList { plan: None, ..list.clone() }.is_empty();
    if list.plan.is_some() && !is_listed {
        let what = "and price_per_1000 exclude each other; keep the one that the account pays by";
        return Err(ConfigError::at("[upstream] plan", what));
    }
    Ok(list)
}

fn check_plan(keys: &PlanKeys) -> Result<Option<Plan>, ConfigError> {
    let refused = |what| Err(ConfigError::at("[upstream] plan", what));
    match (&keys.monthly, &keys.threads) {
        (None, None) => Ok(None),
        (Some(monthly), Some(_)) if monthly.value == Money::ZERO => {
            refused("costs nothing; write its price, or remove it")
        }
        (Some(monthly), Some(threads)) => {
            Ok(Some(Plan { monthly: monthly.value, threads: threads.value }))
        }
        (Some(_), None) => refused("has no threads; write threads = 5"),
        (None, Some(_)) => refused("has no price; write monthly = 15.0"),
    }
}

impl Config {
    /// The budgets of the account and the workers.
    pub fn budgets(&self) -> Budgets {
        let each = |worker: &Worker| (worker.name.clone(), worker.budget);
        Budgets {
            account: self.upstream.budget,
            workers: self.workers.iter().map(each).collect(),
            ..Budgets::default()
        }
    }

    /// Checks that every budget of money can be computed with these prices. The simulator's prices are all known.
    pub fn check_budgets(&self, prices: &PriceList) -> Result<(), ConfigError> {
        if self.upstream.service == Service::Simulator {
            return Ok(());
        }
        for worker in self.workers.iter().filter(|worker| worker.budget.limits_cost()) {
            let place = format!("[[worker]] {} budget", worker.name);
            check_prices(&place, &self.kinds_of(worker.scope.images), prices)?;
        }
        for (at, pool) in self.pools.iter().enumerate().filter(|(_, p)| p.budget.limits_cost()) {
            let place = format!("[[pool]] number {} budget", at + 1);
            if prices.listed(&pool.challenge).is_none() {
                check_prices(&place, &[pool.challenge.kind().clone()].into(), prices)?;
            }
        }
        if self.upstream.budget.limits_cost() {
            check_prices("[upstream] budget", &self.kinds_of(true), prices)?;
        }
        Ok(())
    }

    /// The kinds that may be solved under the declarations.
    fn kinds_of(&self, may_use_images: bool) -> BTreeSet<Kind> {
        let sites = &self.declarations.sites;
        let mut kinds = BTreeSet::new();
        if !sites.is_empty() {
            kinds.extend(Kind::known().filter(|kind| !kind.is_pageless()));
        }
        let methods = sites.iter().flat_map(|site| &site.opened.methods);
        kinds.extend(methods.map(|method| Kind::Other(method.clone())));
        if let Some(images) = self.declarations.images.as_ref().filter(|_| may_use_images) {
            kinds.extend(images.kinds.iter().cloned());
        }
        kinds
    }
}

fn check_prices(
    place: &str,
    kinds: &BTreeSet<Kind>,
    prices: &PriceList,
) -> Result<(), ConfigError> {
    if prices.plan.is_some() {
        return Ok(());
    }
    let unknown = kinds.iter().filter(|kind| prices.of_kind(kind).is_none());
    let unknown: Vec<&str> = unknown.map(Kind::name).collect();
    let Some(first) = unknown.first() else { return Ok(()) };
    let what = format!(
        "limits money, and the price of {} is not known; write [upstream] price_per_1000 = {{ {first} = 1.0 }} with each of \
         them, or {{ {DEFAULT} = 1.0 }} for all that it does not name; or plan = {{ monthly = 15.0, threads = 5 }} if the \
         account pays for threads",
        unknown.join(", ")
    );
    Err(ConfigError::at(place, what))
}
