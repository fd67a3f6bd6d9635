//! Which kind a method means, and which method a kind is sent as.

use domain::challenge::Kind;

use super::{BadPart, Dialect, Fields, Files, is_set, picture};

/// Tells a kind from its elder with the same method; part of the kind, so never a parameter of its challenge.
pub(super) const VERSION: &str = "version";
const V3: &str = "v3";
const V4: &str = "4";

/// The kind the fields describe.
pub(super) fn of(method: Option<&str>, fields: &Fields, files: &Files) -> Result<Kind, BadPart> {
    let version = fields.get(VERSION).map(String::as_str);
    match method {
        None | Some("post" | "base64") => pictured(method, fields, files),
        Some("userrecaptcha") if version == Some(V3) => Ok(Kind::RecaptchaV3),
        Some("userrecaptcha") => Ok(Kind::RecaptchaV2),
        Some("geetest") if version == Some(V4) => Ok(Kind::GeetestV4),
        Some("geetest") => Ok(Kind::Geetest),
        Some("rotatecaptcha") => Ok(Kind::Rotate),
        Some(other) => same_name(other),
    }
}

/// A picture, or a question in words: both come without a method of their own.
fn pictured(method: Option<&str>, fields: &Fields, files: &Files) -> Result<Kind, BadPart> {
    let get = |name| fields.get(name).map(String::as_str);
    if picture::has_main(fields, files) {
        let is_grid = is_set(get("recaptcha")) || get("img_type") == Some("recaptcha");
        let is_coordinates = is_set(get("coordinatescaptcha"));
        return Ok(match (is_grid, is_coordinates) {
            (true, _) => Kind::Grid,
            (false, true) => Kind::Coordinates,
            (false, false) => Kind::Image,
        });
    }
    match (get("textcaptcha"), method) {
        (Some(_), _) => Ok(Kind::TextQuestion),
        (None, Some(_)) => Ok(Kind::Image),
        (None, None) => Err(BadPart::Nothing),
    }
}

/// Methods whose name is the kind's, and those that have no kind of their own.
fn same_name(method: &str) -> Result<Kind, BadPart> {
    let kind: Kind = method.parse()?;
    match kind {
        Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::GeetestV4
        | Kind::Funcaptcha
        | Kind::Bls
        | Kind::Other(_) => Ok(kind),
        Kind::RecaptchaV2
        | Kind::RecaptchaV3
        | Kind::Geetest
        | Kind::Image
        | Kind::TextQuestion
        | Kind::Grid
        | Kind::Coordinates
        | Kind::Rotate => Err(BadPart::Method(method.to_owned())),
    }
}

/// The method a kind is sent as, and its version where the method has several.
pub(super) fn method(kind: &Kind, dialect: Dialect) -> (&str, Option<&'static str>) {
    match (kind, dialect) {
        (Kind::RecaptchaV2, _) => ("userrecaptcha", None),
        (Kind::RecaptchaV3, _) => ("userrecaptcha", Some(V3)),
        (Kind::GeetestV4, Dialect::CaptchaAi) => ("geetest", Some(V4)),
        (Kind::Image | Kind::Grid | Kind::Coordinates, _) => ("base64", None),
        (Kind::TextQuestion, _) => ("post", None),
        (Kind::Rotate, _) => ("rotatecaptcha", None),
        (
            Kind::Hcaptcha
            | Kind::Turnstile
            | Kind::CloudflareChallenge
            | Kind::Geetest
            | Kind::GeetestV4
            | Kind::Funcaptcha
            | Kind::Bls
            | Kind::Other(_),
            _,
        ) => (kind.name(), None),
    }
}

/// What the provider calls the site's key.
pub(super) fn sitekey_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::RecaptchaV2 | Kind::RecaptchaV3 => "googlekey",
        Kind::Geetest => "gt",
        Kind::GeetestV4 => "captcha_id",
        Kind::Funcaptcha => "publickey",
        Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::Image
        | Kind::TextQuestion
        | Kind::Grid
        | Kind::Coordinates
        | Kind::Bls
        | Kind::Rotate
        | Kind::Other(_) => "sitekey",
    }
}

/// Adds what makes the fields describe this kind. What is there already stays, so that a contradiction is seen.
pub(super) fn mark(kind: &Kind, fields: &mut Fields) {
    let (method, version) = method(kind, Dialect::default());
    fields.insert("method".to_owned(), method.to_owned());
    let img_type = fields.get("img_type").map(String::as_str);
    let marker = match kind {
        Kind::Grid if img_type != Some("recaptcha") => Some(("recaptcha", "1")),
        Kind::Coordinates => Some(("coordinatescaptcha", "1")),
        Kind::RecaptchaV2
        | Kind::RecaptchaV3
        | Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::Geetest
        | Kind::GeetestV4
        | Kind::Funcaptcha
        | Kind::Image
        | Kind::TextQuestion
        | Kind::Grid
        | Kind::Bls
        | Kind::Rotate
        | Kind::Other(_) => version.map(|version| (VERSION, version)),
    };
    if let Some((name, value)) = marker {
        fields.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
}

/// Removes the version that the kind's name says already.
pub(super) fn unmark(kind: &Kind, fields: &mut Fields) {
    let said = method(kind, Dialect::CaptchaAi).1;
    if said.is_some() && fields.get(VERSION).map(String::as_str) == said {
        fields.remove(VERSION);
    }
}
