//! After a loss: the data is opened anew, and what this gateway knows is brought back. Until every gateway had the time to
//! do so nothing else is decided, and for some time more nothing is risked (`head`). What is owed is kept until it is
//! done, however often that is interrupted.

use std::{collections::VecDeque, time::Duration};

use domain::{ports::StoreError, time::Timestamp};
use tokio::time::Instant;

use crate::{
    adapter,
    queued::QueuedDecision,
    remote::{self, crowd},
    rules::{self, Relic, Turn as Place},
    tx::WriteTx,
};

use super::{
    NAME,
    head::{Head, Known, Opened},
    server::{Failure, unavailable},
    writer::Pen,
};

/// What has to be brought back.
pub(super) struct Owed {
    /// In their order.
    relics: VecDeque<Relic>,
    /// Whether tokens in stock have to be thrown away, and from where on.
    stock: Stock,
    /// When the loss was found.
    since: Instant,
    /// The same by the server's clock.
    now: Timestamp,
    /// When the others were last told that this takes longer.
    told: Instant,
    brought_back: usize,
    voided: usize,
}

/// How far the stock was looked through.
#[derive(Clone, Copy)]
enum Stock {
    /// All of it, or it need not be.
    Good,
    /// Up to there.
    From(Option<rules::StockPlace>),
}

/// Relics in one call.
const LOT: usize = 100;
/// Claims wait so long for the solves that other gateways bring back.
const OTHERS: Duration = Duration::from_secs(3);
/// When it takes longer than others would wait they are told, again and again, but not for ever.
const LONG: Duration = Duration::from_secs(4);
const TELL: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

// === impl Owed ===

impl Owed {
    fn new(relics: Vec<Relic>, head: &Head) -> Self {
        let now = Instant::now();
        Self {
            relics: relics.into(),
            stock: if head.stock_is_doubtful { Stock::From(None) } else { Stock::Good },
            since: now,
            now: Timestamp::from_millis(head.opened_at),
            told: now,
            brought_back: 0,
            voided: 0,
        }
    }

    /// A gateway that has only just come knows nothing, but can see that nobody looked through the stock.
    pub(super) fn of_a_newcomer(head: &Head) -> Option<Self> {
        head.stock_is_doubtful.then(|| Self::new(Vec::new(), head))
    }
}

// === impl Pen ===

impl Pen {
    /// Opens the data anew; what is known here is owed from now on.
    pub(super) async fn start_over(&mut self) -> Result<(), StoreError> {
        let server = self.server.clone();
        let known = {
            let head = server.head();
            Known { incarnation: head.incarnation.clone(), count: head.count, forgot: true }
        };
        let opened =
            Head::open(&server.line, &server.head_script, &server.names, server.writer, &known)
                .await;
        let Opened::Head(mut head) = opened.map_err(Failure::from)? else {
            return Err(unavailable("its data is not of this release any more"));
        };
        tracing::error!(
            commits_known = known.count,
            commits_there = head.count,
            "Redis lost writes it had acknowledged, restoring this gateway's records"
        );
        head.is_restoring = true;
        let mut relics = self.journal.relics(super::NAME);
        self.journal.forget_pages();
        // Pages of an earlier loss that were not written again yet are nowhere else.
        let left = self.owed.take().map(|owed| owed.relics).unwrap_or_default();
        relics.extend(left.into_iter().filter(|relic| matches!(relic, Relic::Page(..))));
        relics.sort_by_key(Relic::place);
        self.owed = Some(Owed::new(relics, &head));
        *server.head() = head;
        self.forget();
        Ok(())
    }

    /// Brings back what is owed, if anything is. Interrupted, it goes on the next time.
    pub(super) async fn bring_back(&mut self) -> Result<(), StoreError> {
        while let Some(owed) = &mut self.owed {
            if owed.told.elapsed() > TELL && (LONG..PATIENCE).contains(&owed.since.elapsed()) {
                owed.told = Instant::now();
                self.server.tell_still_restoring().await.map_err(Failure::from)?;
                continue;
            }
            if let Stock::From(place) = owed.stock {
                self.void_stock(place).await?;
            } else if let Some(place) = owed.relics.front().map(Relic::place) {
                if place > Place::Own {
                    tokio::time::sleep(OTHERS.saturating_sub(owed.since.elapsed())).await;
                }
                self.bring_back_lot(place).await?;
            } else {
                self.is_done();
            }
        }
        Ok(())
    }

    fn is_done(&mut self) {
        let Some(owed) = self.owed.take() else { return };
        self.server.head().is_restoring = false;
        tracing::error!(
            brought_back = owed.brought_back,
            voided = owed.voided,
            "restored this gateway's records to Redis and discarded stock tokens that may have been handed out"
        );
    }

    async fn void_stock(&mut self, place: Option<rules::StockPlace>) -> Result<(), StoreError> {
        let now = self.owed.as_ref().map_or_else(Timestamp::default, |owed| owed.now);
        let (voided, next) = self.decide(move |tx| rules::void_stock(tx, place, LOT, now)).await?;
        if next.is_none() {
            self.server.trust_stock().await.map_err(Failure::from)?;
        }
        if let Some(owed) = &mut self.owed {
            owed.voided += voided;
            owed.stock = next.map_or(Stock::Good, |place| Stock::From(Some(place)));
        }
        Ok(())
    }

    /// Brings back the next few of one place; one that cannot be, because it contradicts what is there, is left out.
    async fn bring_back_lot(&mut self, place: Place) -> Result<(), StoreError> {
        let Some(owed) = &self.owed else { return Ok(()) };
        let now = owed.now;
        let same = owed.relics.iter().take(LOT).take_while(|relic| relic.place() == place);
        let lot: Vec<Relic> = same.cloned().collect();
        let count = lot.len();
        let mut news = match self.restore(lot.clone(), now).await {
            Err(StoreError::Corrupt { .. }) => None,
            brought_back => Some(brought_back?),
        };
        if news.is_none() {
            for relic in lot {
                match self.restore(vec![relic], now).await {
                    Err(StoreError::Corrupt { source, .. }) => {
                        tracing::error!(%source, "failed to restore a record after data loss");
                    }
                    one => news = Some(news.unwrap_or(0) + one?),
                }
            }
        }
        if let Some(owed) = &mut self.owed {
            owed.relics.drain(..count);
            owed.brought_back += news.unwrap_or(0);
        }
        Ok(())
    }

    async fn restore(&mut self, lot: Vec<Relic>, now: Timestamp) -> Result<usize, StoreError> {
        self.decide(move |tx| {
            let mut news = 0;
            for relic in &lot {
                news += usize::from(rules::restore(tx, relic, now)?);
            }
            Ok(news)
        })
        .await
    }

    /// Makes one decision at once, before whatever waits.
    async fn decide<T, F>(&mut self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn WriteTx) -> Result<T, StoreError> + Send + 'static,
    {
        let (decide, slot) = adapter::decision(decide);
        let (queued, answer) = QueuedDecision::new(decide);
        let mut crowd = vec![queued];
        let written = Box::pin(crowd::commit(self, &mut crowd)).await.map(drop);
        for queued in crowd {
            queued.answer(written.as_ref().copied().map_err(|why| remote::same(NAME, why)));
        }
        answer.await.map_err(|_| unavailable("a decision panicked; the log says where"))??;
        slot.take()
    }
}
