//! What happens to gateways, their ways to the store, and its server. One seed decides it.

use std::time::Duration;

/// One disturbance. `gateway` is the one that it happens to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) gateway: usize,
    pub(super) lasts: Duration,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// kill -9; it starts again at the end, with its clock this far from the server's.
    Killed { clock_ms: i64 },
    /// SIGSTOP.
    Stopped,
    /// It can reach the store no more.
    CutOff,
    /// Its requests reach the store, and no reply comes back.
    Unheard,
    /// Its requests and the replies take this long on their way.
    Late { by: Duration },
    /// The reply to its `after`-th request is lost, and the connection with it, `times` in a row.
    LosesReplies { after: u32, times: u32 },
    /// The store carries out its `after`-th request from now, and all its connections break.
    CutInRequest { after: u32 },
    /// The store refuses so many of its requests, in percent.
    Throttled { percent: u8 },
    /// The store's server is killed, and starts again at the end. Nobody else is disturbed meanwhile.
    ServerDown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    Kill,
    Stop,
    LongStop,
    CutOff,
    LongCutOff,
    Unheard,
    Late,
    LoseReplies,
    CutInRequest,
    Throttle,
    ServerDown,
}

/// Troubles without end, in random order: all kinds come before one comes more often than it should.
pub(super) struct Deck {
    chance: fastrand::Rng,
    can_throttle: bool,
    left: Vec<Card>,
}

/// A gateway may be this far from the server's clock; the store refuses more than 5 s.
const MOST_CLOCK_MS: i64 = 4_000;
/// Some stops and cuts are longer than a lease.
const LONG_MS: std::ops::Range<u64> = 16_000..20_000;
const SHORT_MS: std::ops::Range<u64> = 300..5_000;

const CARDS: [Card; 14] = [
    Card::Kill,
    Card::Kill,
    Card::Kill,
    Card::Kill,
    Card::Stop,
    Card::LongStop,
    Card::CutOff,
    Card::LongCutOff,
    Card::Unheard,
    Card::Late,
    Card::LoseReplies,
    Card::LoseReplies,
    Card::CutInRequest,
    Card::ServerDown,
];

// === impl Deck ===

impl Deck {
    pub(super) fn new(seed: u64, can_throttle: bool) -> Self {
        Self { chance: fastrand::Rng::with_seed(seed), can_throttle, left: Vec::new() }
    }

    /// The time until the next trouble.
    pub(super) fn gap(&mut self) -> Duration {
        self.millis(200..1_500)
    }

    /// The next trouble, of one of these gateways.
    pub(super) fn next(&mut self, gateways: &[usize]) -> Trouble {
        if self.left.is_empty() {
            self.left = CARDS.to_vec();
            if self.can_throttle {
                self.left.extend([Card::Throttle, Card::Throttle]);
            }
            self.chance.shuffle(&mut self.left);
        }
        let card = self.left.pop().expect("it was filled");
        let gateway = gateways[self.chance.usize(..gateways.len())];
        let (kind, lasts) = self.draw(card);
        Trouble { gateway, lasts, kind }
    }

    fn draw(&mut self, card: Card) -> (Kind, Duration) {
        match card {
            Card::Kill => (Kind::Killed { clock_ms: self.clock() }, self.millis(0..4_000)),
            Card::Stop => (Kind::Stopped, self.millis(SHORT_MS)),
            Card::LongStop => (Kind::Stopped, self.millis(LONG_MS)),
            Card::CutOff => (Kind::CutOff, self.millis(SHORT_MS)),
            Card::LongCutOff => (Kind::CutOff, self.millis(LONG_MS)),
            Card::Unheard => (Kind::Unheard, self.millis(SHORT_MS)),
            Card::Late => (Kind::Late { by: self.millis(50..3_000) }, self.millis(SHORT_MS)),
            Card::LoseReplies => {
                let (after, times) = (self.chance.u32(1..20), self.chance.u32(1..10));
                (Kind::LosesReplies { after, times }, self.millis(1_000..3_000))
            }
            Card::CutInRequest => {
                (Kind::CutInRequest { after: self.chance.u32(1..20) }, self.millis(SHORT_MS))
            }
            Card::Throttle => {
                (Kind::Throttled { percent: self.chance.u8(10..70) }, self.millis(1_000..8_000))
            }
            Card::ServerDown => (Kind::ServerDown, self.millis(0..3_000)),
        }
    }

    /// How far a gateway's clock is off; half of them are right.
    fn clock(&mut self) -> i64 {
        let shift = self.chance.i64(-MOST_CLOCK_MS..=MOST_CLOCK_MS);
        if self.chance.bool() { shift } else { 0 }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.chance.u64(range))
    }
}
