//! Whether the provider answers for several tasks in one call: found out once, remembered, and not asked of kinds whose
//! answers cannot be taken apart.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    challenge::Kind,
    id::TaskId,
    ports::{BatchRefused, Poll, Polled},
    time::Timestamp,
};
use futures_util::future::join_all;

use crate::{
    Inner,
    held::{Held, Lot, Then},
    poll::{self, Question},
};

/// What is known about asking together.
#[derive(Debug, Default)]
pub(crate) struct Together(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Not asked together before then: the provider does not know how.
    refused_until: Option<Timestamp>,
    /// Kinds whose answers cannot be told from their neighbours'.
    alone: BTreeSet<Kind>,
}

/// A provider that did not know how is tried again after this.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
const MOST_ALONE: usize = 256;
/// Parameters whose answers have other members beside the token.
const MORE_THAN_A_TEXT: [&str; 6] =
    ["data", "pagedata", "cookies", "enterprise", "userAgent", "useragent"];
const MEMO: &str = "together/refused_until";

impl Together {
    /// Whether tasks of the kind may be asked for together.
    pub(crate) fn is_for(&self, kind: &Kind, now: Timestamp) -> bool {
        let known = self.lock();
        known.refused_until.is_none_or(|until| now >= until) && !known.alone.contains(kind)
    }

    fn refuse(&self, until: Timestamp) {
        self.lock().refused_until = Some(until);
    }

    fn leave_alone(&self, kind: Kind) {
        let mut known = self.lock();
        if known.alone.len() < MOST_ALONE {
            known.alone.insert(kind);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

/// Asks for a lot in one call; where that brings nothing, for each by itself.
pub(crate) async fn poll_together(inner: Arc<Inner>, lot: Lot) -> Vec<Then> {
    let asked = inner.now();
    let together = |held: &Held| inner.asks_together(&held.lease.solve.kind, asked);
    if !lot.iter().all(|held| together(held)) {
        // Found out since they were put together: each goes on by itself.
        let alone = |held: Box<Held>| {
            let wait = if together(&held) { Duration::ZERO } else { held.next_poll(&inner) };
            Then::at(asked.plus(wait), held)
        };
        return lot.into_iter().map(alone).collect();
    }
    let tasks: Vec<TaskId> = lot.iter().filter_map(|held| held.lease.solve.task.clone()).collect();
    if lot.len() == 1 || tasks.len() != lot.len() {
        return join_all(lot.into_iter().map(|held| poll::poll(Arc::clone(&inner), held))).await;
    }
    if let Err(until) = inner.may_poll(asked) {
        return lot.into_iter().map(|held| Then::at(until, held)).collect();
    }
    for held in &lot {
        held.note_asked(&inner, asked);
    }
    let polled = match inner.ports.provider.poll_many(&tasks).await {
        Ok(polled) if polled.len() == lot.len() => polled,
        Ok(_) | Err(BatchRefused::Garbled) => return one_by_one(&inner, lot, tasks, asked).await,
        Err(BatchRefused::Unsupported) => {
            inner.refuse_together().await;
            return one_by_one(&inner, lot, tasks, asked).await;
        }
        Err(BatchRefused::Fault(fault)) => {
            let nothing = Polled { poll: Poll::Fault(fault), price: None };
            vec![nothing; lot.len()]
        }
    };
    let polled = whole_answers(&inner, &lot, &tasks, polled).await;
    let question = Question { asked, tasks: tasks.len() };
    conclude(&inner, lot, (tasks, polled), question).await
}

/// An answer that came with others has neither its price nor its other members (a user agent, cookies): where one of them
/// matters, the task is asked for once more by itself.
async fn whole_answers(
    inner: &Inner,
    lot: &[Box<Held>],
    tasks: &[TaskId],
    polled: Vec<Polled>,
) -> Vec<Polled> {
    let each = lot.iter().zip(tasks).zip(polled).map(async |((held, task), polled)| {
        let solved = matches!(polled.poll, Poll::Solved(_));
        if !solved || held.is_plain() {
            return polled;
        }
        inner.quota.spend(1);
        inner.ports.provider.poll(task).await
    });
    join_all(each).await
}

async fn one_by_one(
    inner: &Arc<Inner>,
    lot: Lot,
    tasks: Vec<TaskId>,
    asked: Timestamp,
) -> Vec<Then> {
    inner.quota.spend(tasks.len());
    let polled = join_all(tasks.iter().map(|task| inner.ports.provider.poll(task))).await;
    for (held, polled) in lot.iter().zip(&polled) {
        let divided = |text: &str| text.contains('|');
        if matches!(&polled.poll, Poll::Solved(answer) if divided(answer.text.expose())) {
            inner.together.leave_alone(held.lease.solve.kind.clone());
        }
    }
    conclude(inner, lot, (tasks, polled), Question { asked, tasks: 1 }).await
}

async fn conclude(
    inner: &Arc<Inner>,
    lot: Lot,
    (tasks, polled): (Vec<TaskId>, Vec<Polled>),
    question: Question,
) -> Vec<Then> {
    let each = lot.into_iter().zip(tasks.into_iter().zip(polled));
    join_all(each.map(|(held, answered)| poll::conclude(inner, held, answered, question))).await
}

impl Held {
    /// Whether its answer is one text of a known price.
    fn is_plain(&self) -> bool {
        let plain = matches!(
            self.lease.solve.kind,
            Kind::RecaptchaV2 | Kind::RecaptchaV3 | Kind::Turnstile | Kind::Image
        );
        let params = self.lease.challenge.params();
        let more = MORE_THAN_A_TEXT.iter().any(|name| params.contains_key(*name));
        plain && !more && self.lease.solve.price.is_some()
    }
}

impl Inner {
    /// Whether tasks of the kind are asked for together. A provider that calls back is hardly asked at all.
    pub(crate) fn asks_together(&self, kind: &Kind, now: Timestamp) -> bool {
        self.config.polling.mode() == "learned"
            && self.config.batches
            && !self.config.pingback
            && self.together.is_for(kind, now)
    }

    async fn refuse_together(&self) {
        let until = self.now().plus(REMEMBERED);
        tracing::info!(%until, "provider does not support batch polls");
        self.together.refuse(until);
        let memo = until.millis().to_string().into_bytes();
        if let Err(error) = self.ports.store.set_memo(MEMO, memo).await {
            tracing::warn!(%error, "failed to persist batch-poll support, it will be probed again after a restart");
        }
    }

    /// What an earlier life found out.
    pub(crate) async fn remember_together(&self) {
        let Ok(memos) = self.ports.store.memos(MEMO).await else { return };
        let until = memos.first().and_then(|(_, bytes)| str::from_utf8(bytes).ok()?.parse().ok());
        if let Some(until) = until {
            self.together.refuse(Timestamp::from_millis(until));
        }
    }
}
