//! The options of `doctor`.

use clap::Args;

use super::EngineArgs;
use crate::config::Flags;

pub(super) const NOTES: &str = "\
Marks: ✓ good, ! works but is risky, ✗ wrong.
A remedy stands below ! and ✗. Doctor submits nothing and buys nothing.
The exit code is 0 when nothing is wrong, else that of the first ✗:
2 configuration or sites, 3 service, store or port, 4 key or threads, 1 clock.
Examples:
  solvegate doctor --store redis://127.0.0.1:6379
  solvegate doctor --store postgres://127.0.0.1/solvegate";

/// Checks the configuration that `serve` would use, not a running gateway.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Where the gateway would listen [default: 127.0.0.1:8402]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl DoctorArgs {
    pub(super) fn apply(&self, flags: &mut Flags) {
        self.engine.apply(flags);
        flags.set("--listen", "listen", self.listen.as_ref());
    }
}
