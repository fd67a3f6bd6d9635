//! Finds URLs and hosts in the value of a parameter. docs/guard.md has the rule in words.
//!
//! The value is searched as it is, and again after each round of decoding (percent signs, JSON escapes), because nobody knows
//! which of these the provider undoes. Where parsers disagree about the end of a host, the longest reading counts.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::Host;

use super::{HostRule, PageUrl};
use crate::challenge::Reading;

/// A place in a value that names a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedHost {
    /// The scheme in lower case, if one was written.
    scheme: Option<String>,
    /// Host and port, as written.
    authority: String,
}

/// Values that are encoded more often are refused unread.
const ROUNDS: usize = 4;
/// JSON that is nested deeper than this, string in string, is refused unread.
const DEPTH: usize = 8;
/// The longest authority that is looked at. A host has at most 253 characters.
const AUTHORITY_MAX: usize = 512;

/// Browsers read all of these as a dot between labels.
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];
/// Names that the public suffix list does not have, but private networks and tests do.
const PRIVATE_SUFFIXES: [&str; 10] = [
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localhost",
    "test",
];

/// All targets in the value.
pub(super) fn find(value: &str, reading: Reading) -> Vec<NamedHost> {
    let mut finder = Finder { reading, found: Vec::new() };
    match reading {
        Reading::Proxy => {}
        Reading::Vendor(_) => finder.whole(value),
        Reading::Full | Reading::Blob | Reading::Prose => finder.rounds(value, 0),
    }
    finder.found
}

struct Finder {
    reading: Reading,
    found: Vec<NamedHost>,
}

// === impl Finder ===

impl Finder {
    /// A value that is a host or URL by its meaning. Anything that is neither is a target that no rule covers.
    fn whole(&mut self, value: &str) {
        let value = value.trim();
        let head = &value[..value.find(is_path_start).unwrap_or(value.len())];
        let is_url = head.ends_with(':') || (head.is_empty() && value.starts_with(is_slash));
        if !value.is_empty() && !is_url {
            self.add(None, head);
        }
        // A host of the vendor with another one in its path or query is no host of the vendor.
        self.reading = Reading::Full;
        self.rounds(value, 0);
    }

    /// Searches the value, then what decoding makes of it.
    fn rounds(&mut self, value: &str, depth: usize) {
        if depth > DEPTH {
            self.add(None, "(a value nested too deeply)");
            return;
        }
        let mut text = value.to_owned();
        for _ in 0..=ROUNDS {
            self.search(&text, depth);
            let decoded = unescape(&percent_decode(&text));
            if decoded == text {
                return;
            }
            text = decoded;
        }
        self.add(None, "(a value encoded more than four times)");
    }

    fn search(&mut self, text: &str, depth: usize) {
        // The text is searched as well, because of two members with one name the JSON parser keeps one.
        for string in json_strings(text) {
            self.rounds(&string, depth + 1);
        }
        self.urls(text);
        match self.reading {
            Reading::Full => {
                self.bare(text);
                text.split(is_separator).for_each(|piece| self.bare(piece));
            }
            Reading::Blob => self.bare_host(text.trim()),
            Reading::Prose | Reading::Proxy | Reading::Vendor(_) => {}
        }
    }

    /// URLs anywhere in the text: with a scheme, or beginning with two slashes.
    fn urls(&mut self, text: &str) {
        for (at, _) in text.match_indices(':') {
            let scheme = scheme_before(&text[..at]);
            let rest = &text[at + 1..];
            let after = rest.trim_start_matches(is_slash);
            let slashes = rest.len() - after.len();
            // Browsers read `https:/host` and `https:host` like `https://host`.
            let is_special = ["http", "https", "ws", "wss", "ftp"].contains(&scheme.as_str());
            if slashes < 2 && !is_special {
                continue;
            }
            let is_first =
                self.reading == Reading::Full && scheme.len() == text[..at].trim_start().len();
            let (authority, is_clear) = authority_of(after, is_first);
            let counts = match slashes {
                0 if self.reading == Reading::Prose => false,
                0 | 1 => is_hostlike(authority) || (is_first && !authority.is_empty()),
                _ => is_hostlike(authority) || !(scheme.is_empty() || authority.is_empty()),
            };
            if counts {
                self.add_read(
                    Some(scheme).filter(|scheme| !scheme.is_empty()),
                    authority,
                    is_clear,
                );
            }
        }
        self.relative_urls(text);
    }

    /// `//host`, at the beginning or after something that cannot be part of encoded data.
    fn relative_urls(&mut self, text: &str) {
        let mut before = None;
        let mut rest = text;
        while let Some(at) = rest.find(is_slash) {
            let previous = rest[..at].chars().next_back().or(before.filter(|_| at == 0));
            let after = rest[at..].trim_start_matches(is_slash);
            let slashes = rest.len() - at - after.len();
            let starts = previous.is_none_or(|c| is_separator(c) || c == ':');
            if slashes >= 2 && starts && previous != Some(':') {
                let is_first = self.reading == Reading::Full
                    && text[..text.len() - rest.len() + at].trim_start().is_empty();
                let (authority, is_clear) = authority_of(after, is_first);
                if is_hostlike(authority) || (is_first && !authority.is_empty()) {
                    self.add_read(None, authority, is_clear);
                }
            }
            before = Some('/');
            rest = after;
        }
    }

    /// A piece that begins with a host: `host`, `host:port`, `host/path`, `user@host`.
    fn bare(&mut self, piece: &str) {
        let piece = piece.trim();
        let end = piece.find(is_path_start).unwrap_or(piece.len()).min(piece.len());
        let head = &piece[..end];
        self.bare_host(head);
        if let Some((_, host)) = head.rsplit_once('@') {
            self.bare_host(host);
        }
        // `name:host`, as in a list of cookies.
        if let Some((_, value)) = head.split_once(':') {
            self.bare_host(value);
        }
    }

    fn bare_host(&mut self, text: &str) {
        if text.len() <= AUTHORITY_MAX && is_host(text) {
            self.add(None, text);
        }
    }

    fn add_read(&mut self, scheme: Option<String>, authority: &str, is_clear: bool) {
        // The part after the host may belong to it in another parser, so nothing covers it.
        let authority = if is_clear { authority.to_owned() } else { format!("{authority}…") };
        self.found.push(NamedHost { scheme, authority });
    }

    fn add(&mut self, scheme: Option<String>, authority: &str) {
        self.found.push(NamedHost { scheme, authority: authority.to_owned() });
    }
}

// === impl NamedHost ===

impl NamedHost {
    /// Whether the rule covers it. Without a scheme it may be http or https.
    pub(super) fn is_covered_by(&self, rule: &HostRule) -> bool {
        self.pages().any(|page| rule.covers(&page))
    }

    /// Whether it is one of these hosts: exact, or below `*.host`.
    pub(super) fn is_one_of(&self, hosts: &[&str]) -> bool {
        let is = |page: &PageUrl, host: &str| match host.strip_prefix("*.") {
            Some(base) => page.host().strip_suffix(base).is_some_and(|above| above.ends_with('.')),
            None => page.host() == host,
        };
        self.pages().any(|page| page.has_default_port() && hosts.iter().any(|host| is(&page, host)))
    }

    /// Whether the page's own host is it or below it, as for a cookie of a parent domain.
    pub(super) fn is_parent_of(&self, page: &PageUrl) -> bool {
        let is_parent = |parent: &PageUrl| {
            let host = parent.host();
            psl::suffix_str(host) != Some(host)
                && page.host().strip_suffix(host).is_some_and(|above| above.ends_with('.'))
        };
        self.scheme.is_none() && self.pages().any(|parent| is_parent(&parent))
    }

    fn pages(&self) -> impl Iterator<Item = PageUrl> {
        let schemes: &[&str] = match self.scheme.as_deref() {
            None => &["https", "http"],
            Some("https") => &["https"],
            Some("http") => &["http"],
            Some(_) => &[],
        };
        // Cookies are written for `.host`.
        let authority = match self.scheme {
            None => self.authority.strip_prefix('.').unwrap_or(&self.authority),
            Some(_) => &self.authority,
        };
        schemes
            .iter()
            .filter_map(move |scheme| PageUrl::parse(&format!("{scheme}://{authority}/")).ok())
    }
}

impl std::fmt::Display for NamedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: String = self.authority.chars().filter(|c| !c.is_control()).take(100).collect();
        f.write_str(&shown)
    }
}

fn is_slash(c: char) -> bool {
    matches!(c, '/' | '\\')
}

fn is_path_start(c: char) -> bool {
    matches!(c, '/' | '\\' | '?' | '#')
}

/// Characters between the parts of lists, queries, JSON and prose. Base64 has none of them inside.
fn is_separator(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`<>(){}[],;|&=?#".contains(c)
}

/// The scheme that ends here, in lower case; empty if there is none.
fn scheme_before(text: &str) -> String {
    let start = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let run = start.map_or(text, |at| &text[at..]);
    let letters = run.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    letters.to_ascii_lowercase()
}

/// The authority at the beginning of the text, and whether every parser ends it there. Where the whole value is the URL, only
/// path, query or fragment end it. In a list or query it may be followed by the next item; a separator followed by anything
/// else may be part of the host, or of a user name before the real host.
fn authority_of(text: &str, is_whole_value: bool) -> (&str, bool) {
    let window = text.char_indices().nth(AUTHORITY_MAX).map_or(text, |(at, _)| &text[..at]);
    let wide = &window[..window.find(is_path_start).unwrap_or(window.len())];
    if wide.contains('@') || is_whole_value {
        return (wide, wide.len() < AUTHORITY_MAX);
    }
    let Some(cut) = wide.find(is_separator) else { return (wide, wide.len() < AUTHORITY_MAX) };
    let (authority, rest) = wide.split_at(cut);
    let closes = rest.starts_with(|c: char| c.is_whitespace() || "\"'`<>(){}]".contains(c));
    let next = rest.trim_start_matches(is_separator);
    let name = next.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
    let is_next_item = next.is_empty() || (name.len() < next.len() && name.starts_with([':', '=']));
    (authority, closes || is_next_item)
}

/// Whether an authority, or what follows a scheme, may be meant as one: it has a dot, a user name or an address, or is
/// `localhost`.
fn is_hostlike(authority: &str) -> bool {
    let host = authority.split(':').next().unwrap_or_default();
    authority.contains(DOTS)
        || authority.contains(['@', '[', '%'])
        || host.eq_ignore_ascii_case("localhost")
        || (!host.is_empty() && host.bytes().all(|b| b.is_ascii_digit()))
        || (host.starts_with("0x") && host.len() > 2)
        || !authority.is_ascii()
}

/// Whether the whole text is a host, perhaps with a port: an address, `localhost`, or a name below a public suffix.
fn is_host(text: &str) -> bool {
    let text = text.strip_prefix('.').unwrap_or(text);
    let address =
        text.strip_prefix('[').map_or(text, |rest| rest.split(']').next().unwrap_or(rest));
    if address.parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.parse::<Ipv4Addr>().is_ok() || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    if !host.contains(DOTS) {
        return false;
    }
    let Ok(Host::Domain(name)) = Host::parse(host) else { return false };
    let is_name = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    name.contains('.')
        && name.split('.').all(is_name)
        && (psl::suffix(name.as_bytes()).is_some_and(|suffix| suffix.is_known())
            || name.rsplit('.').next().is_some_and(|top| PRIVATE_SUFFIXES.contains(&top)))
}

/// The strings of a JSON object, array or string, names included; none if the text is not one.
fn json_strings(text: &str) -> Vec<String> {
    let mut strings = Vec::new();
    if text.trim_start().starts_with(['{', '[', '"'])
        && let Ok(value) = serde_json::from_str(text)
    {
        collect(&value, &mut strings);
    }
    strings
}

fn collect(value: &serde_json::Value, strings: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, strings)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            strings.push(name.clone());
            collect(member, strings);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            Some(_) | None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Undoes `\/` and `\u002f` as JSON has them, also outside of well-formed JSON.
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let code = after.strip_prefix('u').and_then(|hex| hex.get(..4));
        let escaped =
            code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        rest = match (escaped, after.chars().next()) {
            (Some(c), _) => {
                plain.push(c);
                &after[5..]
            }
            (None, Some(c @ ('/' | '"'))) => {
                plain.push(c);
                &after[1..]
            }
            (None, _) => {
                plain.push('\\');
                after
            }
        };
    }
    plain + rest
}

#[cfg(test)]
mod tests;
