//! Replies of the provider: no bytes make a reader panic, and half a reply to a submission never counts as an accepted task
//! or as a definite refusal, because money depends on it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{fetch, pingback, submit};

fuzz_target!(|body: &[u8]| {
    for priced in [false, true] {
        drop(fetch::read_reply(body, priced));
    }
    for count in 1..4 {
        drop(fetch::read_many(body, count));
    }
    drop((fetch::read_balance(body), fetch::read_threads(body), fetch::read_report(body)));
    drop(pingback::read_body(body));

    let Ok(reply) = submit::read_reply(body) else { return };
    let json = submit::write_reply(&reply, true);
    assert_eq!(submit::read_reply(json.as_bytes()), Ok(reply), "a reply is read back");
    for cut in 0..json.len() {
        assert!(submit::read_reply(&json.as_bytes()[..cut]).is_err(), "half a reply decides");
    }
});
