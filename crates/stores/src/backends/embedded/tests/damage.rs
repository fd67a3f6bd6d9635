//! A damaged data file: every row is unchanged, or the damage is reported. No row is silently different.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use domain::ports::StoreError;
use redb::{ReadableDatabase, ReadableTable};
use store_tests::named;

use crate::backends::embedded::{Embedded, ROWS, corrupt, writer::catch_panic};

/// All rows, as bytes.
type RowBytes = BTreeMap<Vec<u8>, Vec<u8>>;

/// The result of opening and reading a damaged store.
enum Outcome {
    Refused,
    Corrupt,
    Same,
}

/// Fills a store with records of every sort, and closes it.
async fn fill(dir: &Path) -> RowBytes {
    let (store, world) = super::open(dir);
    for n in 0..60 {
        let mut new = world.turnstile(&format!("site-{}", n % 7));
        new.key = named(&new, &format!("key-{n}"));
        let claim = world.open(new).await;
        match n % 4 {
            0 => {
                world.submit(&claim, &format!("task-{n}")).await;
                let fact = world.solved(&format!("task-{n}"));
                world.settle(claim.solve.unwrap(), 1, fact).await;
                world.fetch(&claim).await;
            }
            1 => drop(world.withdraw(&claim).await),
            2 => drop(world.lose_reply(&claim).await),
            _ => {}
        }
        world.pass(1);
    }
    let snapshot = snapshot(&store).unwrap();
    drop((store, world));
    snapshot
}

/// Every row, as a scan finds it.
fn snapshot(store: &Embedded) -> Result<RowBytes, StoreError> {
    catch_panic(|| {
        let failed = |why: redb::StorageError| corrupt("file", why.to_string());
        let transaction = store.shared.database.begin_read().unwrap();
        let rows = transaction.open_table(ROWS).map_err(|why| corrupt("file", why.to_string()))?;
        let mut snapshot = RowBytes::new();
        for row in rows.iter().map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            snapshot.insert(key.value().to_vec(), value.value().to_vec());
        }
        Ok(snapshot)
    })
}

fn find(store: &Embedded, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    catch_panic(|| {
        let transaction = store.shared.database.begin_read().unwrap();
        let rows = transaction.open_table(ROWS).map_err(|why| corrupt("file", why.to_string()))?;
        let row = rows.get(key).map_err(|why| corrupt("file", why.to_string()))?;
        Ok(row.map(|row| row.value().to_vec()))
    })
}

/// Opens a copy of the directory whose data file is `bytes`, and compares every row.
fn open_damaged(dir: &Path, bytes: &[u8], expected: &RowBytes) -> Outcome {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(dir.join("FORMAT"), copy.path().join("FORMAT")).unwrap();
    fs::write(copy.path().join("store.redb"), bytes).unwrap();
    let Ok(store) = Embedded::open(copy.path(), None) else { return Outcome::Refused };
    let Ok(seen) = snapshot(&store) else { return Outcome::Corrupt };
    let holders =
        crate::schema::tables::NAMES.iter().find(|(_, name)| *name == "holders").unwrap().0;
    for (key, value) in expected.iter().filter(|(key, _)| key[0] != holders) {
        match find(&store, key) {
            Err(_) => return Outcome::Corrupt,
            Ok(row) => {
                // A row that differs is caught by its checksum as soon as it is used.
                let caught = row.as_ref().is_some_and(|row| row != value && !is_good(key, row));
                if caught {
                    return Outcome::Corrupt;
                }
                assert!(row.as_ref() == Some(value), "a row is silently different");
            }
        }
    }
    let more = seen.keys().filter(|key| !expected.contains_key(*key)).count();
    assert_eq!(more, 0, "rows appeared from nowhere");
    Outcome::Same
}

fn is_good(key: &[u8], row: &[u8]) -> bool {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(row.get(5..).unwrap_or_default());
    row.get(1..5) == Some(&sum.finalize().to_le_bytes())
}

fn data_file(dir: &Path) -> PathBuf {
    dir.join("store.redb")
}

#[tokio::test]
async fn a_flipped_bit_changes_nothing_or_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path()).await;
    let good = fs::read(data_file(dir.path())).unwrap();
    let mut chance = fastrand::Rng::with_seed(20_261_115);
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    // Every bit of the file header, then random bits.
    let mut flips: Vec<(usize, u8)> =
        (0..32).flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    flips.extend((32..320).map(|at| (at, chance.u8(0..8))));
    flips.extend((0..300).map(|_| (chance.usize(0..=used), chance.u8(0..8))));
    let (mut refused, mut corrupt, mut same) = (0, 0, 0);
    for (at, bit) in flips {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << bit;
        match open_damaged(dir.path(), &bytes, &expected) {
            Outcome::Refused => refused += 1,
            Outcome::Corrupt => corrupt += 1,
            Outcome::Same => same += 1,
        }
    }
    assert!(refused + corrupt > 0 && same > 0, "{refused} refused, {corrupt} corrupt, {same} same");
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path()).await;
    let good = fs::read(data_file(dir.path())).unwrap();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    for length in [0, 1, 100, 320, 4096, good.len() / 3, good.len() / 2, used] {
        let found = open_damaged(dir.path(), &good[..length], &expected);
        assert!(matches!(found, Outcome::Refused), "{length} bytes of {} opened", good.len());
    }
}
