//! `solvegate kinds`: what the definitions in domain and wire say about each kind.

use std::time::Duration;

use domain::challenge::{Kind, Sharing};
use serde_json::{Value, json};

use crate::{exit::Failure, output};

/// A kind as it is described to a person.
struct Described {
    kind: Kind,
    /// Its method on in.php, with the field that tells it from others of that method.
    method: String,
    sitekey: Option<&'static str>,
    required: Vec<&'static str>,
    optional: Vec<&'static str>,
    /// How long a token is handed out after it was solved.
    usable: Duration,
}

pub(super) fn run(json: bool) -> Result<(), Failure> {
    let kinds = Kind::known().map(Described::new);
    if json {
        return output::json(
            &json!({ "kinds": kinds.map(|kind| kind.json()).collect::<Vec<_>>() }),
        );
    }
    let kinds: Vec<_> = kinds.collect();
    let headings = ["kind", "method on in.php", "declared by", "shared", "usable", "required"];
    output::rows(headings, kinds.iter().map(Described::cells))?;
    output::line(format_args!("\nOptional parameters (* is a number, [*] anything in brackets):"))?;
    for Described { kind, optional, .. } in &kinds {
        output::line(format_args!("{kind}: {}", optional.join(", ")))?;
    }
    Ok(())
}

fn sharing(kind: &Kind) -> &'static str {
    match kind.sharing() {
        Sharing::Exclusive => "exclusive",
        Sharing::Bound => "bound",
        Sharing::Shared => "shared",
    }
}

// === impl Described ===

impl Described {
    fn new(kind: Kind) -> Self {
        let (method, sitekey) = wire::submit::in_php_names(&kind);
        let required: Vec<_> = kind.needs().to_vec();
        let optional = kind.params().filter(|name| !required.contains(name)).collect();
        let sitekey = required.contains(&"sitekey").then_some(sitekey);
        let (lifetime, margin) = kind.lifetime_and_margin();
        let usable = lifetime.saturating_sub(margin);
        Self { kind, method, sitekey, required, optional, usable }
    }

    fn json(&self) -> Value {
        let (lifetime, margin) = self.kind.lifetime_and_margin();
        json!({
            "kind": self.kind,
            "method": self.method,
            "sitekey_field": self.sitekey,
            "has_page": !self.kind.is_pageless(),
            "sharing": self.kind.sharing(),
            "lifetime_s": lifetime.as_secs(),
            "margin_s": margin.as_secs(),
            "required": self.required,
            "optional": self.optional,
        })
    }

    fn cells(&self) -> [String; 6] {
        let declared = if self.kind.is_pageless() { "[images]" } else { "[[site]]" };
        let required = self.required.iter().map(|part| match (*part, self.sitekey) {
            ("sitekey", Some(field)) if field != "sitekey" => format!("sitekey ({field})"),
            ("body", _) => "image (body)".to_owned(),
            (part, _) => part.to_owned(),
        });
        let required: Vec<_> = required.collect();
        [
            self.kind.to_string(),
            self.method.clone(),
            declared.to_owned(),
            sharing(&self.kind).to_owned(),
            format!("{} s", self.usable.as_secs()),
            required.join(", "),
        ]
    }
}
