//! The embedded store on disk: kill -9, a second process, unknown formats, file permissions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use domain::{claim::ClaimState, id::ClaimId};
use store_tests::{World, check};
use stores::{Backend, LocalNotifier, OpenError, StoreAdapter};
use tokio::task::JoinSet;

fn open(dir: &Path) -> (Arc<StoreAdapter>, World) {
    let store = Arc::new(StoreAdapter::embedded(dir).unwrap());
    let backend = Backend {
        store: store.clone(),
        records: store.clone(),
        archive: store.clone(),
        notifier: Arc::new(LocalNotifier::new()),
        name: "embedded",
        findings: Vec::new(),
        timing: Arc::default(),
        adapter: store.clone(),
    };
    (store, World::new(&backend))
}

// === the child process ===

const CHILD_DIR: &str = "STORES_TEST_CHILD_DIR";
/// The number of acknowledged writes a child reports before it is killed.
const ANSWERS: usize = 10;
const CHILD_ROUND: &str = "STORES_TEST_CHILD_ROUND";

/// As a child process this test writes until it is killed and prints every acknowledged write; on its own it writes a
/// little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_reports_only_what_is_durable() {
    let inherited = std::env::var_os(CHILD_DIR);
    // Not as a child, because a killed process cannot remove its directory.
    let own = inherited.is_none().then(|| tempfile::tempdir().unwrap());
    let dir =
        own.as_ref().map(tempfile::TempDir::path).or(inherited.as_deref().map(Path::new)).unwrap();
    let (_store, world) = open(dir);
    let round = std::env::var_os(CHILD_ROUND)
        .and_then(|round| round.to_str().and_then(|round| round.parse().ok()))
        .unwrap_or(0);
    let (most, reports) = if inherited.is_some() { (100_000, true) } else { (20, false) };
    let mut callers = JoinSet::new();
    for caller in 0..4 {
        callers.spawn(write(world.clone(), round * 10 + caller, most, reports));
    }
    callers.join_all().await;
    check(world.records.as_ref()).await;
}

async fn write(world: World, caller: u64, most: u64, reports: bool) {
    let say = |claim, what| {
        if reports {
            say(claim, what);
        }
    };
    for n in 0..most {
        let number = 100_000_000_000_000 + caller * 1_000_000 + n;
        let mut new = world.turnstile(&format!("site-{caller}-{n}"));
        (new.id, new.solve) =
            (ClaimId::from_number(number), domain::id::SolveId::from_number(number));
        let claim = world.open(new).await;
        say(claim.id, "waiting");
        if n % 3 == 0 {
            assert_eq!(world.withdraw(&claim).await.state, ClaimState::Withdrawn);
            say(claim.id, "withdrawn");
        }
    }
}

fn say(claim: ClaimId, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nkept {claim} {what}").unwrap();
    out.flush().unwrap();
}

fn child(dir: &Path, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durability::a_writer_reports_only_what_is_durable", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_ROUND, OsStr::new(&round.to_string()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a child write, kills it, and returns the writes it reported.
fn killed_after(dir: &Path, round: u64, wait: Duration) -> Vec<(ClaimId, String)> {
    let mut child = child(dir, round);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    let hear = |line: String| {
        let mut words = line.strip_prefix("kept ")?.split(' ');
        Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
    };
    // Waits for the first acknowledged writes, so that every round has something to lose, also on a busy machine.
    while said.len() < ANSWERS {
        said.extend(hear(lines.next().expect("the child writes").unwrap()));
    }
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    said.extend(lines.map_while(Result::ok).filter_map(hear));
    said
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut chance = fastrand::Rng::with_seed(1115);
    let mut kept: BTreeMap<ClaimId, String> = BTreeMap::new();
    for round in 0..12 {
        let wait = Duration::from_millis(chance.u64(0..60));
        kept.extend(killed_after(dir.path(), round, wait));
        let (_store, world) = open(dir.path());
        for (id, state) in &kept {
            let claim = world.store.find_claim(*id).await.unwrap().expect("it was answered");
            let waiting = claim.state == ClaimState::Waiting;
            assert!(state == "waiting" || !waiting, "{id} was {state} and waits again");
        }
        check(world.records.as_ref()).await;
    }
    assert!(kept.len() > 100, "only {} were kept", kept.len());
}

#[tokio::test]
async fn after_kill_9_every_open_solve_is_there_to_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    let kept = killed_after(dir.path(), 0, Duration::from_millis(50));
    let states: BTreeMap<ClaimId, String> = kept.into_iter().collect();
    let (_store, world) = open(dir.path());
    let holder = world.holder(1).await;
    world.pass(10);
    let leases = world.lease_some(holder, usize::MAX).await;
    let taken: Vec<ClaimId> = leases.into_iter().flat_map(|lease| lease.solve.claims).collect();
    for id in states.keys() {
        let claim = world.store.find_claim(*id).await.unwrap().unwrap();
        assert_eq!(claim.state == ClaimState::Waiting, taken.contains(id), "{id}");
    }
}

// === the directory ===

#[test]
fn a_second_process_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let _first = StoreAdapter::embedded(dir.path()).unwrap();
    let second = StoreAdapter::embedded(dir.path()).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }));
    let other = child(dir.path(), 0).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr).into_owned()
        + &String::from_utf8_lossy(&other.stdout);
    assert!(!other.status.success());
    assert!(said.contains("InUse") && said.contains(dir.path().to_str().unwrap()), "{said}");
    let message = second.to_string();
    assert!(message.contains(dir.path().to_str().unwrap()) && message.contains("stop that one"));
}

#[test]
fn only_the_owner_can_read_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("deep/er/data");
    drop(StoreAdapter::embedded(&data).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for file in fs::read_dir(&data).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    // A file that was made readable to all is restricted again.
    let file = data.join("store.redb");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    drop(StoreAdapter::embedded(&data).unwrap());
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn an_unknown_format_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    drop(StoreAdapter::embedded(dir.path()).unwrap());
    let before = fs::read(dir.path().join("store.redb")).unwrap();
    for line in ["solvegate embedded store, format 99\n", "something else\n", ""] {
        fs::write(dir.path().join("FORMAT"), line).unwrap();
        let refused = StoreAdapter::embedded(dir.path()).unwrap_err();
        assert!(matches!(refused, OpenError::Format { .. }), "{refused}");
        assert!(refused.to_string().contains("this release reads format 2"));
        assert_eq!(fs::read(dir.path().join("store.redb")).unwrap(), before);
    }
}

#[test]
fn a_lost_data_file_is_not_taken_for_a_new_store() {
    let dir = tempfile::tempdir().unwrap();
    drop(StoreAdapter::embedded(dir.path()).unwrap());
    fs::remove_file(dir.path().join("store.redb")).unwrap();
    let refused = StoreAdapter::embedded(dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = StoreAdapter::embedded(file.path().join("data")).unwrap_err();
    assert!(matches!(refused, OpenError::Directory { .. }));
    assert!(refused.to_string().contains(file.path().to_str().unwrap()));
}

#[test]
fn urls_name_stores_and_odd_ones_are_refused_without_their_secrets() {
    assert_eq!(stores::open("memory:").unwrap().name, "memory");
    assert!(matches!(stores::open("embedded:"), Err(OpenError::NoDirectory)));
    for odd in ["redis://user:canary@host", "", "memory", "memory:x", "postgres://u:canary@h/d"] {
        let refused = stores::open(odd).unwrap_err().to_string();
        assert!(refused.contains("embedded:DIR") && !refused.contains("canary"), "{refused}");
    }
}

// === group commit ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_share_fsyncs() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let before = (store.counters().decisions, store.counters().commits, store.counters().fsyncs);
    let mut callers = JoinSet::new();
    for n in 0..64 {
        let world = world.clone();
        callers.spawn(async move {
            for _ in 0..20 {
                world.open(world.turnstile(&format!("site-{n}"))).await;
            }
        });
    }
    callers.join_all().await;
    let decisions = store.counters().decisions - before.0;
    let (commits, fsyncs) =
        (store.counters().commits - before.1, store.counters().fsyncs - before.2);
    assert_eq!(decisions, 64 * 20);
    assert!(commits < decisions / 4, "{commits} commits for {decisions} decisions");
    assert!(fsyncs <= commits + 2, "{fsyncs} fsyncs for {commits} commits");
}

#[tokio::test]
async fn a_decision_that_changes_nothing_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let holder = world.holder(1).await;
    let before = (store.counters().commits, store.counters().fsyncs);
    for _ in 0..10 {
        assert!(world.lease(holder).await.is_empty());
        world.sweep().await;
    }
    assert_eq!((store.counters().commits, store.counters().fsyncs), before);
}
