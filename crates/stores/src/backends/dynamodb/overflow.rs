//! Values larger than one item are stored in overflow items, written before the commit that references them. Only TTL deletes
//! them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::ports::StoreError;

use super::{
    connection::Condition,
    layout::{
        BODY, Changes, GATEWAY, GC_AT, Item, MAX_ITEM, NONCE, Nonce, OverflowRef, PARTS, bytes,
        encode, number, overflow_key, slot_key,
    },
    log::Log,
};

/// An encoded commit.
pub(super) struct CommitRecord {
    pub(super) changes: Changes,
    body: Vec<u8>,
    overflow: Option<OverflowRef>,
}

/// Commits are compacted long before this time, and no record lives as long.
const TTL: Duration = Duration::from_secs(120 * 86_400);

impl CommitRecord {
    pub(super) async fn new(log: &Log, changes: Changes, nonce: Nonce) -> Result<Self, StoreError> {
        let body = encode(&changes);
        let overflow =
            if body.len() > MAX_ITEM { Some(put_parts(log, &body, nonce).await?) } else { None };
        Ok(Self { changes, body, overflow })
    }

    pub(super) fn size(&self) -> usize {
        self.body.len()
    }

    pub(super) fn item(&self, slot: u64, nonce: Nonce, gateway: u64) -> Item {
        let mut item = slot_key(slot);
        item.insert(NONCE.into(), bytes(&nonce));
        item.insert(GATEWAY.into(), number(gateway));
        item.insert(GC_AT.into(), number(expires_at()));
        match self.overflow {
            Some(overflow) => item.insert(PARTS.into(), number(overflow.parts.into())),
            None => item.insert(BODY.into(), bytes(&self.body)),
        };
        item
    }
}

/// Writes a large value in parts.
pub(super) async fn put_parts(
    log: &Log,
    whole: &[u8],
    nonce: Nonce,
) -> Result<OverflowRef, StoreError> {
    let mut parts = 0;
    for part in whole.chunks(MAX_ITEM) {
        let mut item = overflow_key(nonce, parts);
        item.insert(BODY.into(), bytes(part));
        item.insert(GC_AT.into(), number(expires_at()));
        // A failed condition is fine: only a copy of this request can have the same nonce.
        log.client.put(item, Condition::is_new()).await.map_err(|error| log.failed(error))?;
        parts += 1;
    }
    Ok(OverflowRef { nonce, parts })
}

fn expires_at() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + TTL).as_secs()
}
