//! The scan for request smuggling: how the bytes arrive changes nothing, and no head that hyper's parser accepts with two
//! possible framings passes.

#![no_main]

use doors::test_util::HeadScan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = HeadScan::default().refuses(data);
    let mut bytewise = HeadScan::default();
    let split = data.iter().any(|byte| bytewise.refuses(std::slice::from_ref(byte)));
    assert_eq!(whole, split, "split differently");
    assert!(whole || !is_ambiguous(data), "an ambiguous head passed");
});

/// Whether a request in the stream can be framed in two ways, as far as hyper's parser reads the stream.
fn is_ambiguous(mut data: &[u8]) -> bool {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(head)) = request.parse(data) else { return false };
        let values = |name: &str| -> Vec<&[u8]> {
            let named = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            named.map(|header| header.value).collect()
        };
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        if lengths.len() + encodings.len() > 1 {
            return true;
        }
        let Some(length) = lengths.first() else {
            if encodings.is_empty() {
                data = &data[head..];
                continue;
            }
            // The scan does not follow chunks, because the connection is closed after them.
            return false;
        };
        let length = str::from_utf8(length).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let Some(rest) = length.and_then(|length| data.get(head.saturating_add(length)..)) else { return false };
        data = rest;
    }
}
