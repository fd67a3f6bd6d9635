//! `doctor`, as it is typed.

use clap::Args;

use super::Wiring;
use crate::config::Flags;

pub(super) const NOTES: &str = "\
Marks: ✓ good, ! works but is risky, ✗ wrong.
A remedy stands below ! and ✗. Doctor submits nothing and buys nothing.
The exit code is 0 when nothing is wrong, else that of the first ✗:
2 configuration or sites, 3 service, store or port, 4 key or threads, 1 clock.
Examples:
  solvegate doctor --store redis://127.0.0.1:6379
  solvegate doctor --store postgres://127.0.0.1/solvegate";

/// `doctor`. Looks at what `serve` would use, not at a running gateway.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Where the gateway would listen [default: 127.0.0.1:8402]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened: its own fields carry the help")]
    pub wiring: Wiring,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl DoctorArgs {
    pub(super) fn apply(&self, flags: &mut Flags) {
        self.wiring.apply(flags);
        flags.listen.clone_from(&self.listen);
    }
}
