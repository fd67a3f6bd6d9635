//! The `Chance` port in production: random numbers of the operating system, because claim ids and keys must be unguessable.
//! They are drawn from a buffer, which saves system calls.

use std::fmt;

use domain::ports::Chance;
use parking_lot::Mutex;
use rustls::crypto::ring;

const BUFFERED: usize = 512;

/// Random numbers of the operating system, buffered.
pub struct SystemChance(Mutex<Vec<u64>>);

// === impl SystemChance ===

impl SystemChance {
    /// Fills the buffer, so that a system without randomness fails at start.
    pub fn start() -> Result<Self, NoRandomness> {
        Ok(Self(Mutex::new(batch()?)))
    }

    /// A new key: 32 letters and digits, as client libraries require; about 190 bits.
    pub fn key(&self) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        // The bias of 64 bits modulo 62 is below one part in 10^17.
        let letter = || {
            let at = usize::try_from(self.draw() % 62).expect("less than 62");
            char::from(LETTERS[at])
        };
        std::iter::repeat_with(letter).take(32).collect()
    }
}

impl Chance for SystemChance {
    fn draw(&self) -> u64 {
        let mut buffer = self.0.lock();
        if let Some(drawn) = buffer.pop() {
            return drawn;
        }
        // Without randomness there is no safe way to continue.
        *buffer = batch().expect("the operating system provided randomness at start");
        buffer.pop().expect("a batch is never empty")
    }
}

impl fmt::Debug for SystemChance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemChance")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the operating system provides no random numbers, so keys and ids could be guessed")]
pub struct NoRandomness;

fn batch() -> Result<Vec<u64>, NoRandomness> {
    let mut bytes = [0; BUFFERED * 8];
    ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomness)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn draws_do_not_repeat_across_refills() {
        let chance = SystemChance::start().unwrap();
        let drawn: HashSet<u64> = (0..3 * BUFFERED).map(|_| chance.draw()).collect();
        assert_eq!(drawn.len(), 3 * BUFFERED);
    }

    #[test]
    fn a_key_is_32_letters_and_digits() {
        let chance = SystemChance::start().unwrap();
        let (one, other) = (chance.key(), chance.key());
        assert!(one.len() == 32 && one.bytes().all(|b| b.is_ascii_alphanumeric()), "{one}");
        assert_ne!(one, other);
    }
}
