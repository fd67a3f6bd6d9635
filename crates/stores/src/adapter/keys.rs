//! The encryption keys of a store. Each key that seals rows is registered in the store, so that a gateway with other keys, or
//! with none, is refused when it starts and not when it meets the first row.

use crate::{
    Finding, OpenError, Result,
    schema::{
        codec::{key_bytes, read_key, sealed_with},
        keys::{Key, Text},
        seal::{KeyId, Keyring},
        tables::{Callbacks, Challenges, Claims, Memos, Pools, Stock, Table},
    },
    tx::{KeyRange, Order, ReadTx, Stored, TypedRead, TypedWrite, WriteTx},
};

use super::StoreAdapter;

/// The names of the memos that register keys begin with this; the id of the key follows.
pub(crate) const REGISTERED_KEYS: &str = "encryption/";
/// More keys than ever seal the rows of one store.
const MOST_KEYS: usize = 100;
/// How many rows one transaction reads or seals.
const PAGE: usize = 250;

enum Registration {
    Known,
    /// This gateway is the first with its key.
    New,
    /// Rows are sealed with keys that this gateway does not have. Nothing changed.
    Missing {
        ids: Vec<KeyId>,
        /// Other gateways have this gateway's key, so the missing ones may have been replaced by it.
        is_replaced: bool,
    },
}

/// Which rows a scan looks for.
#[derive(Clone)]
enum Wanted {
    /// Rows that are sealed with another key, or with none although they may hold a secret.
    ToSeal {
        current: KeyId,
        unsealed: bool,
    },
    SealedWith(Vec<KeyId>),
}

/// The rows that a scan found, and where the next one starts.
struct Page<K> {
    found: Vec<K>,
    last: Option<K>,
}

/// Runs a method for each table whose rows may be sealed, and adds up the numbers it returns.
macro_rules! for_each_sealed_table {
    ($self:ident.$method:ident($argument:expr)) => {
        $self.$method::<Claims>($argument).await?
            + $self.$method::<Challenges>($argument).await?
            + $self.$method::<Stock>($argument).await?
            + $self.$method::<Callbacks>($argument).await?
            + $self.$method::<Pools>($argument).await?
    };
}

impl StoreAdapter {
    /// Registers the gateway's key, and seals the rows that should be sealed with it and are not. A gateway that lacks a key
    /// is refused.
    pub(crate) async fn check_keys(
        &self,
        keys: Option<&'static Keyring>,
    ) -> Result<Option<Finding>, OpenError> {
        let mut registration = self.register_key(keys).await?;
        if let Registration::Missing { ids, is_replaced: true } = &registration
            && self.count_sealed_with(ids).await? == 0
        {
            self.forget_keys(ids.clone()).await?;
            registration = self.register_key(keys).await?;
        }
        if let Registration::Missing { ids, .. } = registration {
            let ids = ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ");
            let given = keys.map_or_else(|| "is not set".to_owned(), |keys| format!("has {keys}"));
            return Err(OpenError::Key { ids, given });
        }
        let Some(keys) = keys else { return Ok(None) };
        let unsealed = matches!(registration, Registration::New);
        let sealed = if unsealed || keys.old().is_some() {
            self.seal_rows(Wanted::ToSeal { current: keys.current(), unsealed }).await?
        } else {
            0
        };
        Ok(Some(finding(keys, sealed)))
    }

    async fn register_key(&self, keys: Option<&'static Keyring>) -> Result<Registration> {
        self.decide(move |tx| register(tx, keys)).await
    }

    async fn forget_keys(&self, ids: Vec<KeyId>) -> Result<()> {
        self.decide(move |tx| {
            ids.iter().try_for_each(|id| tx.take::<Memos>(&memo_of(*id)).map(drop))
        })
        .await
    }

    async fn count_sealed_with(&self, ids: &[KeyId]) -> Result<usize> {
        let wanted = Wanted::SealedWith(ids.to_vec());
        Ok(for_each_sealed_table!(self.count_rows(&wanted)))
    }

    async fn seal_rows(&self, wanted: Wanted) -> Result<usize> {
        Ok(for_each_sealed_table!(self.seal_table(&wanted)))
    }

    async fn count_rows<T: Table>(&self, wanted: &Wanted) -> Result<usize> {
        let (mut count, mut last) = (0, None);
        loop {
            let page = self.next_page::<T>(wanted, last).await?;
            count += page.found.len();
            last = page.last;
            if last.is_none() {
                return Ok(count);
            }
        }
    }

    async fn seal_table<T: Table>(&self, wanted: &Wanted) -> Result<usize> {
        let (mut count, mut last) = (0, None);
        loop {
            let page = self.next_page::<T>(wanted, last).await?;
            let found = page.found;
            if !found.is_empty() {
                count += self.decide(move |tx| write_again::<T>(tx, &found)).await?;
            }
            last = page.last;
            if last.is_none() {
                return Ok(count);
            }
        }
    }

    async fn next_page<T: Table>(
        &self,
        wanted: &Wanted,
        after: Option<T::Key>,
    ) -> Result<Page<T::Key>> {
        let wanted = wanted.clone();
        self.scan(move |tx| find_rows::<T>(tx, &wanted, after.as_ref())).await
    }
}

fn finding(keys: &Keyring, sealed: usize) -> Finding {
    let current = keys.current();
    let sealed = if sealed == 0 {
        String::new()
    } else {
        format!("; {sealed} older rows were sealed with it now")
    };
    let old = keys.old().map_or_else(String::new, |old| {
        format!("; once every gateway has started like this, key {old} can be removed")
    });
    Finding::good(format!(
        "tokens, parameters and callback addresses are sealed with key {current}{sealed}{old}"
    ))
}

fn register(tx: &mut dyn WriteTx, keys: Option<&Keyring>) -> Result<Registration> {
    let names = Text::new(REGISTERED_KEYS)..=Text::after(REGISTERED_KEYS);
    let memos = tx.scan::<Memos>(names, Order::Rising, MOST_KEYS)?;
    let id_of = |(name, _): &(Text, _)| name.as_str().strip_prefix(REGISTERED_KEYS)?.parse().ok();
    let registered: Vec<KeyId> = memos.iter().filter_map(id_of).collect();
    let is_registered = keys.is_some_and(|keys| registered.contains(&keys.current()));
    let is_missing = |id: &KeyId| keys.is_none_or(|keys| !keys.has(*id));
    let ids: Vec<KeyId> = registered.into_iter().filter(is_missing).collect();
    if !ids.is_empty() {
        return Ok(Registration::Missing { ids, is_replaced: is_registered });
    }
    match keys.filter(|_| !is_registered) {
        Some(keys) => {
            tx.put::<Memos>(memo_of(keys.current()), Vec::new())?;
            Ok(Registration::New)
        }
        None => Ok(Registration::Known),
    }
}

fn memo_of(id: KeyId) -> Text {
    Text::new(&format!("{REGISTERED_KEYS}{id}"))
}

/// Reads the next rows after `after`, and picks the wanted ones by their encoding.
fn find_rows<T: Table>(
    tx: &dyn ReadTx,
    wanted: &Wanted,
    after: Option<&T::Key>,
) -> Result<Page<T::Key>> {
    let (from, end) = (after.cloned().unwrap_or_else(T::Key::least), T::Key::most());
    let least = key_bytes::<T>(&from);
    let range = KeyRange {
        least: least.clone(),
        most: key_bytes::<T>(&end),
        order: Order::Rising,
        limit: PAGE,
    };
    let (mut found, mut end_of_page, mut count) = (Vec::new(), None, 0);
    tx.find_range(&range, &mut |bytes, stored| {
        count += 1;
        let key = read_key::<T>(tx.backend(), bytes)?;
        if wanted.includes(stored) && (after.is_none() || bytes != least) {
            found.push(key.clone());
        }
        end_of_page = Some(key);
        Ok(())
    })?;
    Ok(Page { found, last: end_of_page.filter(|_| count == PAGE) })
}

fn write_again<T: Table>(tx: &mut dyn WriteTx, rows: &[T::Key]) -> Result<usize> {
    let mut count = 0;
    for key in rows {
        if let Some(value) = tx.get::<T>(key)?.filter(T::holds_secret) {
            tx.put::<T>(key.clone(), value)?;
            count += 1;
        }
    }
    Ok(count)
}

// === impl Wanted ===

impl Wanted {
    fn includes(&self, stored: Stored<'_>) -> bool {
        let sealed = match stored {
            Stored::Encoded(bytes) => sealed_with(bytes),
            Stored::Plain | Stored::Value(_) => None,
        };
        match (self, sealed) {
            (Self::ToSeal { current, .. }, Some(id)) => id != *current,
            (Self::ToSeal { unsealed, .. }, None) => *unsealed,
            (Self::SealedWith(ids), Some(id)) => ids.contains(&id),
            (Self::SealedWith(_), None) => false,
        }
    }
}
