//! Follows the frames of an HTTP/2 connection as far as needed to see whether a head is incomplete. hyper waits for the rest
//! of a HEADERS or CONTINUATION frame without a timeout.

/// The frames on one connection.
#[derive(Debug)]
pub(super) struct Frames {
    preface_left: usize,
    header: [u8; HEADER],
    header_len: usize,
    kind: u8,
    payload_left: usize,
    /// A HEADERS frame has come, but not the last CONTINUATION.
    has_open_block: bool,
}

const PREFACE: usize = 24;
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

// === impl Frames ===

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            preface_left: PREFACE,
            header: [0; HEADER],
            header_len: 0,
            kind: DATA,
            payload_left: 0,
            has_open_block: false,
        }
    }

    /// Whether a frame, the preface or a header block is incomplete. The data of a body may take its time: body.rs has the
    /// timeout for it.
    pub(super) fn is_incomplete(&self) -> bool {
        self.preface_left > 0
            || self.header_len > 0
            || (self.payload_left > 0 && self.kind != DATA)
            || self.has_open_block
    }

    /// Follows the next bytes; returns whether they completed a header block or another frame.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        let mut completed = false;
        while !bytes.is_empty() {
            if self.preface_left > 0 {
                skip(&mut bytes, &mut self.preface_left);
            } else if self.payload_left > 0 {
                skip(&mut bytes, &mut self.payload_left);
                completed |= self.payload_left == 0 && !self.has_open_block;
            } else {
                self.header[self.header_len] = bytes[0];
                self.header_len += 1;
                bytes = &bytes[1..];
                if self.header_len == HEADER {
                    self.begin_frame();
                    completed |= self.payload_left == 0 && !self.has_open_block;
                }
            }
        }
        completed
    }

    fn begin_frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.header_len = 0;
        self.kind = kind;
        self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if matches!(kind, HEADERS | CONTINUATION) {
            self.has_open_block = flags & END_HEADERS == 0;
        }
    }
}

fn skip(bytes: &mut &[u8], left: &mut usize) {
    let skipped = bytes.len().min(*left);
    *bytes = &bytes[skipped..];
    *left -= skipped;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.extend(vec![0; usize::from(length)]);
        bytes
    }

    /// Feeds byte by byte; returns where it is incomplete and where something is completed.
    fn followed(bytes: &[u8]) -> (Vec<bool>, usize) {
        let mut frames = Frames::new();
        frames.feed(&[0; PREFACE]);
        let mut completed = 0;
        let follow = |byte: &u8| {
            completed += usize::from(frames.feed(std::slice::from_ref(byte)));
            frames.is_incomplete()
        };
        (bytes.iter().map(follow).collect(), completed)
    }

    #[test]
    fn a_head_is_incomplete_until_its_last_byte() {
        assert!(Frames::new().is_incomplete(), "before the preface");
        let (incomplete, completed) = followed(&frame(HEADERS, END_HEADERS, 5));
        assert_eq!(incomplete, [vec![true; HEADER + 4], vec![false]].concat());
        assert_eq!(completed, 1);
    }

    #[test]
    fn continuations_do_not_complete_a_head_before_the_last() {
        let parts = [frame(HEADERS, 0, 2), frame(CONTINUATION, 0, 0), frame(CONTINUATION, 0, 1)];
        let (incomplete, completed) = followed(&parts.concat());
        assert!(incomplete.iter().all(|incomplete| *incomplete));
        assert_eq!(completed, 0);
        let whole = [parts.concat(), frame(CONTINUATION, END_HEADERS, 1)].concat();
        let (incomplete, completed) = followed(&whole);
        assert_eq!((incomplete.last(), completed), (Some(&false), 1));
    }

    #[test]
    fn data_may_take_its_time() {
        let (incomplete, completed) = followed(&frame(DATA, 0, 3));
        assert_eq!(incomplete, [vec![true; HEADER - 1], vec![false; 4]].concat());
        assert_eq!(completed, 1);
    }

    #[test]
    fn how_the_bytes_are_split_changes_nothing() {
        let bytes = [frame(4, 0, 0), frame(HEADERS, 0, 7), frame(CONTINUATION, END_HEADERS, 0)];
        let bytes = [vec![0; PREFACE], bytes.concat(), frame(DATA, 1, 9)].concat();
        for cut in 0..bytes.len() {
            let mut frames = Frames::new();
            frames.feed(&bytes[..cut]);
            frames.feed(&bytes[cut..]);
            assert!(!frames.is_incomplete(), "cut at {cut}");
        }
    }
}
