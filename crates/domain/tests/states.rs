//! Documents against the code. docs/states.md: every move is tried in every stage, and the matrices and diagrams must say
//! exactly what happened; a move missing on either side fails as well.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    challenge::Kind,
    claim::{ClaimState, Source},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    invariant::Checker,
    lease::Fence,
    ledger::{Entry, Event},
    retry::Verdict,
    secret::Secret,
    solve::{
        Decision, Fact, FactEffect, MOST_RECOVERIES, Origin, Policy, Refused, Solve, Solved, Stage,
    },
    time::Timestamp,
    token::{Answer, TokenLifetime},
};

const DOCUMENT: &str = include_str!("../../../docs/states.md");
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const HOLDER: HolderId = HolderId::from_number(1);
const OTHER: HolderId = HolderId::from_number(3);
const CLAIM: ClaimId = ClaimId::from_number(123_456_789_012_345);

/// What a move does to a solve: the word in the matrix.
type MoveFn = fn(&mut Solve) -> String;

/// One row of the matrix: its name and the move itself.
type Move = (&'static str, MoveFn);

const MOVES: [(&str, &[Move]); 4] =
    [("decision", DECISIONS), ("fact", FACTS), ("holder", TAKINGS), ("claim", LEAVINGS)];

const DECISIONS: &[Move] = &[
    ("intend", |s| decide(s, &intend())),
    ("authorise", |s| decide(waited_for(s), &authorise())),
    ("authorise, nobody waits", |s| decide(deserted(s), &authorise())),
    ("authorise, a second time", |s| decide(authorised(s), &authorise())),
    ("write off", |s| decide(s, &Decision::WriteOff)),
    ("lapse", |s| decide(s, &lapse(s, 1))),
    ("lapse, a claim with a later deadline is waiting for this solve", |s| decide(s, &lapse(s, 0))),
    ("forbid", |s| decide(s, &forbid())),
    ("intend, old fence", |s| decide_late(s, &intend())),
    ("authorise, old fence", |s| decide_late(waited_for(s), &authorise())),
    ("write off, old fence", |s| decide_late(s, &Decision::WriteOff)),
    ("lapse, old fence", |s| decide_late(s, &lapse(s, 1))),
    ("forbid, old fence", |s| decide_late(s, &forbid())),
];

const FACTS: &[Move] = &[
    ("accepted, a new task", |s| fact(s, &accepted("T2"))),
    ("accepted, a new task, nobody waits", |s| fact(deserted(s), &accepted("T2"))),
    ("accepted, its task", |s| fact(s, &accepted("T1"))),
    ("accepted, an earlier attempt", |s| fact_late(s, &accepted("T0"))),
    ("not accepted, again", |s| fact(s, &not_accepted(again()))),
    ("not accepted, give up", |s| fact(s, &not_accepted(Verdict::GiveUp))),
    ("not accepted, an earlier attempt", |s| fact_late(s, &not_accepted(again()))),
    ("withheld, its nonce", |s| fact(s, &withheld(9))),
    ("withheld, another nonce", |s| fact(s, &withheld(7))),
    ("reply lost", |s| fact(s, &reply_lost())),
    ("reply lost, an earlier attempt", |s| fact_late(s, &reply_lost())),
    ("task over, again", |s| fact(s, &task_over(again()))),
    ("task over, give up", |s| fact(s, &task_over(Verdict::GiveUp))),
    ("task over, an earlier attempt", |s| fact_late(s, &task_over(again()))),
    ("solved, its task", |s| fact(s, &solved("T1"))),
    ("solved, another task", |s| fact(s, &solved("T0"))),
];

const TAKINGS: &[Move] = &[
    ("taken, free", |s| take(let_go(s))),
    ("taken, the holder is dead", take),
    ("taken, dead once too often", |s| take(recovered_often(s))),
];

const LEAVINGS: &[Move] = &[("the last claim leaves", |s| abandon(deserted(s)))];

/// The one arrow that is no move of the solve itself: a claim joins an overdue solve (stores/src/decisions/admit.rs).
const BY_THE_STORE: [(Stage, Stage); 1] = [(Stage::Overdue, Stage::Submitted)];

/// The row every decision is at home in. A new decision stops the build here and asks for its rows.
fn home_of_decision(decision: &Decision) -> &'static str {
    match decision {
        Decision::Intend { .. } => "intend",
        Decision::Authorise { .. } => "authorise",
        Decision::WriteOff => "write off",
        Decision::Lapse { .. } => "lapse",
        Decision::Forbid { .. } => "forbid",
    }
}

/// The row every fact is at home in. A new fact stops the build here and asks for its rows.
fn home_of_fact(fact: &Fact) -> &'static str {
    match fact {
        Fact::NotAccepted { .. } => "not accepted, again",
        Fact::Withheld { .. } => "withheld, its nonce",
        Fact::Accepted { .. } => "accepted, a new task",
        Fact::ReplyLost { .. } => "reply lost",
        Fact::TaskOver { .. } => "task over, again",
        Fact::Solved(_) => "solved, its task",
    }
}

// === the solve ===

#[test]
fn every_move_does_in_every_stage_what_the_matrix_says() {
    let written = matrix("| move | sort |");
    let tried = rows_by_trial();
    let stages: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
    assert_eq!(written.columns[1..], stages, "the columns are the stages, in order");
    for (name, cells) in &tried {
        assert_eq!(written.rows.get(name), Some(cells), "docs/states.md differs at {name:?}");
    }
    for name in written.rows.keys() {
        assert!(tried.contains_key(name), "docs/states.md has a move nobody tries: {name:?}");
    }
}

#[test]
fn every_decision_and_every_fact_has_its_row() {
    let decisions = [intend(), authorise(), Decision::WriteOff, forbid()];
    let [taken, refused, kept] = [accepted("T2"), not_accepted(again()), withheld(9)];
    let facts = [taken, refused, kept, reply_lost(), task_over(again()), solved("T1")];
    let homes = decisions.iter().map(home_of_decision).chain(facts.iter().map(home_of_fact));
    let homes: BTreeSet<&str> = homes.collect();
    assert_eq!(homes.len(), decisions.len() + facts.len());
    for home in homes {
        assert!(rows_by_trial().contains_key(home), "{home}");
    }
}

#[test]
fn the_diagram_has_an_arrow_for_every_move_and_no_other() {
    let mut moved = BTreeSet::new();
    for cells in rows_by_trial().into_values() {
        let results = Stage::ALL.iter().zip(cells.into_iter().skip(1));
        moved.extend(results.map(|(from, to)| (from.name().to_owned(), to)));
    }
    moved.retain(|(_, to)| Stage::ALL.iter().any(|stage| stage.name() == to));
    moved.extend(BY_THE_STORE.map(|(from, to)| (from.name().to_owned(), to.name().to_owned())));
    let mut drawn = arrows("## Solve");
    drawn.retain(|(from, _)| from != "[*]");
    assert_eq!(drawn, moved);
}

#[test]
fn every_stage_is_explained() {
    for stage in Stage::ALL {
        let row = format!("\n| {} | ", stage.name());
        assert!(DOCUMENT.contains(&row), "no line about {}", stage.name());
    }
}

fn rows_by_trial() -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for (sort, moves) in MOVES {
        for (name, trial) in moves {
            let results = Stage::ALL.iter().map(|stage| trial(&mut at(*stage)));
            let cells = std::iter::once(sort.to_owned()).chain(results).collect();
            rows.insert((*name).to_owned(), cells);
        }
    }
    rows
}

// === the claim ===

#[test]
fn the_ledger_checker_allows_the_claim_moves_of_the_matrix_and_no_other() {
    let written = matrix("| claim |");
    assert_eq!(written.columns, NEXT.map(ClaimState::name));
    assert_eq!(written.rows, claim_rows());
}

#[test]
fn the_claim_diagram_has_the_arrows_of_the_matrix() {
    let mut allowed = BTreeSet::new();
    for (from, cells) in claim_rows() {
        let open = NEXT.iter().zip(cells).filter(|(_, cell)| cell != "no");
        allowed.extend(open.map(|(to, _)| (from.clone(), to.name().to_owned())));
    }
    let mut drawn = arrows("## Claim");
    drawn.retain(|(from, _)| from != "[*]");
    assert_eq!(drawn, allowed);
}

const NEXT: [ClaimState; 5] = [
    ClaimState::Waiting,
    ClaimState::Served,
    ClaimState::Failed,
    ClaimState::Withdrawn,
    ClaimState::Lapsed,
];

fn claim_rows() -> BTreeMap<String, Vec<String>> {
    let cells = |from| NEXT.map(|to| claim_move(from, to).to_owned()).to_vec();
    NEXT.into_iter().map(|from| (from.name().to_owned(), cells(from))).collect()
}

/// Whether the checker accepts a ledger in which a claim goes from one state to the other.
fn claim_move(from: ClaimState, to: ClaimState) -> &'static str {
    if to == ClaimState::Waiting {
        let reopened = [reach(from), vec![Event::Reopened { generation: 2 }]].concat();
        return if holds(&reopened) { "reopened" } else { "no" };
    }
    let unfetched = holds(&[reach(from), reach(to)].concat());
    let fetched = holds(&[reach(from), delivery(from), reach(to)].concat());
    match (unfetched, fetched) {
        (true, true) => "yes",
        (true, false) => "unfetched",
        (false, _) => "no",
    }
}

fn reach(state: ClaimState) -> Vec<Event> {
    match state {
        ClaimState::Waiting => vec![Event::Opened { basis: "own shop".into() }],
        ClaimState::Served => vec![Event::Allotted {
            paid_by: SolveId::from_number(1),
            task: task("T1"),
            source: Source::Upstream,
            usable_until: Timestamp::from_millis(u64::MAX),
        }],
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => {
            vec![Event::Ended { state, code: None }]
        }
    }
}

fn delivery(from: ClaimState) -> Vec<Event> {
    let usable_until = Timestamp::from_millis(u64::MAX);
    let served = from == ClaimState::Served;
    served.then(|| Event::Delivered { task: task("T1"), usable_until }).into_iter().collect()
}

fn holds(events: &[Event]) -> bool {
    let entry = |(seq, event): (u64, &Event)| Entry {
        seq,
        at: NOW,
        claim: Some(CLAIM),
        solve: None,
        worker: WorkerName::new("shop").expect("a good name"),
        project: Project::new("shop").expect("a good name"),
        kind: Some(Kind::Turnstile),
        event: event.clone(),
    };
    let entries: Vec<Entry> = (1..).zip(events).map(entry).collect();
    Checker::check(&entries).is_empty()
}

// === a solve in each stage, reached by its own moves ===

fn at(stage: Stage) -> Solve {
    let mut solve = opened();
    solve.take(HOLDER, NOW, NOW);
    let walk: &[MoveFn] = match stage {
        Stage::Queued => &[start, accept, |s| fact(s, &task_over(again()))],
        Stage::Intent => &[start],
        Stage::Submitted => &[start, accept],
        Stage::Overdue => &[start, accept, |s| abandon(deserted(s))],
        Stage::Ambiguous => &[start, |s| fact(s, &reply_lost())],
        Stage::Ready => &[start, accept, |s| fact(s, &solved("T1"))],
        Stage::Failed => &[start, accept, |s| fact(s, &task_over(Verdict::GiveUp))],
    };
    for step in walk {
        step(&mut solve);
    }
    assert_eq!(solve.stage, stage, "the walk leads elsewhere");
    solve
}

fn start(solve: &mut Solve) -> String {
    decide(solve, &intend())
}

fn accept(solve: &mut Solve) -> String {
    fact(solve, &accepted("T1"))
}

fn opened() -> Solve {
    Solve {
        id: SolveId::from_number(1),
        origin: Origin::Claim(CLAIM),
        fingerprint: Fingerprint::from_bytes([7; 32]),
        kind: Kind::Turnstile,
        worker: WorkerName::new("shop").expect("a good name"),
        project: Project::new("shop").expect("a good name"),
        claims: vec![CLAIM],
        stage: Stage::Queued,
        fence: Fence::default(),
        holder: None,
        attempt: 0,
        nonce: None,
        task: None,
        opened_at: NOW,
        wanted_until: NOW,
        accepted_at: None,
        due: NOW,
        authorised: 0,
        recoveries: 0,
        failures: Vec::new(),
        polls: 0,
        price: None,
        policy: Policy::default(),
        ended_at: None,
        reservations: domain::budget::Reservations::default(),
    }
}

fn waited_for(solve: &mut Solve) -> &mut Solve {
    solve.claims = vec![CLAIM];
    solve
}

fn deserted(solve: &mut Solve) -> &mut Solve {
    solve.claims.clear();
    solve
}

fn authorised(solve: &mut Solve) -> &mut Solve {
    solve.authorised = 1;
    waited_for(solve)
}

fn let_go(solve: &mut Solve) -> &mut Solve {
    solve.holder = None;
    solve
}

fn recovered_often(solve: &mut Solve) -> &mut Solve {
    solve.recoveries = MOST_RECOVERIES;
    solve
}

// === moves, in the words of the matrix ===

fn decide_late(solve: &mut Solve, decision: &Decision) -> String {
    let old = Fence(solve.fence.0 - 1);
    let before = solve.clone();
    assert_eq!(solve.decide(old, decision, NOW), Err(Refused::LeaseLost));
    assert_eq!(*solve, before, "a refused decision changed something");
    "refused".into()
}

fn decide(solve: &mut Solve, decision: &Decision) -> String {
    let before = solve.clone();
    if solve.decide(solve.fence, decision, NOW).is_ok() {
        return moved(&before, solve);
    }
    assert_eq!(*solve, before, "a refused decision changed something");
    "refused".into()
}

fn fact(solve: &mut Solve, fact: &Fact) -> String {
    apply_fact(solve, solve.attempt, fact)
}

fn fact_late(solve: &mut Solve, fact: &Fact) -> String {
    apply_fact(solve, solve.attempt - 1, fact)
}

fn apply_fact(solve: &mut Solve, attempt: u32, fact: &Fact) -> String {
    let before = solve.clone();
    let word = match solve.apply_fact(attempt, fact, NOW) {
        FactEffect::Moved(_) => return moved(&before, solve),
        FactEffect::Known => "known",
        FactEffect::Orphaned { .. } => "orphan",
    };
    assert_eq!(*solve, before, "a known fact changed something");
    word.into()
}

fn take(solve: &mut Solve) -> String {
    let before = solve.clone();
    solve.take(OTHER, NOW, NOW);
    assert_eq!(solve.fence, before.fence.next(), "a change of holder raises the fence");
    moved(&before, solve)
}

fn abandon(solve: &mut Solve) -> String {
    let before = solve.clone();
    solve.abandon("WITHDRAWN", NOW);
    moved(&before, solve)
}

fn moved(before: &Solve, after: &Solve) -> String {
    if before.stage == after.stage { "same".into() } else { after.stage.name().into() }
}

fn intend() -> Decision {
    Decision::Intend { guard: domain::declarations::Guard::open(), nonce: Nonce::from_number(9) }
}

fn forbid() -> Decision {
    Decision::Forbid { guard: domain::declarations::Guard::open() }
}

fn authorise() -> Decision {
    Decision::Authorise { guard: domain::declarations::Guard::open(), due: NOW }
}

fn lapse(solve: &Solve, later: u64) -> Decision {
    let soonest = Timestamp::from_millis(solve.wanted_until.millis() + later);
    Decision::Lapse { soonest, trouble: None }
}

fn again() -> Verdict {
    Verdict::Again { due: NOW, counted: true }
}

fn task(name: &str) -> TaskId {
    TaskId::new(name).expect("a good name")
}

fn accepted(name: &str) -> Fact {
    Fact::Accepted { task: task(name), sent_at: NOW }
}

fn not_accepted(verdict: Verdict) -> Fact {
    Fact::NotAccepted { code: "ERROR_NO_SLOT_AVAILABLE".into(), verdict }
}

fn withheld(nonce: u64) -> Fact {
    Fact::Withheld { nonce: Nonce::from_number(nonce) }
}

fn reply_lost() -> Fact {
    Fact::ReplyLost { why: "connection reset".into(), due: NOW }
}

fn task_over(verdict: Verdict) -> Fact {
    Fact::TaskOver { code: "ERROR_CAPTCHA_UNSOLVABLE".into(), verdict, cost: None, polls: 3 }
}

fn solved(name: &str) -> Fact {
    let (lifetime, margin) = Kind::Turnstile.lifetime_and_margin();
    Fact::Solved(Solved {
        task: task(name),
        answer: Answer { text: Secret::new("token"), is_json: false, extras: None },
        ready_lower: NOW,
        life: TokenLifetime::new(lifetime, margin).expect("something is left"),
        cost: None,
        polls: 3,
    })
}

// === the document ===

/// A table of the document: its columns after the first, and its rows by their first cell.
struct Matrix {
    columns: Vec<String>,
    rows: BTreeMap<String, Vec<String>>,
}

fn matrix(head: &str) -> Matrix {
    let from = DOCUMENT.find(&format!("\n{head}")).expect("the document has the table");
    let mut lines = DOCUMENT[from + 1..].lines().take_while(|line| line.starts_with('|'));
    let (_, columns) = cells(lines.next().expect("the table has a head"));
    let mut rows = BTreeMap::new();
    for (name, cells) in lines.skip(1).map(cells) {
        assert!(rows.insert(name.clone(), cells).is_none(), "{name:?} stands twice");
    }
    Matrix { columns, rows }
}

fn cells(line: &str) -> (String, Vec<String>) {
    let mut parts = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
    let name = parts.next().expect("split gives at least one part");
    (name, parts.collect())
}

/// The arrows of the first diagram after a heading.
fn arrows(heading: &str) -> BTreeSet<(String, String)> {
    let from = DOCUMENT.find(heading).expect("the document has the heading");
    let diagram = DOCUMENT[from..].split("```").nth(1).expect("the heading has a diagram");
    let arrow = |line: &str| {
        let (from, rest) = line.trim().split_once(" --> ")?;
        let to = rest.split(':').next().unwrap_or(rest);
        Some((from.to_owned(), to.trim().to_owned()))
    };
    diagram.lines().filter_map(arrow).collect()
}
