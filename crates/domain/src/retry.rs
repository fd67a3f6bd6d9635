//! What a failure means: one table per provider, as data. No other code decides about a retry.
//!
//! - `rule`: one line of a table; `in_php`: the lines of the in.php/res.php family
//! - `overrides`: values the operator changed; `backoff`: the wait before a retry

mod backoff;
mod code;
mod in_php;
mod overrides;
mod rule;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use crate::{attempt::Failure, ports::Chance, time::Timestamp};

pub use backoff::{Backoff, Jitter, Profile};
pub use code::{Code, own};
pub use in_php::IN_PHP;
pub use overrides::{Override, OverrideRefused};
pub use rule::{Class, Effect, Rule};

/// A provider's table with its profile and overrides applied. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryTable {
    rules: Arc<[Rule]>,
    backoff: Backoff,
    jitter: Jitter,
}

/// What the table says about a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Queue the solve again. A counted failure enters its cause chain.
    Again {
        /// The earliest time of the next attempt.
        due: Timestamp,
        /// Whether the failure counts against the code's `max`.
        counted: bool,
    },
    /// Fail the solve and its claims.
    GiveUp,
}

/// The circumstances of a failure.
#[derive(Clone, Copy)]
pub struct RetryMoment<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The provider's `Retry-After`; the wait is never shorter.
    pub retry_after: Option<Duration>,
    /// The randomness for the jitter.
    pub chance: &'a dyn Chance,
}

// === impl RetryTable ===

impl RetryTable {
    /// Applies a backoff and the operator's overrides to a provider's table. `backoff.most` limits the retries of every
    /// code, except where an override sets more.
    pub fn new(
        provider: &[Rule],
        backoff: Backoff,
        jitter: Jitter,
        overrides: &BTreeMap<Code, Override>,
    ) -> Result<Self, OverrideRefused> {
        let mut rules = lines(provider, backoff);
        for (code, change) in overrides {
            let at = rules.iter().position(|rule| rule.code == code.as_str());
            let rule = change.rule(code, at.map(|at| &rules[at]), backoff)?;
            match at {
                Some(at) => rules[at] = rule,
                None => rules.push(rule),
            }
        }
        Ok(Self { rules: rules.into(), backoff, jitter })
    }

    /// The in.php/res.php table with a profile and no overrides.
    pub fn in_php(profile: Profile) -> Self {
        let backoff = profile.backoff();
        Self { rules: lines(IN_PHP, backoff).into(), backoff, jitter: Jitter::default() }
    }

    /// The backoff in use.
    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// The jitter in use.
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// All lines; the last one stands for every other code.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().chain([&in_php::UNKNOWN])
    }

    /// The line for a code; an unknown code is permanent.
    pub fn rule(&self, code: &Code) -> &Rule {
        let found = self.rules.iter().find(|rule| rule.code == code.as_str());
        found.unwrap_or(&in_php::UNKNOWN)
    }

    /// What a code says about the provider or the account.
    pub fn effect(&self, code: &Code) -> Effect {
        self.rule(code).effect
    }

    /// The provider's code for "every slot is taken"; `None` when it has none.
    pub fn no_slot_code(&self) -> Option<Code> {
        let rule = self.rules.iter().find(|rule| rule.effect == Effect::NoSlot)?;
        Some(Code::new(&rule.code))
    }

    /// The verdict about `code` for a solve with the cause chain `chain`.
    pub fn verdict(&self, code: &Code, chain: &[Failure], at: RetryMoment<'_>) -> Verdict {
        let rule = self.rule(code);
        let met =
            u32::try_from(chain.iter().filter(|f| f.code == *code).count()).unwrap_or(u32::MAX);
        let floor = rule.floor.max(at.retry_after.unwrap_or_default()).min(backoff::LONGEST_FLOOR);
        let again = |wait, counted| Verdict::Again { due: at.now.plus(wait), counted };
        match rule.class {
            Class::Permanent => Verdict::GiveUp,
            Class::Account | Class::Wait => again(floor, false),
            Class::Transient | Class::TaskOver if met >= rule.max => Verdict::GiveUp,
            Class::Transient | Class::TaskOver if rule.backoff => {
                again(self.backoff.wait(self.jitter, met, floor, at.chance), true)
            }
            Class::Transient | Class::TaskOver => again(floor, true),
        }
    }
}

/// The backoff in one line.
impl fmt::Display for RetryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Backoff { base, cap, most } = self.backoff;
        let (base, cap) = (base.as_secs_f64(), cap.as_secs_f64());
        let drawn = match self.jitter {
            Jitter::Full => format!("full jitter in [0, min({cap} s, {base} s · 2ⁿ)]"),
            Jitter::Additive => format!("min({cap} s, {base} s · 2ⁿ + U(0, 1 s)), additive jitter"),
        };
        write!(f, "{drawn}, n from 0; Retry-After is a floor; at most {most} retries of a code")
    }
}

fn lines(provider: &[Rule], backoff: Backoff) -> Vec<Rule> {
    let within = |rule: &Rule| {
        let most = if rule.class.is_counted() { backoff.most } else { u32::MAX };
        Rule { max: rule.max.min(most), ..rule.clone() }
    };
    provider.iter().map(within).collect()
}

#[cfg(test)]
mod tests;
