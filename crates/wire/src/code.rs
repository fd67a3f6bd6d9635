//! The codes of in.php and res.php, and how to recognise one. `domain::retry` has their meaning.
//!
//! After a code a submission may be retried, so a code must be certain. Plain text counts if it is a known code, a ban (`ERROR: `
//! and four digits) or another word that starts with `ERROR_`, but not if it is the beginning of a known code, because then
//! the rest of the reply may be missing. A complete JSON object with `"status":0` cannot be truncated, so there any
//! upper-case word counts, and a URL, which providers use as a code.

use domain::retry::{Code, IN_PHP, own};

use crate::json;

/// Defines codes; with a name in front, also the list of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $(= $text:literal)?,)*) => {
        $($(#[$doc])* pub const $name: &str = codes!(@text $name $($text)?);)*
    };
    ($(#[$about:meta])* $list:ident: $($(#[$doc:meta])* $name:ident $(= $text:literal)?,)*) => {
        codes! { $($(#[$doc])* $name $(= $text)?,)* }

        $(#[$about])*
        pub const $list: &[&str] = &[$($name,)*];
    };
    (@text $name:ident) => { stringify!($name) };
    (@text $name:ident $text:literal) => { $text };
}

codes! {
    /// All known codes of in.php, ours included.
    ALL_IN:
    /// The key does not have 32 characters.
    ERROR_WRONG_USER_KEY,
    /// The key is unknown, or the plan ended.
    ERROR_KEY_DOES_NOT_EXIST,
    /// No money, or no free thread.
    ERROR_ZERO_BALANCE,
    /// The queue is full.
    ERROR_NO_SLOT_AVAILABLE,
    /// Trouble inside the service.
    ERROR_SERVER_ERROR,
    /// Trouble inside the service.
    ERROR_INTERNAL_SERVER_ERROR,
    /// Too many requests in a short time.
    ERROR_TOO_MUCH_REQUESTS,
    /// Too many submissions in three seconds.
    MAX_USER_TURN,
    /// A temporary ban, as the four below.
    BAN_1001 = "ERROR: 1001",
    BAN_1002 = "ERROR: 1002",
    BAN_1003 = "ERROR: 1003",
    BAN_1004 = "ERROR: 1004",
    BAN_1005 = "ERROR: 1005",
    /// Too many wrong keys from this address.
    IP_BANNED,
    /// Too many wrong keys from this address.
    ERROR_IP_BANNED,
    /// The address is not on the account's list.
    ERROR_IP_NOT_ALLOWED,
    /// The page is missing or not a page.
    ERROR_PAGEURL,
    /// The site's key is blank or malformed.
    ERROR_GOOGLEKEY,
    /// The site's key is missing.
    ERROR_WRONG_GOOGLEKEY,
    /// The site's key does not belong to the page.
    ERROR_BAD_TOKEN_OR_PAGEURL,
    /// A parameter is missing or malformed.
    ERROR_BAD_PARAMETERS,
    /// GeeTest's captcha id is missing or malformed.
    ERROR_CAPTCHA_ID,
    /// The proxy is not written as one.
    ERROR_PROXY_FORMAT,
    /// The proxy failed a short time ago.
    ERROR_BAD_PROXY,
    /// The image is missing or too small.
    ERROR_ZERO_CAPTCHA_FILESIZE,
    /// The image has too many bytes.
    ERROR_TOO_BIG_CAPTCHA_FILESIZE,
    /// The image has too many pixels.
    ERROR_IMAGE_DIMENSIONS_TOO_LARGE,
    /// The file name has no image extension.
    ERROR_WRONG_FILE_EXTENSION,
    /// The file is not an image.
    ERROR_IMAGE_TYPE_NOT_SUPPORTED,
    /// The file cannot be read.
    ERROR_UPLOAD,
    /// The image is known not to be a challenge.
    ERROR_CAPTCHAIMAGE_BLOCKED,
    /// Too many images that are not challenges.
    TOO_MANY_BAD_IMAGES,
    /// The service does not solve for this site.
    ERROR_DOMAIN_NOT_ALLOWED,
    /// Ours: no declaration covers the page.
    ERROR_SITE_NOT_DECLARED,
    /// Ours: the worker's budget is exceeded.
    ERROR_BUDGET_EXCEEDED,
    /// Ours: the idempotency key belongs to another challenge.
    ERROR_IDEMPOTENCY_MISMATCH,
}

codes! {
    /// Not solved yet; the spelling is the provider's.
    CAPCHA_NOT_READY,
    /// Not solved yet, in the correct spelling that some providers use.
    CAPTCHA_NOT_READY,
    /// The challenge could not be solved.
    ERROR_CAPTCHA_UNSOLVABLE,
    /// The answers of several solvers did not agree.
    ERROR_BAD_DUPLICATES,
    /// The id is unknown or forgotten.
    ERROR_WRONG_CAPTCHA_ID,
    /// The id is unknown or forgotten; the spelling is the provider's.
    ERROR_NO_SUCH_CAPCHA_ID,
    /// The id is not a number.
    ERROR_WRONG_ID_FORMAT,
    /// The proxy cannot be used.
    ERROR_PROXY_CONNECTION_FAILED,
    /// GeeTest's challenge is too old.
    ERROR_TOKEN_EXPIRED,
    /// The action is missing.
    ERROR_EMPTY_ACTION,
    /// The report was not accepted.
    ERROR_REPORT_NOT_RECORDED,
    /// The report was not accepted.
    REPORT_NOT_RECORDED,
    /// There is a report already.
    ERROR_DUPLICATE_REPORT,
    /// The pingback address does not belong to the account; the spelling is the provider's.
    ERROR_IP_ADDRES,
    /// The report was accepted; not an error.
    OK_REPORT_RECORDED,
}

/// All known codes of res.php.
pub const ALL_RES: &[&str] = &[
    CAPCHA_NOT_READY,
    CAPTCHA_NOT_READY,
    ERROR_CAPTCHA_UNSOLVABLE,
    ERROR_BAD_DUPLICATES,
    ERROR_WRONG_CAPTCHA_ID,
    ERROR_NO_SUCH_CAPCHA_ID,
    ERROR_WRONG_ID_FORMAT,
    ERROR_WRONG_USER_KEY,
    ERROR_KEY_DOES_NOT_EXIST,
    ERROR_PROXY_CONNECTION_FAILED,
    ERROR_TOKEN_EXPIRED,
    ERROR_EMPTY_ACTION,
    ERROR_REPORT_NOT_RECORDED,
    REPORT_NOT_RECORDED,
    ERROR_DUPLICATE_REPORT,
    ERROR_IP_ADDRES,
    BAN_1005,
];

/// Writes a code, which is a valid reply to any request.
pub fn write(code: &Code, json: bool) -> String {
    let code = code.as_str();
    if json { format!(r#"{{"status":0,"request":{}}}"#, json::quote(code)) } else { code.into() }
}

/// Writes a code with the reason in words, which only JSON has room for.
pub fn write_explained(code: &Code, why: &str, json: bool) -> String {
    if !json {
        return write(code, false);
    }
    let (code, why) = (json::quote(code.as_str()), json::quote(why));
    format!(r#"{{"status":0,"request":{code},"error_text":{why}}}"#)
}

pub(crate) fn is_not_ready(text: &str) -> bool {
    matches!(text, CAPCHA_NOT_READY | CAPTCHA_NOT_READY)
}

/// The code in a plain-text reply, if it is certain.
pub(crate) fn in_text(text: &str) -> Option<Code> {
    let counts = is_known(text) || is_ban(text) || (is_error_word(text) && !is_cut_off(text));
    counts.then(|| Code::new(text))
}

/// The code in a complete JSON reply with `"status":0`.
pub(crate) fn in_json(text: &str) -> Option<Code> {
    (is_known(text) || is_ban(text) || is_word(text) || is_url(text)).then(|| Code::new(text))
}

/// All codes listed here and in the retry table.
fn known() -> impl Iterator<Item = &'static str> {
    let in_table = IN_PHP.iter().map(|rule| &*rule.code).filter(|code| !own::contains(code));
    ALL_IN.iter().chain(ALL_RES).copied().chain(in_table)
}

fn is_known(text: &str) -> bool {
    known().any(|code| code == text)
}

/// Whether this may be a known code that was cut off.
fn is_cut_off(text: &str) -> bool {
    known().any(|code| code.len() > text.len() && code.starts_with(text))
}

fn is_ban(text: &str) -> bool {
    text.strip_prefix("ERROR: ")
        .is_some_and(|number| number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_error_word(text: &str) -> bool {
    text.strip_prefix("ERROR_").is_some_and(|rest| !rest.is_empty()) && is_word(text)
}

fn is_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    (4..=60).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(plain)
}

fn is_url(text: &str) -> bool {
    (text.starts_with("https://") || text.starts_with("http://"))
        && text.len() <= 200
        && text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_known_code_can_be_cut_down_to_another() {
        let cut = known().filter(|code| is_cut_off(code));
        assert_eq!(cut.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn the_beginning_of_a_code_is_no_code() {
        for code in known() {
            for end in 0..code.len() {
                assert_eq!(in_text(&code[..end]), None, "{}", &code[..end]);
            }
            assert_eq!(in_text(code), Some(code.into()));
        }
    }

    #[test]
    fn new_error_words_count_and_other_words_do_not() {
        assert!(in_text("ERROR_SOMETHING_NEW").is_some());
        assert!(in_text("ERROR: 1010").is_some());
        for text in
            ["", "OK", "NULL", "FORBIDDEN", "Error", "ERROR", "ERROR_", "ERROR_x", "ERROR: 10"]
        {
            assert_eq!(in_text(text), None, "{text}");
        }
        assert_eq!(in_text(&format!("ERROR_{}", "A".repeat(80))), None);
    }

    #[test]
    fn a_url_is_a_code_only_in_json() {
        let url = "https://2captcha.com/blog/google-search-recaptcha";
        assert_eq!(in_json(url), Some(url.into()));
        assert_eq!(in_text(url), None);
        assert_eq!(in_json("Internal server error"), None);
    }
}
