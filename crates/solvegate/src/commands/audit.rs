//! `solvegate audit`: shows the audit trail, verifies the hash chain of the ledger, exports it. The chain is verified here and
//! not by the gateway, so that the answer needs no trust in it.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

use domain::{
    chain::{Break, ChainReport, ChainedEntry, EntryHash, Flaw, LedgerItem, Verifier},
    ledger::Event,
};
use serde_json::{Value, json};

use super::{
    Context,
    gateway_client::{GatewayClient, Role},
    queries::Query,
    tables,
};
use crate::{
    assemble::Purpose,
    cli::{AuditAction, AuditExportArgs, AuditShowArgs, AuditVerifyArgs, ExportFormat},
    client::Call,
    exit::{Exit, Failure},
    output,
};

/// A verification in progress.
struct Verification<'a> {
    args: &'a AuditVerifyArgs,
    verifier: Verifier,
    /// How many of the noted hashes were found.
    confirmed: usize,
    /// Where the trail says itself that a server lost entries.
    losses: Vec<u64>,
}

pub(super) async fn run(context: &Context, action: &AuditAction) -> Result<(), Failure> {
    match action {
        AuditAction::Show(args) => show(args).run(context, &args.client).await,
        AuditAction::Verify(args) => verify(context, args).await,
        AuditAction::Export(args) => export(context, args).await,
    }
}

fn show(args: &AuditShowArgs) -> Query {
    Query::new("/v1/audit", tables::audit)
        .with("actor", args.actor.as_ref())
        .with("action", args.action.as_ref())
        .with("from", args.from.as_ref())
        .with("to", args.to.as_ref())
        .with("limit", Some(args.limit))
        .with("cursor", args.cursor.as_ref())
}

// === export ===

async fn export(context: &Context, args: &AuditExportArgs) -> Result<(), Failure> {
    let AuditExportArgs { format: ExportFormat::Jsonl, from, client } = args;
    let gateway = GatewayClient::open(context, client, Purpose::Reading).await?;
    let mut print = |item: &LedgerItem| output::line(format_args!("{}", line_of(item)));
    let exported = each_item(&gateway, *from, &mut print).await;
    gateway.close().await;
    exported
}

/// Reads the ledger page by page, so that it need not fit into memory.
async fn each_item(
    gateway: &GatewayClient,
    mut from: u64,
    take: &mut dyn FnMut(&LedgerItem) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let call = Call::get(format!("/v1/audit/export?from={from}"));
        let mut page = gateway.send(Role::Admin, &call).await?.good()?;
        let items: Vec<LedgerItem> =
            serde_json::from_value(page["items"].take()).map_err(Failure::of(Exit::Failed))?;
        items.iter().try_for_each(&mut *take)?;
        let Some(next) = page["next"].as_u64() else { return Ok(()) };
        from = next;
    }
}

fn line_of(item: &LedgerItem) -> String {
    serde_json::to_string(item).expect("an entry has no maps with keys that are not texts")
}

// === verify ===

async fn verify(context: &Context, args: &AuditVerifyArgs) -> Result<(), Failure> {
    let mut verification = Verification::new(args);
    if let Some(file) = &args.file {
        verification.read(file)?;
    } else {
        let gateway = GatewayClient::open(context, &args.client, Purpose::Reading).await?;
        let read = each_item(&gateway, args.from, &mut |item| verification.check(item)).await;
        gateway.close().await;
        read?;
    }
    verification.finish()
}

// === impl Verification ===

impl<'a> Verification<'a> {
    fn new(args: &'a AuditVerifyArgs) -> Self {
        Self { args, verifier: Verifier::default(), confirmed: 0, losses: Vec::new() }
    }

    fn read(&mut self, file: &Path) -> Result<(), Failure> {
        let unreadable = |error: std::io::Error| {
            Failure::new(Exit::Usage, format!("cannot read {}: {error}", file.display()))
        };
        let lines = BufReader::new(File::open(file).map_err(unreadable)?).split(b'\n');
        for (number, line) in (1..).zip(lines) {
            let line = line.map_err(unreadable)?;
            let item = item_of(&line).unwrap_or_else(|why| {
                let last = self.verifier.report().last;
                let seq = last.map_or(self.args.from.max(1), |last| last.saturating_add(1));
                let number: u64 = number;
                LedgerItem::Unreadable { seq, why: format!("line {number}: {why}") }
            });
            let is_skipped =
                matches!(&item, LedgerItem::Entry(chained) if chained.entry.seq < self.args.from);
            if !is_skipped {
                self.check(&item)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, item: &LedgerItem) -> Result<(), Failure> {
        self.verifier.check(item).map_err(|found| self.broken(&found))?;
        let LedgerItem::Entry(ChainedEntry { entry, link }) = item else { return Ok(()) };
        if let Event::WritesLost { .. } = entry.event {
            self.losses.push(entry.seq);
        }
        for (_, hash) in self.args.expect.iter().filter(|(seq, _)| *seq == entry.seq) {
            if link.map(|link| link.hash) != Some(*hash) {
                let (first, seq) = (entry.seq, entry.seq);
                return Err(self.broken(&Break { first, seq, flaw: Flaw::NotAsNoted }));
            }
            self.confirmed += 1;
        }
        Ok(())
    }

    fn broken(&self, found: &Break) -> Failure {
        let lost = match self.losses.as_slice() {
            [] => String::new(),
            [.., last] => format!("; entry {last} says that the server had lost entries before it"),
        };
        Failure::new(Exit::Failed, format!("the ledger is not intact: {found}{lost}"))
    }

    fn finish(self) -> Result<(), Failure> {
        let report = self.verifier.report();
        if self.confirmed < self.args.expect.len() {
            let what = "the ledger has no entry with the number of an --expect: it ends before it, or the entry was deleted at the end of its retention";
            return Err(Failure::new(Exit::Failed, what));
        }
        if self.args.client.json {
            output::json(&self.as_json(&report))
        } else {
            self.print(&report)
        }
    }

    fn as_json(&self, report: &ChainReport) -> Value {
        json!({
            "intact": true,
            "first": report.first,
            "last": report.last,
            "entries": report.entries,
            "unhashed": report.unhashed,
            "anchor": report.anchor,
            "head": report.head,
            "losses": self.losses,
        })
    }

    fn print(&self, report: &ChainReport) -> Result<(), Failure> {
        let (Some(first), Some(last)) = (report.first, report.last) else {
            return output::line(format_args!("the ledger is empty"));
        };
        output::line(format_args!("intact: {} entries, {first} to {last}", report.entries))?;
        if report.unhashed > 0 {
            let count = report.unhashed;
            output::line(format_args!(
                "the first {count} have no hash: an earlier release wrote them"
            ))?;
        }
        if let Some(anchor) = report.anchor.filter(|anchor| *anchor != EntryHash::START) {
            output::line(format_args!("they follow {anchor}: earlier entries were deleted"))?;
        }
        for seq in &self.losses {
            output::line(format_args!("entry {seq}: the server had lost entries before it"))?;
        }
        match report.head {
            Some(head) => output::line(format_args!("{last}:{head}")),
            None => Ok(()),
        }
    }
}

/// A line of an export. A line that says the same in another form was not written by an export.
fn item_of(line: &[u8]) -> Result<LedgerItem, String> {
    let item: LedgerItem = serde_json::from_slice(line).map_err(|why| why.to_string())?;
    if line_of(&item).as_bytes() == line { Ok(item) } else { Err("the line was rewritten".into()) }
}
