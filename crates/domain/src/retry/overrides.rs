//! Changes of the operator to single lines of the table. Changes that would make the table unsafe are refused.

use std::{borrow::Cow, time::Duration};

use super::{
    Backoff, Code,
    backoff::LONGEST_FLOOR,
    own,
    rule::{Class, Rule},
};

/// The operator's changes to one code. `None` keeps the table's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// The class; required for a code that the table does not have.
    pub class: Option<Class>,
    /// The most retries. It may exceed the profile's `most`.
    pub max: Option<u32>,
    /// Whether a retry waits for the backoff.
    pub backoff: Option<bool>,
    /// The shortest wait before a retry.
    pub wait: Option<Duration>,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {why}")]
pub struct OverrideRefused {
    /// The code of the line.
    pub code: Code,
    /// The reason, and what to do instead.
    pub why: &'static str,
}

/// Our own codes that no retry depends on.
const NOT_IN_THE_TABLE: [&str; 7] = [
    own::DEADLINE,
    own::NEVER_READY,
    own::POISON,
    own::WITHDRAWN,
    own::NOT_NEEDED,
    own::DUPLICATE_TASK,
    own::PASSED_ON,
];

/// The largest `max` that can be configured.
const MOST_RETRIES: u32 = 100;

// === impl Override ===

impl Override {
    /// The line that replaces `found`, or a new line for a code that the table does not have.
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
        let usual = Rule::new(found.code.clone(), class, usual_max(class, backoff));
        Ok(Rule { charged: found.charged, floor: found.floor, effect: found.effect, ..usual })
    }

    fn added(&self, code: &Code, backoff: Backoff) -> Result<Rule, &'static str> {
        let class = self.class.ok_or(
            "the table does not have this code: set its class too, or correct its spelling",
        )?;
        let usual =
            Rule::new(Cow::Owned(code.as_str().to_owned()), class, usual_max(class, backoff));
        Ok(Rule { charged: None, ..usual })
    }
}

fn check_code(code: &Code) -> Result<(), &'static str> {
    if code.as_str() == own::AMBIGUOUS {
        return Err(
            "a lost reply may have been paid for, so the site's `ambiguous` and `ambiguity_budget` \
             decide about it, not the table",
        );
    }
    if NOT_IN_THE_TABLE.contains(&code.as_str()) {
        return Err("is the gateway's own code for the end of a solve, which is never retried");
    }
    if code.as_str().is_empty() { Err("a code must not be empty") } else { Ok(()) }
}

/// An operator cannot make claims fail for a problem of the account or for a wait.
fn check_class(old: Class, new: Class) -> Result<(), &'static str> {
    match old {
        Class::Transient | Class::Permanent | Class::TaskOver => Ok(()),
        Class::Wait => Err(
            "is not a failure, and no claim may fail because of it: its class cannot be changed",
        ),
        Class::Account if new == Class::Wait => Ok(()),
        Class::Account => Err("account errors must not fail claims, which wait until the account \
             works again; only class = \"wait\" is allowed here"),
    }
}

fn check_max(class: Class, max: u32) -> Result<(), &'static str> {
    match class {
        Class::Transient | Class::TaskOver if max <= MOST_RETRIES => Ok(()),
        Class::Transient | Class::TaskOver => Err("max is 100 at most"),
        Class::Permanent if max == 0 => Ok(()),
        Class::Permanent => {
            Err("a permanent code is never retried: set class = \"transient\" or \"task-over\" too")
        }
        Class::Account | Class::Wait => {
            Err("is not counted, so max has no effect here: leave it out")
        }
    }
}

/// The most retries of a code that was given a class and no `max`.
fn usual_max(class: Class, backoff: Backoff) -> u32 {
    match class {
        Class::Transient => 5.min(backoff.most),
        Class::TaskOver => 2.min(backoff.most),
        Class::Permanent | Class::Account => 0,
        Class::Wait => u32::MAX,
    }
}
