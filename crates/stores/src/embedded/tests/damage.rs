//! A damaged file: every row is as it was, or the damage is said. Never silently different.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use domain::ports::StoreError;
use redb::{ReadableDatabase, ReadableTable};
use store_tests::named;

use crate::embedded::{Embedded, ROWS, corrupt, writer::guarded};

/// All rows, as bytes.
type Picture = BTreeMap<Vec<u8>, Vec<u8>>;

/// What became of a damaged store.
enum Found {
    Refused,
    Corrupt,
    Same,
}

/// A closed store with something of everything in it.
async fn filled(dir: &Path) -> Picture {
    let (store, world) = super::open(dir);
    for n in 0..60 {
        let mut new = world.turnstile(&format!("site-{}", n % 7));
        new.key = named(&new, &format!("key-{n}"));
        let claim = world.open(new).await;
        match n % 4 {
            0 => {
                world.submit(&claim, &format!("task-{n}")).await;
                let fact = world.solved(&format!("task-{n}"));
                world.tell(claim.solve.unwrap(), 1, fact).await;
                world.fetch(&claim).await;
            }
            1 => drop(world.withdraw(&claim).await),
            2 => drop(world.lose_reply(&claim).await),
            _ => {}
        }
        world.pass(1);
    }
    let picture = picture(&store).unwrap();
    drop((store, world));
    picture
}

/// Every row as it is listed, and as it is found by its key.
fn picture(store: &Embedded) -> Result<Picture, StoreError> {
    guarded(|| {
        let failed = |why: redb::StorageError| corrupt("file", why.to_string());
        let transaction = store.shared.database.begin_read().unwrap();
        let rows = transaction.open_table(ROWS).map_err(|why| corrupt("file", why.to_string()))?;
        let mut picture = Picture::new();
        for row in rows.iter().map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            picture.insert(key.value().to_vec(), value.value().to_vec());
        }
        Ok(picture)
    })
}

fn found(store: &Embedded, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    guarded(|| {
        let transaction = store.shared.database.begin_read().unwrap();
        let rows = transaction.open_table(ROWS).map_err(|why| corrupt("file", why.to_string()))?;
        let row = rows.get(key).map_err(|why| corrupt("file", why.to_string()))?;
        Ok(row.map(|row| row.value().to_vec()))
    })
}

/// Opens a copy of the directory whose data file is `bytes`, and compares every row.
fn look(dir: &Path, bytes: &[u8], expected: &Picture) -> Found {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(dir.join("FORMAT"), copy.path().join("FORMAT")).unwrap();
    fs::write(copy.path().join("store.redb"), bytes).unwrap();
    let Ok(store) = Embedded::open(copy.path()) else { return Found::Refused };
    let Ok(seen) = picture(&store) else { return Found::Corrupt };
    let holders = crate::tables::NAMES.iter().find(|(_, name)| *name == "holders").unwrap().0;
    for (key, value) in expected.iter().filter(|(key, _)| key[0] != holders) {
        match found(&store, key) {
            Err(_) => return Found::Corrupt,
            Ok(row) => {
                // A row that differs is caught by its checksum as soon as it is used.
                let caught = row.as_ref().is_some_and(|row| row != value && !is_good(key, row));
                if caught {
                    return Found::Corrupt;
                }
                assert!(row.as_ref() == Some(value), "a row is silently different");
            }
        }
    }
    let more = seen.keys().filter(|key| !expected.contains_key(*key)).count();
    assert_eq!(more, 0, "rows appeared from nowhere");
    Found::Same
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
async fn a_flipped_bit_changes_nothing_or_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let expected = filled(dir.path()).await;
    let good = fs::read(data_file(dir.path())).unwrap();
    let mut chance = fastrand::Rng::with_seed(20_261_115);
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    // Every bit of the first words, which say where everything is; then here and there.
    let mut flips: Vec<(usize, u8)> =
        (0..32).flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    flips.extend((32..320).map(|at| (at, chance.u8(0..8))));
    flips.extend((0..300).map(|_| (chance.usize(0..=used), chance.u8(0..8))));
    let (mut refused, mut corrupt, mut same) = (0, 0, 0);
    for (at, bit) in flips {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << bit;
        match look(dir.path(), &bytes, &expected) {
            Found::Refused => refused += 1,
            Found::Corrupt => corrupt += 1,
            Found::Same => same += 1,
        }
    }
    assert!(refused + corrupt > 0 && same > 0, "{refused} refused, {corrupt} corrupt, {same} same");
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let expected = filled(dir.path()).await;
    let good = fs::read(data_file(dir.path())).unwrap();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap();
    for length in [0, 1, 100, 320, 4096, good.len() / 3, good.len() / 2, used] {
        let found = look(dir.path(), &good[..length], &expected);
        assert!(matches!(found, Found::Refused), "{length} bytes of {} opened", good.len());
    }
}
