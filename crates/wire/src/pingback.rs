//! Pingbacks: the address we give to the provider, and what it sends there when a task is over.
//!
//! The address names the attempt and is signed, so that nobody else can guess or forge one. The caller is still not
//! authenticated, so a pingback is only a hint to poll res.php.

use domain::{
    id::{AttemptName, TaskId},
    secret::Secret,
};
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::{
    fetch::{self, FetchReply},
    form::Form,
};

/// The last part of the address: `{solve}-{attempt}-{nonce}-{signature}`.
pub fn path(attempt: AttemptName, secret: &Secret) -> String {
    let name = attempt.to_string();
    let signature = signature(&name, secret);
    format!("{name}-{signature}")
}

/// The attempt in such a part, if its signature is valid; compares in constant time.
pub fn read(text: &str, secret: &Secret) -> Option<AttemptName> {
    let (name, given) = text.rsplit_once('-')?;
    let is_ours = signature(name, secret).as_bytes().ct_eq(given.as_bytes());
    if is_ours.into() { read_name(name) } else { None }
}

fn read_name(name: &str) -> Option<AttemptName> {
    let mut parts = name.split('-');
    let solve = parts.next()?.parse().ok()?;
    let attempt = parts.next()?.parse().ok()?;
    let nonce = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(AttemptName { solve, attempt, nonce })
}

/// The first 128 bits of HMAC-SHA256, as 32 hexadecimal digits.
fn signature(name: &str, secret: &Secret) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let tag = hmac::sign(&key, name.as_bytes());
    let first = tag.as_ref().first_chunk().expect("a SHA-256 tag has 32 bytes");
    format!("{:032x}", u128::from_be_bytes(*first))
}

/// The finished task, and its answer or code if the provider sent it. It comes as the query of a GET or as the urlencoded body
/// of a POST.
pub fn read_body(query_or_form: &[u8]) -> Option<(TaskId, Option<FetchReply>)> {
    let pairs =
        form_urlencoded::parse(query_or_form).map(|(n, v)| (n.into_owned(), v.into_owned()));
    let form = Form::from_pairs(pairs).ok()?;
    let task = TaskId::new(form.get("id")?).ok()?;
    let reply = form.get("code").and_then(fetch::one_of_many).filter(|reply| match reply {
        FetchReply::Answer { .. } | FetchReply::Refused(_) => true,
        FetchReply::NotReady => false,
    });
    Some((task, reply))
}

/// The body that a provider sends when a task is over.
pub fn write_body(task: &TaskId, reply: &FetchReply) -> String {
    let code = fetch::write_many(std::slice::from_ref(reply), false);
    form_urlencoded::Serializer::new(String::new())
        .append_pair("id", task.as_str())
        .append_pair("code", &code)
        .finish()
}

#[cfg(test)]
mod tests {
    use domain::id::{Nonce, SolveId};

    use super::*;

    fn attempt() -> AttemptName {
        let solve = SolveId::from_number(123_456_789_012_345);
        AttemptName { solve, attempt: 2, nonce: Nonce::from_number(77) }
    }

    fn secret() -> Secret {
        Secret::new("key")
    }

    #[test]
    fn the_proof_is_hmac_sha256_of_the_name() {
        // printf s123456789012345-2-n77 | openssl dgst -sha256 -hmac key
        let expected = "s123456789012345-2-n77-dd9a4b6b412e94053525a704a69bb542";
        assert_eq!(path(attempt(), &secret()), expected);
        assert_eq!(read(expected, &secret()), Some(attempt()));
    }

    #[test]
    fn an_address_with_any_character_changed_is_not_ours() {
        let made = path(attempt(), &secret());
        for at in 0..made.len() {
            for other in ["0", "1", "s", "n", "-", ""] {
                let mut changed = made.clone();
                changed.replace_range(at..=at, other);
                assert!(changed == made || read(&changed, &secret()).is_none(), "{changed}");
            }
        }
        assert_eq!(read(&made, &Secret::new("another")), None);
        assert_eq!(read(&made.to_uppercase(), &secret()), None);
    }

    #[test]
    fn a_proof_over_something_else_names_no_attempt() {
        for name in ["", "s1", "s1-2", "1-2-n3", "s1-2-n3-n4", "s1--n3", "s1-99999999999-n3"] {
            let text = format!("{name}-{}", signature(name, &secret()));
            assert_eq!(read(&text, &secret()), None, "{text}");
        }
    }

    #[test]
    fn what_is_told_is_an_answer_a_code_or_nothing() {
        let read =
            |text: &str| read_body(text.as_bytes()).map(|(task, reply)| (task.to_string(), reply));
        let reply = |text: &str| read(text).and_then(|(_, reply)| reply);
        assert_eq!(read("id=17"), Some(("17".into(), None)));
        assert_eq!(read("code=&id=17").map(|(_, reply)| reply), Some(None));
        assert!(matches!(reply("id=17&code=a%7Cjordan+x"),
            Some(FetchReply::Answer { answer, .. }) if answer.text.expose() == "a|jordan x"));
        assert_eq!(
            reply("id=17&code=ERROR_CAPTCHA_UNSOLVABLE"),
            Some(FetchReply::Refused("ERROR_CAPTCHA_UNSOLVABLE".into()))
        );
        assert_eq!(reply("id=17&code=CAPCHA_NOT_READY"), None);
        assert_eq!(reply("id=17&code=ERROR_CAPTCHA_UNSOL"), None, "cut off");
        for bad in ["", "code=x", "id=", "id=1%7C2", "id=1&id=2", "{\"id\":1}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_provider_sends_is_read_back() {
        let answer = domain::token::Answer {
            text: Secret::new("0.x&y=z|ü +%"),
            is_json: false,
            extras: None,
        };
        let refused = FetchReply::Refused("ERROR_CAPTCHA_UNSOLVABLE".into());
        for reply in [FetchReply::Answer { answer, price: None }, refused] {
            let task = TaskId::new("2122988149").expect("digits make a task id");
            let body = write_body(&task, &reply);
            assert_eq!(read_body(body.as_bytes()), Some((task, Some(reply))), "{body}");
        }
    }
}
