//! The `Chance` port in production: the operating system's randomness, because claim ids and keys must not be
//! guessed. Draws are taken from a small buffer, one system call for many.

use std::{fmt, sync::Mutex};

use domain::ports::Chance;
use rustls::crypto::{GetRandomFailed, ring};

const BUFFERED: usize = 512;

/// The operating system's randomness, buffered.
pub struct SystemChance(Mutex<Vec<u64>>);

// === impl SystemChance ===

impl SystemChance {
    /// Draws once, so that a system without randomness is noticed at start.
    pub fn start() -> Result<Self, NoRandomness> {
        Ok(Self(Mutex::new(batch()?)))
    }

    /// A fresh key: 32 letters and digits, as client libraries insist. About 190 bits.
    pub fn key(&self) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        // A draw of 64 bits modulo 62 is uneven by less than one part in 10^17.
        let letter = || {
            let at = usize::try_from(self.draw() % 62).expect("less than 62");
            char::from(LETTERS[at])
        };
        std::iter::repeat_with(letter).take(32).collect()
    }
}

impl Chance for SystemChance {
    fn draw(&self) -> u64 {
        let mut buffer = self.0.lock().expect("no holder of this lock can panic twice");
        if let Some(drawn) = buffer.pop() {
            return drawn;
        }
        // It answered at start; a system that stops giving randomness leaves no safe way on.
        *buffer = batch().expect("the operating system gave randomness at start");
        buffer.pop().expect("a batch is never empty")
    }
}

impl fmt::Debug for SystemChance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemChance")
    }
}

/// The operating system gave no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the operating system provides no random numbers, so keys and ids could be guessed")]
pub struct NoRandomness;

impl From<GetRandomFailed> for NoRandomness {
    fn from(_: GetRandomFailed) -> Self {
        Self
    }
}

fn batch() -> Result<Vec<u64>, NoRandomness> {
    let mut bytes = [0; BUFFERED * 8];
    ring::default_provider().secure_random.fill(&mut bytes)?;
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
