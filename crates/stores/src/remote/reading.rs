//! Reading rows that lie on a server: what is read is asked for until everything was told.

use std::collections::BTreeMap;

use domain::ports::StoreError;

use crate::adapter::ReadFn;

use super::{Assumed, Commit, Draft, Ended, Far, Image, unavailable};

/// So often a reading is made again before it is given up.
const ROUNDS: usize = 100;

/// Reads until everything it read was told by the server.
pub(crate) async fn read<B: Far>(backend: &B, mut read: ReadFn) -> Result<(), StoreError> {
    let mut image = Image::default();
    let mut seen = Assumed::default();
    for _ in 0..ROUNDS {
        let draft = Draft::new(B::KIND, &image, false);
        read(&draft);
        let (assumed, _) = draft.finish();
        // What was told before is not asked again: a long list is not of one moment, each of its parts is.
        let assumed = assumed.without(&seen);
        if assumed.is_empty() {
            return Ok(());
        }
        let look = look(assumed);
        match backend.look(&look).await? {
            Ended::Done => return Ok(()),
            Ended::Stale(corrections) => {
                seen.extend(look.assumed);
                for correction in corrections {
                    seen.learned(&correction);
                    image.correct(correction);
                }
            }
            Ended::Refused => {}
        }
    }
    Err(unavailable(B::KIND.name, "what is read changes too fast; ask again"))
}

/// A commit that only compares.
fn look(assumed: Assumed) -> Commit {
    Commit { assumed, writes: BTreeMap::new(), stamp: [0; 8] }
}
