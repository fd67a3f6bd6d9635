//! Reading rows that lie on a server: what is read is asked for until everything was told.

use std::future::Future;

use domain::ports::StoreError;

use super::{Assumed, Commit, Draft, Ended, Far, Image, unavailable};

/// So often a reading is made again before it is given up.
const ROUNDS: usize = 100;

/// Reads until everything it read was told by the server. `compare` says what was wrong, or that nothing was.
pub(crate) async fn reading<B, T, F>(
    read: impl Fn(&Draft<'_, B>) -> Result<T, StoreError>,
    compare: impl Fn(Assumed) -> F,
) -> Result<T, StoreError>
where
    B: Far,
    F: Future<Output = Result<(Assumed, Ended), StoreError>>,
{
    let mut image = Image::default();
    let mut seen = Assumed::default();
    for _ in 0..ROUNDS {
        let draft = Draft::<B>::new(&image, false);
        let result = read(&draft);
        let (assumed, _) = draft.finish();
        // What was told before is not asked again: a long list is not of one moment, each of its parts is.
        let assumed = assumed.without(&seen);
        if assumed.is_empty() {
            return result;
        }
        let (assumed, ended) = compare(assumed).await?;
        match ended {
            Ended::Done => return result,
            Ended::Stale(corrections) => {
                seen.extend(assumed);
                for correction in corrections {
                    seen.learned(&correction);
                    image.correct(correction);
                }
            }
            Ended::Refused => {}
        }
    }
    Err(unavailable::<B>("what is read changes too fast; ask again"))
}

/// A commit that only compares.
pub(crate) fn look(assumed: Assumed) -> Commit {
    Commit { assumed, writes: std::collections::BTreeMap::new(), stamp: [0; 8] }
}
