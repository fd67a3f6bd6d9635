//! Finds secrets in what a store wrote, in every spelling that a dump or a log may have.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A planted secret.
#[derive(Clone, Debug)]
pub(super) struct Canary {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// One spelling of one secret.
struct Needle {
    secret: &'static str,
    spelling: &'static str,
    bytes: Vec<u8>,
}

// === impl Canary ===

impl Canary {
    pub(super) fn new(name: &'static str, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref().to_vec();
        assert!(bytes.len() >= 12, "{name} is too short to be found for certain");
        Self { name, bytes }
    }

    fn needles(&self) -> Vec<Needle> {
        let hex = hex(&self.bytes);
        let mut all = vec![("as it is", self.bytes.clone())];
        all.push(("in HEX", hex.to_uppercase().into()));
        all.push(("in hex", hex.into()));
        let decimal: Vec<_> = self.bytes.iter().map(u8::to_string).collect();
        all.push(("in decimal", decimal.join(", ").into()));
        all.push(("escaped", self.bytes.escape_ascii().to_string().into()));
        if let Ok(text) = std::str::from_utf8(&self.bytes) {
            let json = serde_json::to_string(text).unwrap();
            all.push(("in JSON", json.trim_matches('"').into()));
            all.push((
                "in a form",
                url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().into(),
            ));
        }
        for before in 0..3 {
            all.push(("in base64", inner(&self.bytes, before, &STANDARD)));
            all.push(("in URL-safe base64", inner(&self.bytes, before, &URL_SAFE)));
        }
        let secret = self.name;
        all.into_iter().map(|(spelling, bytes)| Needle { secret, spelling, bytes }).collect()
    }
}

/// The letters that base64 has for the bytes wherever they stand in a longer text: `before` bytes come before the last
/// full group of three, and what their neighbours share is left out.
fn inner(bytes: &[u8], before: usize, engine: &impl base64::Engine) -> Vec<u8> {
    let whole = engine.encode([&[0; 2][..before], bytes].concat());
    let letters = whole.trim_end_matches('=');
    let shared = usize::from(!(before + bytes.len()).is_multiple_of(3));
    letters.as_bytes()[[0, 2, 3][before]..letters.len() - shared].to_vec()
}

/// The secrets that are in these texts, each with the spellings and places it was found in.
pub(super) fn found(
    canaries: &[Canary],
    texts: &BTreeMap<String, Vec<u8>>,
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let needles: Vec<_> = canaries.iter().flat_map(Canary::needles).collect();
    // Servers write a hundred megabytes, so most of it is passed over by its first two bytes.
    let mut begins = vec![false; 1 << 16];
    for needle in &needles {
        begins[pair(&needle.bytes)] = true;
    }
    let mut all: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (place, text) in texts {
        for (at, two) in text.windows(2).enumerate() {
            if !begins[pair(two)] {
                continue;
            }
            for needle in needles.iter().filter(|needle| text[at..].starts_with(&needle.bytes)) {
                let found = format!("{} in {place}", needle.spelling);
                all.entry(needle.secret).or_default().insert(found);
            }
        }
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The contents of all files below a directory, by path.
pub(super) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata();
            // A server may delete a file while we read; sockets have no contents.
            match about {
                Ok(about) if about.is_dir() => open.push(entry.path()),
                Ok(about) if about.is_file() => {
                    if let Ok(bytes) = fs::read(entry.path()) {
                        all.insert(entry.path().display().to_string(), bytes);
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    all
}

#[test]
fn a_secret_is_found_in_every_spelling_and_place() {
    let secret = "user:\"canary\"/+@10.0.0.1";
    let canaries = [Canary::new("proxy", secret)];
    for before in ["", "x", "xy", "xyz"] {
        for after in ["", "a", "ab"] {
            let text = format!("{before}{secret}{after}");
            let hex = hex(text.as_bytes());
            let spellings = [
                text.clone(),
                hex.to_uppercase(),
                hex,
                serde_json::to_string(&text).unwrap(),
                url::form_urlencoded::byte_serialize(text.as_bytes()).collect(),
                STANDARD.encode(&text),
                URL_SAFE.encode(&text),
                format!("{:?}", text.as_bytes()),
                format!("{text:?}"),
            ];
            for spelling in spellings {
                let texts = BTreeMap::from([("here".to_owned(), spelling.clone().into_bytes())]);
                assert!(found(&canaries, &texts).contains_key("proxy"), "{spelling}");
            }
        }
    }
    let texts = BTreeMap::from([("here".to_owned(), b"user:canary/+@10.0.0.1".to_vec())]);
    assert!(found(&canaries, &texts).is_empty());
}
