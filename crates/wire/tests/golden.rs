//! The golden exchanges: one file each, request above reply, meant to be read. Requests and replies are written by
//! hand; what lies below each is computed. `UPDATE_GOLDEN=1` rewrites the computed parts; review reads the diff.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{fmt::Write, fs, path::PathBuf};

use domain::{
    challenge::Challenge,
    fingerprint::{Fingerprint, Identity},
    retry::{Code, Profile, RetryTable},
    token::Answer,
};
use wire::{
    Garbled, ReplyStyle, code,
    fetch::{self, AccountReply, Action, Fetch, Many},
    form::Form,
    submit::{self, Dialect},
};

/// The hand-written parts of one file.
struct Exchange {
    intro: String,
    request: String,
    reply: Option<String>,
}

/// A request as the parser understands it.
enum ParsedRequest {
    Submit,
    Fetch(Action),
    Refused,
}

const REQUEST: &str = "=== request\n";
const REPLY: &str = "=== reply\n";
const COMPUTED: &str = "--- ";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[expect(clippy::disallowed_methods, reason = "the one switch of this test")]
fn is_update() -> bool {
    std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1")
}

/// Compares with the file, or rewrites it.
fn check(path: &PathBuf, computed: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|written| written == computed) {
        return Ok(());
    }
    if is_update() {
        fs::write(path, computed).unwrap();
        return Ok(());
    }
    Err(format!("{} differs; it should be\n{computed}", path.display()))
}

#[test]
fn every_exchange_reads_and_writes_as_its_file_says() {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.ends_with("codes.txt"));
    paths.sort();
    assert!(paths.len() > 50, "only {} exchanges found", paths.len());
    let differing: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            let exchange = Exchange::read(&fs::read_to_string(path).unwrap());
            check(path, &exchange.computed(&path.display().to_string())).err()
        })
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn every_code_is_read_in_both_styles_and_has_a_class() {
    let table = RetryTable::in_php(Profile::Default);
    let mut text = String::from(
        "Every code, how each endpoint's reply with it is read (plain text, JSON), and its class in the retry table.\n\n",
    );
    for (endpoint, codes) in [("in.php", code::ALL_IN), ("res.php", code::ALL_RES)] {
        for name in codes {
            let code = Code::new(name);
            let class = format!("{:?}", table.rule(&code).class);
            let read = |json: bool| {
                let body = code::write(&code, json);
                if endpoint == "in.php" {
                    submit_text(submit::read_reply(body.as_bytes()))
                } else {
                    fetch_text(fetch::read_reply(body.as_bytes(), false))
                }
            };
            let (plain, json) = (read(false), read(true));
            let plain = plain.replace(&format!("refused: {name}"), "refused");
            let json = json.replace(&format!("refused: {name}"), "refused");
            assert_eq!(plain, json, "{name}");
            writeln!(text, "{endpoint:<8} {name:<34} {class:<10} {plain}").unwrap();
        }
    }
    check(&folder().join("codes.txt"), &text).unwrap_or_else(|differs| panic!("{differs}"));
}

#[test]
fn one_picture_has_one_fingerprint_in_every_wire_form() {
    let names = [
        "form_get_query_image",
        "form_multipart_file",
        "form_json_image",
        "form_json_as_text_plain",
        "form_json_as_multipart_without_boundary",
    ];
    let mut found: Vec<Fingerprint> = names
        .iter()
        .map(|name| {
            let text = fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
            let submit = submit::read(&Exchange::read(&text).form().unwrap()).unwrap();
            Fingerprint::of(&submit.challenge, Identity::default())
        })
        .collect();
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
}

// === impl Exchange ===

impl Exchange {
    fn read(text: &str) -> Self {
        let (intro, rest) = text.split_once(REQUEST).expect("an exchange has a request");
        let (request, reply) = match rest.split_once(REPLY) {
            Some((request, reply)) => (request, Some(by_hand(reply))),
            None => (rest, None),
        };
        Self { intro: intro.trim().to_owned(), request: by_hand(request), reply }
    }

    /// The file as it should be.
    fn computed(&self, path: &str) -> String {
        let mut text = format!("{}\n\n{REQUEST}{}\n\n", self.intro, self.request);
        let action = self.parse_request(&mut text);
        if let Some(reply) = &self.reply {
            let described = match action {
                ParsedRequest::Submit => describe_submit(reply),
                ParsedRequest::Fetch(action) => describe_fetch(&action, reply),
                ParsedRequest::Refused => panic!("{path}: a refused request has no reply"),
            };
            write!(text, "\n{REPLY}{reply}\n\n{described}").unwrap();
        }
        text
    }

    fn form(&self) -> Result<Form, wire::form::BadForm> {
        let (head, body) = self.request.split_once("\n\n").unwrap_or((&self.request, ""));
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).expect("METHOD TARGET");
        let content_type = lines.find_map(|line| line.strip_prefix("Content-Type: "));
        let is_multipart = content_type.is_some_and(|t| t.starts_with("multipart/"));
        let body = if is_multipart { body.replace('\n', "\r\n") } else { body.to_owned() };
        Form::read(target.split_once('?').map(|(_, query)| query), content_type, body.as_bytes())
    }

    fn parse_request(&self, text: &mut String) -> ParsedRequest {
        let form = match self.form() {
            Ok(form) => form,
            Err(bad) => {
                writeln!(text, "{COMPUTED}no form: {bad}\n{}", Code::from(bad.clone())).unwrap();
                return ParsedRequest::Refused;
            }
        };
        let refused = if self.request.contains("/in.php") {
            match submit::read(&form) {
                Ok(submit) => {
                    text.push_str(&show_submit(&submit));
                    return ParsedRequest::Submit;
                }
                Err(refusal) => refusal.code,
            }
        } else {
            match fetch::read(&form) {
                Ok(fetch) => {
                    text.push_str(&show_fetch(&fetch));
                    return ParsedRequest::Fetch(fetch.action);
                }
                Err(refusal) => refusal,
            }
        };
        writeln!(text, "{COMPUTED}refused\n{refused}").unwrap();
        ParsedRequest::Refused
    }
}

/// A section without its computed part.
fn by_hand(section: &str) -> String {
    let end = section.find(&format!("\n{COMPUTED}")).unwrap_or(section.len());
    section[..end].trim().to_owned()
}

fn style(style: ReplyStyle) -> &'static str {
    match (style.json, style.header_acao) {
        (false, false) => "plain text",
        (false, true) => "plain text, with Access-Control-Allow-Origin",
        (true, false) => "JSON",
        (true, true) => "JSON, with Access-Control-Allow-Origin",
    }
}

fn show_submit(submit: &submit::Submit) -> String {
    let challenge = &submit.challenge;
    let mut text = format!("{COMPUTED}read as\n");
    let mut line = |name: &str, value: &str| writeln!(text, "{name:<20} {value}").unwrap();
    line("kind", challenge.kind().name());
    line("sitekey", challenge.sitekey().unwrap_or("-"));
    line("pageurl", challenge.pageurl().map_or("-", |page| page.as_str()));
    for (name, value) in challenge.params() {
        line(&format!("  {name}"), value);
    }
    for (name, bytes) in challenge.files() {
        line(&format!("  {name}"), &format!("({} bytes)", bytes.len()));
    }
    line("fingerprint", &Fingerprint::of(challenge, Identity::default()).to_string());
    line("worker key", if submit.worker_key.is_some() { "given" } else { "-" });
    line("idempotency key", submit.idempotency_key.as_deref().unwrap_or("-"));
    line("reply", style(submit.style));
    for (dialect, title) in
        [(Dialect::CaptchaAi, "sent as"), (Dialect::TwoCaptcha, "in 2captcha's dialect")]
    {
        let fields = submit::fields_in(dialect, challenge);
        assert_eq!(again(&fields), *challenge, "what is sent reads as what was meant");
        if dialect == Dialect::CaptchaAi || fields != submit::fields(challenge) {
            writeln!(text, "{COMPUTED}{title}").unwrap();
            for (name, value) in &fields {
                writeln!(text, "{name}={value}").unwrap();
            }
        }
    }
    text
}

fn again(fields: &[(String, String)]) -> Challenge {
    submit::read(&Form::from_pairs(fields.iter().cloned()).unwrap()).unwrap().challenge
}

fn show_fetch(fetch: &Fetch) -> String {
    let sent = fetch::fields(&fetch.action);
    let back = fetch::read(&Form::from_pairs(sent.iter().cloned()).unwrap()).unwrap();
    assert_eq!(back.action, fetch.action, "what is sent reads as what was meant");
    let sent: Vec<String> = sent.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let hold = fetch.hold.map_or("-".to_owned(), |hold| format!("{hold:?}"));
    format!(
        "{COMPUTED}read as\naction               {:?}\nworker key           {}\nhold                 {hold}\nreply                {}\n{COMPUTED}sent as\n{}\n",
        fetch.action,
        if fetch.worker_key.is_some() { "given" } else { "-" },
        style(fetch.style),
        sent.join("&"),
    )
}

/// The parsed reply, and both ways to write it.
fn with_written(read: &str, written: &[String; 2]) -> String {
    format!("{COMPUTED}read as\n{read}\n{COMPUTED}written as\n{}\n{}\n", written[0], written[1])
}

fn submit_text(read: Result<submit::SubmitReply, Garbled>) -> String {
    match read {
        Ok(submit::SubmitReply::Accepted(id)) => format!("accepted as {id}"),
        Ok(submit::SubmitReply::Refused(refusal)) => format!("refused: {refusal}"),
        Err(garbled) => format!("garbled: {}", garbled.why),
    }
}

fn describe_submit(body: &str) -> String {
    let read = submit::read_reply(body.as_bytes());
    let text = submit_text(read.clone());
    let Ok(reply) = read else { return format!("{COMPUTED}read as\n{text}\n") };
    let written = [false, true].map(|json| submit::write_reply(&reply, json));
    // A URL is a code only in JSON.
    let is_url = written[0].starts_with("https://");
    for body in
        written.iter().skip(usize::from(is_url)).chain([&submit::write_reply_int_id(&reply)])
    {
        assert_eq!(submit::read_reply(body.as_bytes()), Ok(reply.clone()), "{body}");
    }
    with_written(&text, &written)
}

fn fetch_text(read: Result<fetch::FetchReply, Garbled>) -> String {
    match read {
        Ok(fetch::FetchReply::NotReady) => "not ready".into(),
        Ok(fetch::FetchReply::Refused(refusal)) => format!("refused: {refusal}"),
        Ok(fetch::FetchReply::Answer { answer, price }) => {
            let Answer { text, is_json, extras } = &answer;
            let mut text =
                format!("answer ({}): {}", if *is_json { "JSON" } else { "text" }, text.expose());
            if let Some(extras) = extras {
                write!(text, "\nextras: {}", extras.expose()).unwrap();
            }
            if let Some(price) = price {
                write!(text, "\nprice: {price}").unwrap();
            }
            text
        }
        Err(garbled) => format!("garbled: {}", garbled.why),
    }
}

fn describe_many(bytes: &[u8], n: usize) -> String {
    let replies = match fetch::read_many(bytes, n) {
        Ok(Many::Each(replies)) => replies,
        Ok(Many::Refused(code)) => return format!("{COMPUTED}read as\nrefused: {code}\n"),
        Ok(Many::Unsupported) => return format!("{COMPUTED}read as\nnot understood\n"),
        Err(garbled) => return format!("{COMPUTED}read as\ngarbled: {}\n", garbled.why),
    };
    let written = [false, true].map(|json| fetch::write_many(&replies, json));
    for body in &written {
        assert_eq!(fetch::read_many(body.as_bytes(), n), Ok(Many::Each(replies.clone())));
    }
    let text: Vec<String> = replies.into_iter().map(|r| fetch_text(Ok(r))).collect();
    with_written(&text.join("\n"), &written)
}

fn describe_fetch(action: &Action, body: &str) -> String {
    let bytes = body.as_bytes();
    match action {
        Action::Get(_) => describe_get(body, false),
        Action::GetPriced(_) => describe_get(body, true),
        Action::GetMany(ids) => describe_many(bytes, ids.len()),
        Action::Balance => describe_account(fetch::read_balance(bytes), |balance, json| {
            (format!("balance: {balance}"), fetch::write_balance(*balance, json))
        }),
        Action::Threads => describe_account(fetch::read_threads(bytes), |threads, _| {
            (
                format!("{} of {} threads at work", threads.working, threads.total),
                fetch::write_threads(*threads),
            )
        }),
        Action::Report { .. } => describe_account(fetch::read_report(bytes), |(), json| {
            ("taken".to_owned(), fetch::write_report(json))
        }),
        Action::Other(name) => panic!("{name} has no reply of ours"),
    }
}

fn describe_get(body: &str, priced: bool) -> String {
    let read = fetch::read_reply(body.as_bytes(), priced);
    let text = fetch_text(read.clone());
    let Ok(reply) = read else { return format!("{COMPUTED}read as\n{text}\n") };
    let written = [false, true].map(|json| fetch::write_reply(&reply, json, priced));
    assert_eq!(
        fetch::read_reply(written[1].as_bytes(), priced),
        Ok(reply.clone()),
        "JSON loses nothing"
    );
    let mut plain = reply;
    if let fetch::FetchReply::Answer { answer, .. } = &mut plain {
        answer.extras = None;
        // Plain text has no quotes: a string that holds an object looks like the object.
        answer.is_json = answer.text.expose().starts_with(['{', '[']);
    }
    assert_eq!(fetch::read_reply(written[0].as_bytes(), priced), Ok(plain), "plain loses extras");
    with_written(&text, &written)
}

fn describe_account<T>(
    read: Result<AccountReply<T>, Garbled>,
    show: impl Fn(&T, bool) -> (String, String),
) -> String {
    match read {
        Ok(AccountReply::Value(thing)) => {
            let (text, plain) = show(&thing, false);
            with_written(&text, &[plain, show(&thing, true).1])
        }
        Ok(AccountReply::Refused(refusal)) => with_written(
            &format!("refused: {refusal}"),
            &[false, true].map(|json| fetch::write_refusal(&refusal, json)),
        ),
        Err(garbled) => format!("{COMPUTED}read as\ngarbled: {}\n", garbled.why),
    }
}
