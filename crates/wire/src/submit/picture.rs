//! Images on the wire: uploaded files and base64 become the same bytes.
//!
//! Where a kind requires an image, base64 is decoded as leniently as the provider does. Elsewhere text counts as an image only
//! if it encodes back to the same text, so that unknown parameters pass unchanged.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use domain::challenge::{FILE_BYTES_MAX, Kind};

use super::{BadPart, Fields, Files};

/// The main image: `file` in uploads, `body` in base64.
pub(super) const MAIN: &str = "body";
const UPLOAD: &str = "file";

const GENEROUS: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether the request has the main image, in either form.
pub(super) fn has_main(fields: &Fields, files: &Files) -> bool {
    [MAIN, UPLOAD].iter().any(|name| fields.contains_key(*name) || files.contains_key(*name))
}

/// Moves images from the fields to the uploaded files. Empty ones count as absent.
pub(super) fn take(kind: &Kind, fields: &mut Fields, files: Files) -> Result<Files, BadPart> {
    let mut pictures = Files::new();
    for (name, bytes) in files {
        if !is_picture(&name) {
            return Err(BadPart::FileName(name.chars().take(64).collect()));
        }
        put(&mut pictures, &name, bytes)?;
    }
    let written: Vec<String> = fields.keys().filter(|name| is_picture(name)).cloned().collect();
    for name in written {
        if let Some(bytes) = decode(kind, &name, &fields[&name])? {
            fields.remove(&name);
            put(&mut pictures, &name, bytes)?;
        }
    }
    let bytes: usize = pictures.values().map(Vec::len).sum();
    if bytes <= FILE_BYTES_MAX { Ok(pictures) } else { Err(BadPart::PictureSize) }
}

/// Encodes an image as the provider expects it for this kind.
pub(super) fn encode(kind: &Kind, name: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    if *kind == Kind::Bls && name.starts_with(NUMBERED[1]) {
        format!("data:image/{};base64,{text}", format_of(bytes))
    } else {
        text
    }
}

fn put(pictures: &mut Files, name: &str, bytes: Vec<u8>) -> Result<(), BadPart> {
    let name = if name == UPLOAD { MAIN } else { name };
    if bytes.is_empty() {
        return Ok(());
    }
    match pictures.insert(name.to_owned(), bytes) {
        None => Ok(()),
        Some(_) => Err(BadPart::Twice(name.to_owned())),
    }
}

const NUMBERED: [&str; 2] = ["file_", "image_base64_"];

fn is_picture(name: &str) -> bool {
    let is_number = |n: &str| (1..=2).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit());
    matches!(name, MAIN | UPLOAD | "imginstructions")
        || NUMBERED.iter().any(|start| name.strip_prefix(start).is_some_and(is_number))
}

/// Whether this field of this kind must be an image.
fn is_needed(kind: &Kind, name: &str) -> bool {
    match kind {
        Kind::Image | Kind::Grid | Kind::Coordinates => matches!(name, MAIN | UPLOAD),
        Kind::Rotate => matches!(name, MAIN | UPLOAD) || name.starts_with(NUMBERED[0]),
        Kind::Bls => name.starts_with(NUMBERED[1]),
        Kind::RecaptchaV2
        | Kind::RecaptchaV3
        | Kind::Hcaptcha
        | Kind::Turnstile
        | Kind::CloudflareChallenge
        | Kind::Geetest
        | Kind::GeetestV4
        | Kind::Funcaptcha
        | Kind::TextQuestion
        | Kind::Other(_) => false,
    }
}

/// The bytes of an image; `None` if the text is an ordinary parameter.
fn decode(kind: &Kind, name: &str, text: &str) -> Result<Option<Vec<u8>>, BadPart> {
    if is_needed(kind, name) {
        return generously(text).map(Some).ok_or_else(|| BadPart::Picture(name.to_owned()));
    }
    let is_unknown = matches!(kind, Kind::Other(_));
    if text.is_empty() || (is_unknown && name == UPLOAD) {
        return Ok(None);
    }
    if !is_unknown && after_data_prefix(text).is_some() {
        return Ok(generously(text));
    }
    Ok(STANDARD.decode(text).ok())
}

/// Accepts both alphabets, with or without padding, line breaks and data-URI prefix. A space was a plus sign that the client
/// did not encode.
fn generously(text: &str) -> Option<Vec<u8>> {
    let text = after_data_prefix(text).unwrap_or(text).trim();
    let plain: String = text
        .chars()
        .filter(|c| !matches!(c, '\r' | '\n' | '\t'))
        .map(|c| match c {
            '-' | ' ' => '+',
            '_' => '/',
            same => same,
        })
        .collect();
    GENEROUS.decode(plain).ok()
}

fn after_data_prefix(text: &str) -> Option<&str> {
    let (prefix, rest) = text.trim_start().split_once(',')?;
    let is_data = prefix.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"));
    (is_data && prefix.to_ascii_lowercase().ends_with(";base64")).then_some(rest)
}

/// The format by its magic bytes; PNG by default.
fn format_of(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, 0xd8, ..] => "jpeg",
        [b'G', b'I', b'F', ..] => "gif",
        [b'R', b'I', b'F', b'F', ..] => "webp",
        _ => "png",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_base64_gives_the_same_bytes() {
        let bytes = [0xfb, 0xff, 0xfe, 0x01];
        for text in [
            "+//+AQ==",
            "-__-AQ",
            "+// AQ==",
            "+//\r\n+AQ=",
            "data:image/png;base64,+//+AQ==",
            "DATA:;BASE64,+//+AQ",
            "\n+//+AQ==\n",
        ] {
            assert_eq!(generously(text), Some(bytes.to_vec()), "{text:?}");
        }
        assert_eq!(generously("not a picture!"), None);
    }

    #[test]
    fn only_a_text_that_would_be_written_back_the_same_is_taken_for_a_picture() {
        let other = Kind::Other("audio".into());
        assert_eq!(decode(&other, "body", "AQID"), Ok(Some(vec![1, 2, 3])));
        for text in ["AQI", "data:;base64,AQID", "AQ ID", "hello, world", ""] {
            assert_eq!(decode(&other, "body", text), Ok(None), "{text}");
        }
        assert_eq!(decode(&Kind::Image, "imginstructions", "click the bus"), Ok(None));
    }
}
