//! What is too large for an item lies in items of its own, written before whatever speaks of it. Nobody takes them away
//! but time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::ports::StoreError;

use crate::remote::Stamp;

use super::{
    layout::{
        Apart, BODY, Changes, GATEWAY, GC_AT, Item, MOST, NONCE, PARTS, apart_key, bytes, encode,
        number, slot_key,
    },
    link::Condition,
    log::Log,
};

/// A commit as it is written.
pub(super) struct Parcel {
    pub(super) changes: Changes,
    body: Vec<u8>,
    apart: Option<Apart>,
}

/// Commits are filed long before, and records are not kept as long as this.
const KEPT: Duration = Duration::from_secs(120 * 86_400);

impl Parcel {
    pub(super) async fn new(log: &Log, changes: Changes, nonce: Stamp) -> Result<Self, StoreError> {
        let body = encode(&changes);
        let apart =
            if body.len() > MOST { Some(put_parts(log, &body, nonce).await?) } else { None };
        Ok(Self { changes, body, apart })
    }

    pub(super) fn size(&self) -> usize {
        self.body.len()
    }

    pub(super) fn item(&self, slot: u64, nonce: Stamp, gateway: u64) -> Item {
        let mut item = slot_key(slot);
        item.insert(NONCE.into(), bytes(&nonce));
        item.insert(GATEWAY.into(), number(gateway));
        item.insert(GC_AT.into(), number(kept_until()));
        match self.apart {
            Some(apart) => item.insert(PARTS.into(), number(apart.parts.into())),
            None => item.insert(BODY.into(), bytes(&self.body)),
        };
        item
    }
}

/// Writes something large in parts.
pub(super) async fn put_parts(log: &Log, whole: &[u8], nonce: Stamp) -> Result<Apart, StoreError> {
    let mut parts = 0;
    for piece in whole.chunks(MOST) {
        let mut item = apart_key(nonce, parts);
        item.insert(BODY.into(), bytes(piece));
        item.insert(GC_AT.into(), number(kept_until()));
        // Refused is as good as done: nobody else draws this nonce.
        log.link.put(item, Condition::is_new()).await.map_err(|failure| log.failed(failure))?;
        parts += 1;
    }
    Ok(Apart { nonce, parts })
}

fn kept_until() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + KEPT).as_secs()
}
