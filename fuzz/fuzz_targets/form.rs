//! The form parser of in.php and res.php: no bytes make it panic, and the form we send for a challenge is read back as the
//! same challenge, so that what was checked is what the provider gets.
//!
//! An input is three lines, the last of any length: query, content type, body.

#![no_main]

use domain::challenge::RESERVED;
use libfuzzer_sys::fuzz_target;
use wire::{
    fetch,
    form::Form,
    submit::{self, Dialect},
};

fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (query, content_type, body) = (line(), line(), line());
    let (Ok(query), Ok(content_type)) = (str::from_utf8(query), str::from_utf8(content_type)) else {
        return;
    };
    let Ok(form) = Form::read(Some(query), Some(content_type), body) else { return };
    drop(fetch::read(&form));
    let Ok(submit) = submit::read(&form) else { return };
    for dialect in [Dialect::CaptchaAi, Dialect::TwoCaptcha] {
        let sent = submit::fields_in(dialect, &submit.challenge);
        let named = |name: &str| sent.iter().filter(|(sent, _)| sent == name).count();
        assert_eq!(named("method"), 1);
        for name in RESERVED.iter().filter(|name| **name != "method") {
            assert_eq!(named(name), 0, "{name} is sent");
        }
        let read = Form::from_pairs(sent).expect("each name is sent once");
        let again = submit::read(&read).expect("a sent form is a submission");
        assert!(again.challenge == submit.challenge, "another challenge is sent than was checked");
    }
});
