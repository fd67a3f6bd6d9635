//! Values that are too large for one item. They are written in parts before the commit that refers to them.
//!
//! A part expires 120 days after it was written, as its commit does: most values are replaced or deleted before they are
//! compacted, and some belong to a commit that never came. A row in a segment lives until its decision deletes it. So the
//! compactor takes the expiry from the parts of a row before it writes the row to a segment, and gives it back when no segment
//! refers to them any longer. Parts are not deleted at once, because a gateway that has just read the old segment still needs
//! them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use domain::ports::StoreError;

use crate::{optimistic::RawKey, schema::codec::corrupt};

use super::{
    NAME,
    connection::{Condition, TableClient},
    error::RequestError,
    layout::{
        BODY, GC_AT, MAX_ITEM, Nonce, OverflowRef, PK, ROW, StoredValue, bytes, number,
        overflow_key, read_part,
    },
    log::Log,
};

/// Commits are compacted long before this time.
pub(super) const TTL: Duration = Duration::from_secs(120 * 86_400);
/// How long parts stay when no segment refers to them.
const RELEASED_TTL: Duration = Duration::from_secs(86_400);

/// Writes a large value in parts. `row`: the key of the row whose value it is; the body of a commit has none.
pub(super) async fn put_parts(
    client: &TableClient,
    whole: &[u8],
    nonce: Nonce,
    row: Option<&RawKey>,
) -> Result<OverflowRef, RequestError> {
    let mut parts = 0;
    for part in whole.chunks(MAX_ITEM) {
        let mut item = overflow_key(nonce, parts);
        item.insert(BODY.into(), bytes(part));
        item.insert(GC_AT.into(), number(expires_after(TTL)));
        if let Some(row) = row {
            item.insert(ROW.into(), bytes(row));
        }
        // A failed condition is fine: only a copy of this request can have the same nonce.
        client.put(item, Condition::is_new()).await?;
        parts += 1;
    }
    Ok(OverflowRef { nonce, parts })
}

/// When an item of this age may be deleted.
pub(super) fn expires_after(period: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + period).as_secs()
}

/// Takes the expiry from the parts of a row. Parts that are gone stay gone.
pub(super) async fn keep_parts(
    client: &TableClient,
    overflow: OverflowRef,
) -> Result<(), RequestError> {
    for part in 0..overflow.parts {
        let exists = Condition {
            text: "attribute_exists(#p)",
            names: vec![("#p", PK), ("#g", GC_AT)],
            values: Vec::new(),
        };
        client.update(overflow_key(overflow.nonce, part), "REMOVE #g", exists).await?;
    }
    Ok(())
}

/// Lets the parts of a row expire that no segment refers to. Earlier releases let rows with equal values share their parts, and
/// did not say whose they are; such parts stay.
pub(super) async fn release_parts(
    client: &TableClient,
    row: &RawKey,
    overflow: OverflowRef,
) -> Result<(), RequestError> {
    for part in 0..overflow.parts {
        let is_own = Condition {
            text: "#r = :row",
            names: vec![("#r", ROW), ("#g", GC_AT)],
            values: vec![(":row", bytes(row)), (":at", number(expires_after(RELEASED_TTL)))],
        };
        client.update(overflow_key(overflow.nonce, part), "SET #g = :at", is_own).await?;
    }
    Ok(())
}

// === impl Log ===

impl Log {
    pub(super) async fn value(&self, value: &StoredValue) -> Result<Arc<[u8]>, StoreError> {
        match value {
            StoredValue::Inline(bytes) => Ok(Arc::clone(bytes)),
            StoredValue::Overflow(overflow) => Ok(self.fetch(*overflow).await?.into()),
        }
    }

    /// Reads a large value from its parts.
    async fn fetch(&self, overflow: OverflowRef) -> Result<Vec<u8>, StoreError> {
        let mut all = Vec::new();
        for part in 0..overflow.parts {
            let item = self.client.get(overflow_key(overflow.nonce, part)).await?;
            let item =
                item.ok_or_else(|| corrupt(NAME, "overflow", "an overflow item is missing"))?;
            all.extend_from_slice(read_part(&item)?);
        }
        Ok(all)
    }
}
