//! A decision on its way to the one that writes.

use domain::ports::StoreError;
use tokio::sync::oneshot;

use crate::desk::Shelved;

/// A decision that waits for its turn. It may be made more than once before it is committed.
pub(crate) trait Queued<S: Shelved>: Send {
    /// Makes the decision; `false` when it failed and its writes must not be committed.
    fn make(&mut self, rows: &mut S::Writable<'_>) -> bool;

    /// Says how it ended: as it was made, or not at all.
    fn answer(self: Box<Self>, verdict: Result<(), StoreError>);
}

/// The answer to come.
pub(crate) type Answer<T> = oneshot::Receiver<Result<T, StoreError>>;

struct Ask<T, F> {
    decide: F,
    made: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// A queued decision, and where its answer arrives.
pub(crate) fn new<S, T, F>(decide: F) -> (Box<dyn Queued<S>>, Answer<T>)
where
    S: Shelved,
    T: Send + 'static,
    F: FnMut(&mut S::Writable<'_>) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Ask { decide, made: None, reply }), answer)
}

impl<S, T, F> Queued<S> for Ask<T, F>
where
    S: Shelved,
    T: Send,
    F: FnMut(&mut S::Writable<'_>) -> Result<T, StoreError> + Send,
{
    fn make(&mut self, rows: &mut S::Writable<'_>) -> bool {
        let made = (self.decide)(rows);
        let good = made.is_ok();
        self.made = Some(made);
        good
    }

    fn answer(self: Box<Self>, verdict: Result<(), StoreError>) {
        // Whoever asked may have gone; the decision stands.
        drop(match (verdict, self.made) {
            (Ok(()), Some(made)) => self.reply.send(made),
            (Err(why), _) => self.reply.send(Err(why)),
            // Nobody made it and nobody says why: whoever asked sees the channel close.
            (Ok(()), None) => Ok(()),
        });
    }
}
