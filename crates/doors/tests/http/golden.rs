//! Whole exchanges as text files, request above reply, which also serve as documentation.
//! `UPDATE_GOLDEN=1` rewrites them; ids, times and tokens are replaced by their names. The provider refuses the next
//! submission with the code in brackets in a title.

use std::{env, fs, path::PathBuf};

use simulator::{Call, Fault, Planned};

use crate::{
    client::Answer,
    world::{ADMIN, OTHER, WORKER, World},
};

/// Headers that differ in every response, or that `every_header.http` covers.
const LEFT_OUT: [&str; 6] = [
    "date",
    "content-length",
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "cache-control",
];

#[tokio::test]
async fn exchanges_match_the_golden_files() {
    let update = env::var("UPDATE_GOLDEN").is_ok();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let written = fs::read_to_string(&file).unwrap();
        let seen = play(&written).await;
        if update {
            fs::write(&file, seen).unwrap();
        } else {
            assert_eq!(seen, written, "{}", file.display());
        }
    }
}

/// Sends every request of the file in a new world and records the responses.
async fn play(script: &str) -> String {
    let world = World::open().await;
    let mut id = String::new();
    let mut seen = Vec::new();
    for exchange in script.split("\n### ") {
        let (request, _) = exchange.split_once("\n---\n").unwrap_or((exchange, ""));
        let (title, raw) = request.split_once('\n').expect("a title, then a request");
        if let Some((_, code)) = title.trim_end_matches(']').split_once('[') {
            world.account.plan(Planned::next(Call::Submit, Fault::code(code)));
        }
        let answer = world.send(&bytes_of(raw, &id)).await;
        if let Some(named) = fifteen_digits(&answer.body) {
            id = named;
        }
        let whole = title.trim_start_matches("### ") == "every header";
        let answered = render(&answer, whole);
        seen.push(format!("{title}\n{}\n---\n{answered}", raw.trim_end()));
    }
    seen.join("\n### ")
}

fn bytes_of(raw: &str, id: &str) -> String {
    let filled = raw
        .trim_end()
        .replace("{worker}", WORKER)
        .replace("{other}", OTHER)
        .replace("{admin}", ADMIN)
        .replace("{id}", id);
    let (head, body) = filled.split_once("\n\n").unwrap_or((&filled, ""));
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let headers: Vec<_> = headers.lines().chain([""]).collect();
    let headers = headers.join("\r\n");
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

fn fifteen_digits(text: &str) -> Option<String> {
    text.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 15).map(str::to_owned)
}

fn render(answer: &Answer, whole: bool) -> String {
    let (status, headers) = answer.head.split_once("\r\n").unwrap();
    let mut headers: Vec<_> = headers
        .lines()
        .filter(|line| {
            let name = line.split(':').next().unwrap();
            name != "date" && name != "content-length" && (whole || !LEFT_OUT.contains(&name))
        })
        .collect();
    headers.sort_unstable();
    let body = match serde_json::from_str::<serde_json::Value>(&answer.body) {
        Ok(json)
            if json.is_object() && answer.header("content-type") != Some("application/json") =>
        {
            serde_json::to_string_pretty(&json).unwrap()
        }
        Ok(json) if json.is_object() => pretty_if_ours(&answer.body, &json),
        Ok(_) | Err(_) => answer.body.clone(),
    };
    normal(&format!("{status}\n{}\n\n{body}\n", headers.join("\n")))
}

/// The compat door's bodies are kept byte for byte, because clients compare them so.
fn pretty_if_ours(body: &str, json: &serde_json::Value) -> String {
    if json["status"].is_number() {
        body.to_owned()
    } else {
        serde_json::to_string_pretty(json).unwrap()
    }
}

/// Replaces what differs in every run by its name.
fn normal(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = mask_member(line, "token", "{token}");
        let line = mask_member(&line, "elapsed_ms", "{ms}");
        let line = mask_member(&line, "polls", "{polls}");
        mask_words(&line)
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// `"name": value,` of a pretty-printed line.
fn mask_member(line: &str, name: &str, mask: &str) -> String {
    let start = format!("\"{name}\": ");
    match line.find(&start) {
        Some(at) if !line.contains("null") => {
            let comma = if line.ends_with(',') { "," } else { "" };
            format!("{}{start}\"{mask}\"{comma}", &line[..at])
        }
        Some(_) | None => line.to_owned(),
    }
}

fn mask_words(line: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_:.".contains(c);
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |end| start + end);
        out += &rest[..start];
        out += &mask_word(&rest[start..end]);
        rest = &rest[end..];
    }
    out + rest
}

fn mask_word(word: &str) -> String {
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    if digits && word.len() == 15 {
        return "{id}".to_owned();
    }
    let moment = word.len() == 24 && word.ends_with('Z') && word.contains('T');
    if moment {
        return "{time}".to_owned();
    }
    let cursor = word
        .split_once('-')
        .is_some_and(|(at, id)| at.parse::<u64>().is_ok() && fifteen_digits(id).is_some());
    if cursor {
        return "{cursor}".to_owned();
    }
    let solve = word.strip_prefix('s').is_some_and(|rest| fifteen_digits(rest).is_some());
    if solve {
        return "s{id}".to_owned();
    }
    if word.starts_with("SIM.") {
        return "{token}".to_owned();
    }
    word.to_owned()
}
