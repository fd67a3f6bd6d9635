//! Which sums uncertain charges can have.

/// The sums that a list of uncertain charges can have.
#[derive(Clone, Debug)]
pub(super) struct Reachable {
    /// Each of them, rising; `None` when there are too many.
    each: Option<Vec<i64>>,
    least: i64,
    most: i64,
}

/// With more different sums than this, only the least and the most are kept.
const MOST_SUMS: usize = 20_000;

// === impl Reachable ===

impl Reachable {
    /// Each charge is zero or one of its amounts.
    pub(super) fn of<'a>(charges: impl Iterator<Item = &'a [i64]>) -> Self {
        let mut sums = Self { each: Some(vec![0]), least: 0, most: 0 };
        for amounts in charges {
            sums.add(amounts);
        }
        sums
    }

    fn add(&mut self, amounts: &[i64]) {
        self.least = self.least.saturating_add(amounts.iter().copied().min().unwrap_or(0).min(0));
        self.most = self.most.saturating_add(amounts.iter().copied().max().unwrap_or(0).max(0));
        let Some(each) = &mut self.each else { return };
        let more = amounts.iter().flat_map(|amount| {
            let amount = *amount;
            each.iter().map(move |sum| sum.saturating_add(amount))
        });
        let mut all: Vec<i64> = each.iter().copied().chain(more).collect();
        all.sort_unstable();
        all.dedup();
        self.each = (all.len() <= MOST_SUMS).then_some(all);
    }

    pub(super) fn least(&self) -> i64 {
        self.least
    }

    pub(super) fn most(&self) -> i64 {
        self.most
    }

    /// What remains of a difference when as much of it as possible is explained. Zero: the charges explain it.
    pub(super) fn remainder(&self, difference: i64) -> i64 {
        let Some(each) = &self.each else {
            return difference - difference.clamp(self.least, self.most);
        };
        if each.binary_search(&difference).is_ok() {
            return 0;
        }
        let explained = if difference > 0 {
            each.iter().rev().find(|sum| **sum <= difference)
        } else {
            each.iter().find(|sum| **sum >= difference)
        };
        difference - explained.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Reachable;

    fn remainder(charges: &[&[i64]], difference: i64) -> i64 {
        Reachable::of(charges.iter().copied()).remainder(difference)
    }

    #[test]
    fn a_difference_is_explained_by_some_of_the_charges_or_by_none() {
        assert_eq!(remainder(&[], 0), 0);
        assert_eq!(remainder(&[], 7), 7);
        assert_eq!(remainder(&[], -7), -7);
        assert_eq!(remainder(&[&[1450], &[1450]], 2900), 0);
        assert_eq!(remainder(&[&[1450], &[1450]], 1450 + 1200), 1200);
        assert_eq!(remainder(&[&[1450], &[-1000]], 450), 0, "one charged, one given back");
        assert_eq!(remainder(&[&[1450], &[-1000]], -1001), -1);
        assert_eq!(remainder(&[&[1000, 2990]], 2990), 0, "it had one of two prices");
    }

    #[test]
    fn of_too_many_sums_the_ends_are_kept() {
        let charges: Vec<[i64; 1]> = (0..40).map(|n| [1 << n]).collect();
        let sums = Reachable::of(charges.iter().map(<[i64; 1]>::as_slice));
        assert_eq!((sums.least(), sums.most()), (0, (1 << 40) - 1));
        assert_eq!(sums.remainder(12345), 0);
        assert_eq!(sums.remainder(1 << 40), 1);
        assert_eq!(sums.remainder(-5), -5);
    }
}
