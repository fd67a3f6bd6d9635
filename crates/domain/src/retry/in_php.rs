//! The in.php/res.php family's table, CaptchaAI's differences included. `docs/retry-table.md` shows it.

use std::{borrow::Cow, time::Duration};

use super::{
    own,
    rule::{
        Class::{self, Account, Permanent, TaskOver, Transient, Wait},
        Effect::{self, MaybeNoSlot, NoSlot, ProviderDown, SlowDown, StopPolling},
        Rule,
    },
};

const fn rule(code: &'static str, class: Class, max: u32) -> Rule {
    Rule::of(Cow::Borrowed(code), class, max)
}

const fn account(code: &'static str) -> Rule {
    rule(code, Account, 0)
}

const fn permanent(code: &'static str) -> Rule {
    rule(code, Permanent, 0)
}

/// Not a failure: never counted, never the end of anything.
const fn wait(code: &'static str) -> Rule {
    rule(code, Wait, u32::MAX)
}

const fn after(mut rule: Rule, seconds: u64) -> Rule {
    rule.floor = Duration::from_secs(seconds);
    rule
}

const fn charge(mut rule: Rule, charged: Option<bool>) -> Rule {
    rule.charged = charged;
    rule
}

const fn says(effect: Effect, mut rule: Rule) -> Rule {
    rule.effect = effect;
    rule
}

/// The in.php/res.php family.
pub static IN_PHP: &[Rule] = &[
    says(NoSlot, wait("ERROR_NO_SLOT_AVAILABLE")),
    says(ProviderDown, rule("ERROR_SERVER_ERROR", Transient, 3)),
    says(ProviderDown, rule("ERROR_INTERNAL_SERVER_ERROR", Transient, 3)),
    says(SlowDown, after(rule("ERROR_TOO_MUCH_REQUESTS", Transient, 5), 3)),
    says(SlowDown, after(rule("MAX_USER_TURN", Transient, 5), 10)),
    says(SlowDown, rule(own::HTTP_429, Transient, 5)),
    says(ProviderDown, rule(own::NOT_SENT, Transient, 3)),
    charge(rule(own::AMBIGUOUS, TaskOver, 1), None),
    // CaptchaAI gives this code when all threads are busy, too.
    says(MaybeNoSlot, account("ERROR_ZERO_BALANCE")),
    says(StopPolling, account("ERROR_KEY_DOES_NOT_EXIST")),
    says(StopPolling, account("ERROR_WRONG_USER_KEY")),
    says(StopPolling, account("ERROR_IP_NOT_ALLOWED")),
    says(StopPolling, after(account("IP_BANNED"), 300)),
    says(StopPolling, after(account("ERROR_IP_BANNED"), 300)),
    after(account("ERROR: 1001"), 600),
    after(account("ERROR: 1002"), 300),
    after(account("ERROR: 1003"), 30),
    says(StopPolling, after(account("ERROR: 1004"), 600)),
    says(StopPolling, after(account("ERROR: 1005"), 300)),
    permanent("ERROR_PAGEURL"),
    permanent("ERROR_GOOGLEKEY"),
    permanent("ERROR_WRONG_GOOGLEKEY"),
    permanent("ERROR_BAD_TOKEN_OR_PAGEURL"),
    permanent("ERROR_BAD_PARAMETERS"),
    permanent("ERROR_CAPTCHA_ID"),
    permanent("ERROR_PROXY_FORMAT"),
    permanent("ERROR_BAD_PROXY"),
    permanent("ERROR_PROXY_CONNECTION_FAILED"),
    permanent("ERROR_ZERO_CAPTCHA_FILESIZE"),
    permanent("ERROR_TOO_BIG_CAPTCHA_FILESIZE"),
    permanent("ERROR_IMAGE_DIMENSIONS_TOO_LARGE"),
    permanent("ERROR_WRONG_FILE_EXTENSION"),
    permanent("ERROR_IMAGE_TYPE_NOT_SUPPORTED"),
    permanent("ERROR_UPLOAD"),
    permanent("ERROR_CAPTCHAIMAGE_BLOCKED"),
    permanent("TOO_MANY_BAD_IMAGES"),
    permanent("ERROR_DOMAIN_NOT_ALLOWED"),
    permanent("ERROR_TOKEN_EXPIRED"),
    charge(permanent("ERROR_WRONG_CAPTCHA_ID"), Some(true)),
    charge(permanent("ERROR_NO_SUCH_CAPCHA_ID"), Some(true)),
    charge(permanent("ERROR_WRONG_ID_FORMAT"), Some(true)),
    charge(permanent(own::NEVER_READY), None),
    charge(rule("ERROR_CAPTCHA_UNSOLVABLE", TaskOver, 2), None),
    charge(rule("ERROR_BAD_DUPLICATES", TaskOver, 2), Some(true)),
    wait("CAPCHA_NOT_READY"),
    wait("CAPTCHA_NOT_READY"),
    // Answers to what the gateway never asks of a task, or asks beside it: visible, should one ever come.
    charge(permanent("ERROR_EMPTY_ACTION"), None),
    charge(permanent("ERROR_IP_ADDRES"), None),
    charge(permanent("ERROR_REPORT_NOT_RECORDED"), None),
    charge(permanent("REPORT_NOT_RECORDED"), None),
    charge(permanent("ERROR_DUPLICATE_REPORT"), None),
];

/// A code nobody knows: visible, never retried blindly.
pub(super) static UNKNOWN: Rule = charge(permanent("(any other code)"), None);
