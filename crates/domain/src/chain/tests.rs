use super::*;
use crate::{
    actor::{Actor, ActorRole},
    admin_action::{AdminAction, Change, ConfigChange, ConfigPart},
    challenge::Kind,
    id::{ClaimId, Project, SolveId, TaskId, WorkerName},
    ledger::Event,
    money::Money,
    time::Timestamp,
};

fn entry(seq: u64, event: Event) -> Entry {
    Entry {
        seq,
        at: Timestamp::from_millis(1_763_337_600_000 + seq),
        claim: Some(ClaimId::from_number(100_000_000_000_007)),
        solve: Some(SolveId::from_number(200_000_000_000_007)),
        worker: WorkerName::new("ann").unwrap(),
        project: Project::new("shop").unwrap(),
        kind: Some(Kind::Turnstile),
        event,
    }
}

fn reload() -> Event {
    let change = ConfigChange {
        part: ConfigPart::Site,
        name: "*.example.com".into(),
        change: Change::Added,
    };
    let by = Actor {
        name: WorkerName::new("root").unwrap(),
        role: ActorRole::Admin,
        address: Some([192, 0, 2, 7].into()),
    };
    Event::Administered { by, action: AdminAction::Reloaded { changes: vec![change], more: 0 } }
}

/// A chain of entries of several sorts.
fn chain() -> Vec<ChainedEntry> {
    let task = || TaskId::new("71200").unwrap();
    let events = [
        Event::Opened { basis: "own shop".into() },
        Event::Accepted { attempt: 1, task: task() },
        Event::Ready { attempt: 1, task: task(), cost: Some(Money::from_micros(1_000)) },
        Event::Replayed,
        reload(),
    ];
    let mut prev = EntryHash::START;
    let numbered = (1..).zip(events);
    numbered
        .map(|(seq, event)| {
            let entry = entry(seq, event);
            let link = Link { prev, hash: EntryHash::of(prev, &entry) };
            prev = link.hash;
            ChainedEntry { entry, link: Some(link) }
        })
        .collect()
}

fn verify(entries: &[ChainedEntry]) -> Result<ChainReport, Break> {
    let mut verifier = Verifier::default();
    for entry in entries {
        verifier.check(&LedgerItem::Entry(entry.clone()))?;
    }
    Ok(verifier.report())
}

fn flaw(entries: &[ChainedEntry]) -> (u64, Flaw) {
    let found = verify(entries).unwrap_err();
    (found.seq, found.flaw)
}

/// What is hashed is part of the format: another text would break every chain that exists.
#[test]
fn the_canonical_form_and_its_hash_never_change() {
    let chain = chain();
    let text = |n: usize| String::from_utf8(canonical(&chain[n].entry)).unwrap();
    assert_eq!(
        text(0),
        r#"{"seq":1,"at":"2025-11-17T00:00:00.001Z","claim":"100000000000007","solve":"s200000000000007","worker":"ann","project":"shop","kind":"turnstile","event":{"opened":{"basis":"own shop"}}}"#
    );
    assert_eq!(
        text(4),
        r#"{"seq":5,"at":"2025-11-17T00:00:00.005Z","claim":"100000000000007","solve":"s200000000000007","worker":"ann","project":"shop","kind":"turnstile","event":{"administered":{"by":{"name":"root","role":"admin","address":"192.0.2.7"},"action":{"reloaded":{"changes":[{"part":"site","name":"*.example.com","change":"added"}],"more":0}}}}}"#
    );
    assert_eq!(
        chain[4].link.unwrap().hash.to_string(),
        "506a92277a0379738f4a845a5fc00f2a50e17af483d72a622acb543832600b86"
    );
}

#[test]
fn a_line_of_an_export_has_the_entry_as_it_was_hashed() {
    for chained in chain() {
        let link = chained.link.unwrap();
        let item = LedgerItem::Entry(chained.clone());
        let text = serde_json::to_string(&item).unwrap();
        let (head, entry) = text.split_once(r#","entry":"#).unwrap();
        let entry = entry.strip_suffix('}').unwrap();
        assert_eq!(EntryHash::over(link.prev, entry.as_bytes()), link.hash);
        assert_eq!(head, format!(r#"{{"prev":"{}","hash":"{}""#, link.prev, link.hash));
        assert_eq!(serde_json::from_str::<LedgerItem>(&text).unwrap(), item);
    }
    let torn = LedgerItem::Unreadable { seq: 7, why: "torn".into() };
    let text = serde_json::to_string(&torn).unwrap();
    assert_eq!(text, r#"{"unreadable":{"seq":7,"why":"torn"}}"#);
    assert_eq!(serde_json::from_str::<LedgerItem>(&text).unwrap(), torn);
}

#[test]
fn an_unchanged_chain_is_verified_from_any_entry_on() {
    let chain = chain();
    let report = verify(&chain).unwrap();
    assert_eq!((report.first, report.last, report.entries), (Some(1), Some(5), 5));
    assert_eq!(report.anchor, Some(EntryHash::START));
    let later = verify(&chain[2..]).unwrap();
    assert_eq!(later.anchor, chain[1].link.map(|link| link.hash));
    assert_eq!(later.head, report.head);
}

#[test]
fn a_changed_removed_or_moved_entry_is_named() {
    let chain = chain();
    for n in 0..chain.len() {
        let mut changed = chain.clone();
        changed[n].entry.project = Project::new("shoq").unwrap();
        assert_eq!(flaw(&changed), (changed[n].entry.seq, Flaw::Changed));
    }
    for n in 1..chain.len() - 1 {
        let mut shorter = chain.clone();
        shorter.remove(n);
        assert_eq!(flaw(&shorter), (shorter[n].entry.seq, Flaw::Unlinked));
        let mut stripped = chain.clone();
        stripped[n].link = None;
        assert_eq!(flaw(&stripped), (stripped[n].entry.seq, Flaw::Unhashed));
    }
    let mut swapped = chain.clone();
    swapped.swap(1, 2);
    assert_eq!(flaw(&swapped), (3, Flaw::Unlinked));
    swapped.remove(0);
    assert_eq!(flaw(&swapped), (4, Flaw::Misnumbered(2)));
}

#[test]
fn an_entry_whose_number_was_changed_is_named_by_its_place() {
    let mut chain = chain();
    chain[2].entry.seq = 1;
    assert_eq!(flaw(&chain), (3, Flaw::Misnumbered(1)));
    chain[2].entry.seq = 7;
    let found = verify(&chain).unwrap_err();
    assert_eq!((found.first, found.seq, found.flaw), (3, 7, Flaw::Changed));
}

/// Somebody who changes an entry and computes its hash again breaks the link of the next entry.
#[test]
fn a_hash_that_was_computed_again_breaks_the_next_link() {
    let mut chain = chain();
    chain[1].entry.project = Project::new("shoq").unwrap();
    let prev = chain[1].link.unwrap().prev;
    chain[1].link = Some(Link { prev, hash: EntryHash::of(prev, &chain[1].entry) });
    assert_eq!(flaw(&chain), (3, Flaw::Unlinked));
}

#[test]
fn a_chain_begins_after_the_entries_of_earlier_releases() {
    let mut old: Vec<ChainedEntry> = chain();
    old[0].link = None;
    assert_eq!(flaw(&old), (2, Flaw::Unlinked), "the chain after it must begin at its start");
    let mut prev = EntryHash::START;
    for chained in &mut old[1..] {
        let link = Link { prev, hash: EntryHash::of(prev, &chained.entry) };
        prev = link.hash;
        chained.link = Some(link);
    }
    let report = verify(&old).unwrap();
    assert_eq!((report.entries, report.unhashed), (5, 1));
}

#[test]
fn what_cannot_be_read_is_named_with_its_neighbours() {
    let mut verifier = Verifier::default();
    verifier.check(&LedgerItem::Entry(chain()[0].clone())).unwrap();
    let found = verifier.check(&LedgerItem::Unreadable { seq: 3, why: "torn".into() });
    assert_eq!(found.unwrap_err().to_string(), "entries 2 to 3: it cannot be read: torn");
}
