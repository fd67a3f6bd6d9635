//! Made-up answers for each kind, in the format of real providers. Used by `behaviour`.
//! A token contains the task that paid for it, so that a test can trace it.

use domain::{
    challenge::{Challenge, Kind},
    id::TaskId,
    secret::Secret,
    token::Answer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SavedAnswer", into = "SavedAnswer")]
pub struct MadeUpAnswer {
    pub answer: Answer,
    /// Whether to write it as `result` instead of `request`, as CaptchaAI does for some kinds.
    pub as_result: bool,
}

/// The answer in the tasks file. It is made up, so nothing in it is secret.
#[derive(Serialize, Deserialize)]
struct SavedAnswer {
    text: String,
    is_json: bool,
    extras: Option<String>,
    as_result: bool,
}

const MARK: &str = "SIM.";
const USER_AGENT: &str = "Mozilla/5.0 (Simulated) SolvegateSim/1.0";
/// Letters that cannot form `ERROR`, which clients search for in answers.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqstuvwxyz234567892";

// === impl SavedAnswer ===

impl From<MadeUpAnswer> for SavedAnswer {
    fn from(MadeUpAnswer { answer, as_result }: MadeUpAnswer) -> Self {
        let extras = answer.extras.as_ref().map(|extras| extras.expose().to_owned());
        Self { text: answer.text.expose().to_owned(), is_json: answer.is_json, extras, as_result }
    }
}

impl From<SavedAnswer> for MadeUpAnswer {
    fn from(saved: SavedAnswer) -> Self {
        let (text, extras) = (Secret::new(saved.text), saved.extras.map(Secret::new));
        let answer = Answer { text, is_json: saved.is_json, extras };
        Self { answer, as_result: saved.as_result }
    }
}

/// The task that paid for a token. Also works on GeeTest's objects.
pub fn task_of(token: &str) -> Option<TaskId> {
    let (_, rest) = token.split_once(MARK)?;
    let (task, _) = rest.split_once('.')?;
    let digits = task.bytes().all(|b| b.is_ascii_digit());
    if digits { TaskId::new(task).ok() } else { None }
}

pub fn answer(
    challenge: &Challenge,
    task: &TaskId,
    captchaai: bool,
    rng: &mut fastrand::Rng,
) -> MadeUpAnswer {
    let token = token(task, rng);
    let answer = match challenge.kind() {
        Kind::Image | Kind::TextQuestion => plain(word(challenge)),
        Kind::Grid if captchaai => object(&json!(cells(challenge))),
        Kind::Grid => plain(format!("click:{}", joined(&cells(challenge), "/"))),
        Kind::Bls => object(&json!(cells(challenge))),
        Kind::Coordinates => plain(points(challenge)),
        Kind::Rotate => plain(angles(challenge)),
        Kind::Geetest => object(&geetest(challenge, &token, captchaai)),
        Kind::GeetestV4 => object(&geetest_v4(challenge, &token)),
        Kind::RecaptchaV2
        | Kind::RecaptchaV3
        | Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::Funcaptcha
        | Kind::Other(_) => plain(token),
    };
    let as_result = captchaai && names_result(challenge);
    MadeUpAnswer { answer: Answer { extras: extras(challenge, as_result), ..answer }, as_result }
}

fn plain(text: String) -> Answer {
    Answer { text: Secret::new(text), is_json: false, extras: None }
}

fn object(value: &Value) -> Answer {
    Answer { text: Secret::new(value.to_string()), is_json: true, extras: None }
}

fn token(task: &TaskId, rng: &mut fastrand::Rng) -> String {
    format!("{MARK}{task}.{:016x}{:016x}", rng.u64(..), rng.u64(..))
}

fn names_result(challenge: &Challenge) -> bool {
    let enterprise = challenge.params().get("enterprise").is_some_and(|value| value == "1");
    enterprise || *challenge.kind() == Kind::CloudflareChallenge
}

/// The members besides the answer that clients read.
fn extras(challenge: &Challenge, as_result: bool) -> Option<Secret> {
    let params = challenge.params();
    let user_agent = params.get("userAgent").map_or(USER_AGENT, String::as_str);
    let members = match challenge.kind() {
        Kind::CloudflareChallenge => json!({ "user_agent": user_agent }),
        Kind::Turnstile => json!({ "useragent": user_agent }),
        Kind::Hcaptcha => json!({ "respKey": "E0_simulated", "useragent": user_agent }),
        Kind::RecaptchaV2 if as_result => json!({ "user_agent": user_agent }),
        Kind::RecaptchaV2 if params.contains_key("cookies") => {
            json!({ "cookies": { "sim_session": "1" } })
        }
        Kind::RecaptchaV2
        | Kind::RecaptchaV3
        | Kind::Geetest
        | Kind::GeetestV4
        | Kind::Funcaptcha
        | Kind::Image
        | Kind::TextQuestion
        | Kind::Grid
        | Kind::Coordinates
        | Kind::Bls
        | Kind::Rotate
        | Kind::Other(_) => return None,
    };
    Some(Secret::new(members.to_string()))
}

fn geetest(challenge: &Challenge, token: &str, captchaai: bool) -> Value {
    let given = challenge.params().get("challenge").map_or("", String::as_str);
    let seccode = format!("{token}|jordan");
    if captchaai {
        return json!({ "challenge": given, "validate": token, "seccode": seccode });
    }
    json!({ "geetest_challenge": given, "geetest_validate": token, "geetest_seccode": seccode })
}

fn geetest_v4(challenge: &Challenge, token: &str) -> Value {
    json!({
        "captcha_id": challenge.sitekey(),
        "lot_number": "51a0e0e3b0b54f0e8a9c",
        "pass_token": token,
        "gen_time": "1767225600",
        "captcha_output": "c2ltdWxhdGVk",
    })
}

/// The same image or question always has the same answer.
fn content_hash(challenge: &Challenge) -> [u8; 32] {
    let mut hash = Sha256::new();
    challenge.files().values().for_each(|file| hash.update(file));
    if let Some(question) = challenge.params().get("textcaptcha") {
        hash.update(question);
    }
    hash.finalize().into()
}

fn word(challenge: &Challenge) -> String {
    let hash = content_hash(challenge);
    let numeric = challenge.params().get("numeric").is_some_and(|value| value == "1");
    let letter = |byte: &u8| {
        char::from(if numeric { b'0' + byte % 10 } else { LETTERS[usize::from(byte % 32)] })
    };
    hash[..6].iter().map(letter).collect()
}

fn cells(challenge: &Challenge) -> Vec<u8> {
    let hash = content_hash(challenge);
    let picked: Vec<u8> =
        (1..=9).filter(|cell| hash[usize::from(*cell)].is_multiple_of(3)).collect();
    if picked.is_empty() { vec![5] } else { picked }
}

fn points(challenge: &Challenge) -> String {
    let hash = content_hash(challenge);
    let point = |pair: &[u8]| format!("x={},y={}", pair[0], pair[1]);
    let points: Vec<String> = hash[..4].chunks(2).map(point).collect();
    format!("coordinates:{}", points.join(";"))
}

fn angles(challenge: &Challenge) -> String {
    let hash = content_hash(challenge);
    let angle = |byte: &u8| (i16::from(*byte) % 9 - 4) * 40;
    let files = challenge.files().len().max(1);
    joined(&hash.iter().take(files).map(angle).collect::<Vec<_>>(), "|")
}

fn joined<T: ToString>(parts: &[T], with: &str) -> String {
    parts.iter().map(T::to_string).collect::<Vec<_>>().join(with)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::{challenge::ChallengeParts, site::PageUrl};

    use super::*;

    fn make_up(kind: Kind, params: &[(&str, &str)], captchaai: bool) -> MadeUpAnswer {
        let pageurl = PageUrl::parse("https://shop.example.com/").ok();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let files = BTreeMap::from([("body".to_owned(), b"a picture".to_vec())]);
        let params = params.iter().map(owned).collect();
        let draft = ChallengeParts { sitekey: Some("key".to_owned()), pageurl, params, files };
        let challenge = Challenge::new(kind, draft).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        answer(&challenge, &TaskId::new("123").unwrap(), captchaai, &mut rng)
    }

    #[test]
    fn geetest_answers_are_objects_that_name_their_task() {
        for (captchaai, name) in [(true, "validate"), (false, "geetest_validate")] {
            let made = make_up(Kind::Geetest, &[("challenge", "c1")], captchaai);
            let value: Value = serde_json::from_str(made.answer.text.expose()).unwrap();
            assert!(made.answer.is_json && value[name].is_string());
            assert_eq!(task_of(made.answer.text.expose()), TaskId::new("123").ok());
        }
        let made = make_up(Kind::GeetestV4, &[], false);
        assert_eq!(task_of(made.answer.text.expose()), TaskId::new("123").ok());
    }

    #[test]
    fn a_grid_is_clicks_at_one_provider_and_an_array_at_the_other() {
        assert!(make_up(Kind::Grid, &[], false).answer.text.expose().starts_with("click:"));
        let made = make_up(Kind::Grid, &[], true);
        let cells: Vec<u8> = serde_json::from_str(made.answer.text.expose()).unwrap();
        assert!(made.answer.is_json && cells.iter().all(|cell| (1..=9).contains(cell)));
    }

    #[test]
    fn answers_come_with_the_members_clients_read() {
        let extras = |made: MadeUpAnswer| {
            made.answer.extras.map(|e| e.expose().to_owned()).unwrap_or_default()
        };
        let agent = [("userAgent", "Mine/1")];
        assert_eq!(extras(make_up(Kind::Turnstile, &agent, false)), r#"{"useragent":"Mine/1"}"#);
        assert!(extras(make_up(Kind::Hcaptcha, &[], false)).contains("respKey"));
        assert!(
            extras(make_up(Kind::RecaptchaV2, &[("cookies", "a:b")], false)).contains("cookies")
        );
        assert_eq!(extras(make_up(Kind::RecaptchaV2, &[], false)), "");
        let enterprise = make_up(Kind::RecaptchaV2, &[("enterprise", "1")], true);
        assert!(enterprise.as_result && extras(enterprise).contains("user_agent"));
    }

    #[test]
    fn no_answer_has_the_letters_clients_take_for_an_error() {
        for kind in Kind::known() {
            let params = [
                ("challenge", "c"),
                ("proxy", "h:1"),
                ("proxytype", "HTTP"),
                ("textcaptcha", "two and two?"),
                ("instructions", "pick"),
            ];
            let text = make_up(kind, &params, false).answer.text;
            assert!(!text.expose().contains("ERROR"));
        }
    }

    #[test]
    fn only_a_simulated_token_names_a_task() {
        assert_eq!(task_of("SIM.123.abc"), TaskId::new("123").ok());
        for other in ["", "SIM.", "SIM.12", "SIM.x1.abc", "03AGdBq2"] {
            assert_eq!(task_of(other), None, "{other}");
        }
    }
}
