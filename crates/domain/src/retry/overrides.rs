//! Single values of a table, changed by the operator. What would make the table unsafe is refused with the reason.

use std::{borrow::Cow, time::Duration};

use super::{
    Backoff, Code,
    backoff::LONGEST_FLOOR,
    own,
    rule::{Class, Rule},
};

/// What an operator changes about one code. What is `None` stays as the table has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Another class; required for a code the table does not know.
    pub class: Option<Class>,
    /// How often it is tried again. Stands also above the profile's `most`.
    pub max: Option<u32>,
    /// Whether the next try waits.
    pub backoff: Option<bool>,
    /// The least wait.
    pub wait: Option<Duration>,
}

/// Why a code's rule stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {why}")]
pub struct OverrideRefused {
    /// Which code.
    pub code: Code,
    /// Why, and what to do instead.
    pub why: &'static str,
}

/// Words of ours that no retry depends on.
const NOT_IN_THE_TABLE: [&str; 7] = [
    own::DEADLINE,
    own::NEVER_READY,
    own::POISON,
    own::WITHDRAWN,
    own::NOT_NEEDED,
    own::DUPLICATE_TASK,
    own::PASSED_ON,
];

/// A solve is never tried more often, whatever is written.
const MOST_RETRIES: u32 = 100;

// === impl Override ===

impl Override {
    /// The line that takes the place of `found`; `None` stands for a code the table does not know.
    pub(super) fn rule(
        &self,
        code: &Code,
        found: Option<&Rule>,
        backoff: Backoff,
    ) -> Result<Rule, OverrideRefused> {
        let refused = |why| OverrideRefused { code: code.clone(), why };
        check_code(code).map_err(refused)?;
        let mut rule = match found {
            Some(found) => self.reclassed(found, backoff).map_err(refused)?,
            None => self.added(code, backoff).map_err(refused)?,
        };
        if let Some(max) = self.max {
            check_max(rule.class, max).map_err(refused)?;
            rule.max = max;
        }
        if let Some(wait) = self.wait {
            if wait > LONGEST_FLOOR {
                return Err(refused("wait is an hour at most"));
            }
            rule.floor = wait;
        }
        if let Some(backoff) = self.backoff {
            if !rule.class.is_counted() {
                return Err(refused("backoff is for transient and task-over codes only"));
            }
            rule.backoff = backoff;
        }
        Ok(rule)
    }

    fn reclassed(&self, found: &Rule, backoff: Backoff) -> Result<Rule, &'static str> {
        let Some(class) = self.class.filter(|class| *class != found.class) else {
            return Ok(found.clone());
        };
        check_class(found.class, class)?;
        let usual = Rule::of(found.code.clone(), class, usual_max(class, backoff));
        Ok(Rule { charged: found.charged, floor: found.floor, effect: found.effect, ..usual })
    }

    fn added(&self, code: &Code, backoff: Backoff) -> Result<Rule, &'static str> {
        let class = self.class.ok_or(
            "the table does not know this code: write its class too, or mend its spelling",
        )?;
        let usual =
            Rule::of(Cow::Owned(code.as_str().to_owned()), class, usual_max(class, backoff));
        Ok(Rule { charged: None, ..usual })
    }
}

fn check_code(code: &Code) -> Result<(), &'static str> {
    if code.as_str() == own::AMBIGUOUS {
        return Err(
            "a lost reply may have been paid for: the site's `ambiguous` and `ambiguity_budget` \
             decide about it, not the table",
        );
    }
    if NOT_IN_THE_TABLE.contains(&code.as_str()) {
        return Err("is the gateway's own word for an end; nothing is tried again after it");
    }
    if code.as_str().is_empty() { Err("a code is not empty") } else { Ok(()) }
}

/// Nothing may turn trouble that is nobody's fault into the end of claims.
fn check_class(old: Class, new: Class) -> Result<(), &'static str> {
    match old {
        Class::Transient | Class::Permanent | Class::TaskOver => Ok(()),
        Class::Wait => Err("is not a failure, and no claim may die of it: its class stays"),
        Class::Account if new == Class::Wait => Ok(()),
        Class::Account => Err("account trouble must not kill claims: they wait until the account \
             is well again; only class = \"wait\" is possible here"),
    }
}

fn check_max(class: Class, max: u32) -> Result<(), &'static str> {
    match class {
        Class::Transient | Class::TaskOver if max <= MOST_RETRIES => Ok(()),
        Class::Transient | Class::TaskOver => Err("max is 100 at most"),
        Class::Permanent if max == 0 => Ok(()),
        Class::Permanent => Err(
            "a permanent code is never tried again: write class = \"transient\" or \"task-over\" too",
        ),
        Class::Account | Class::Wait => {
            Err("is not counted, so max means nothing here: leave it out")
        }
    }
}

/// How often a code is tried again that was given a class and no `max`.
fn usual_max(class: Class, backoff: Backoff) -> u32 {
    match class {
        Class::Transient => 5.min(backoff.most),
        Class::TaskOver => 2.min(backoff.most),
        Class::Permanent | Class::Account => 0,
        Class::Wait => u32::MAX,
    }
}
