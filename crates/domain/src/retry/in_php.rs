//! The retry table of the in.php/res.php family, with the differences of CaptchaAI. `docs/retry-table.md` prints it. To
//! add a code, add one line.

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
    Rule::new(Cow::Borrowed(code), class, max)
}

const fn account(code: &'static str) -> Rule {
    rule(code, Account, 0)
}

const fn permanent(code: &'static str) -> Rule {
    rule(code, Permanent, 0)
}

/// A code that is not a failure: it is never counted, and no solve ends with it.
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

const fn with_effect(effect: Effect, mut rule: Rule) -> Rule {
    rule.effect = effect;
    rule
}

/// The lines of the table.
pub static IN_PHP: &[Rule] = &[
    with_effect(NoSlot, wait("ERROR_NO_SLOT_AVAILABLE")),
    with_effect(ProviderDown, rule("ERROR_SERVER_ERROR", Transient, 3)),
    with_effect(ProviderDown, rule("ERROR_INTERNAL_SERVER_ERROR", Transient, 3)),
    with_effect(SlowDown, after(rule("ERROR_TOO_MUCH_REQUESTS", Transient, 5), 3)),
    with_effect(SlowDown, after(rule("MAX_USER_TURN", Transient, 5), 10)),
    with_effect(SlowDown, rule(own::HTTP_429, Transient, 5)),
    with_effect(ProviderDown, rule(own::NOT_SENT, Transient, 3)),
    charge(rule(own::AMBIGUOUS, TaskOver, 1), None),
    // CaptchaAI gives this code when all threads are busy, too.
    with_effect(MaybeNoSlot, account("ERROR_ZERO_BALANCE")),
    with_effect(StopPolling, account("ERROR_KEY_DOES_NOT_EXIST")),
    with_effect(StopPolling, account("ERROR_WRONG_USER_KEY")),
    with_effect(StopPolling, account("ERROR_IP_NOT_ALLOWED")),
    with_effect(StopPolling, after(account("IP_BANNED"), 300)),
    with_effect(StopPolling, after(account("ERROR_IP_BANNED"), 300)),
    with_effect(StopPolling, after(account("ERROR: 1001"), 600)),
    with_effect(StopPolling, after(account("ERROR: 1002"), 300)),
    with_effect(StopPolling, after(account("ERROR: 1003"), 30)),
    with_effect(StopPolling, after(account("ERROR: 1004"), 600)),
    with_effect(StopPolling, after(account("ERROR: 1005"), 300)),
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
    // Replies to requests that the gateway never makes about a task. They are listed so that one that comes is visible.
    charge(permanent("ERROR_EMPTY_ACTION"), None),
    charge(permanent("ERROR_IP_ADDRES"), None),
    charge(permanent("ERROR_REPORT_NOT_RECORDED"), None),
    charge(permanent("REPORT_NOT_RECORDED"), None),
    charge(permanent("ERROR_DUPLICATE_REPORT"), None),
];

/// Any other code. It is never retried blindly.
pub(super) static UNKNOWN: Rule = charge(permanent("(any other code)"), None);
