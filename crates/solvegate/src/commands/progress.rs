//! A progress bar on stderr, shown on a terminal only. Used by `dead-letters` and by the benchmarks.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or a counter if the total is unknown. Dropping it removes it.
pub struct Progress(ProgressBar);

impl Progress {
    /// Hidden without a terminal, and with `--json`.
    pub fn new(verb: &'static str, of: Option<usize>, json: bool) -> Self {
        let of = of.map(|of| u64::try_from(of).unwrap_or(u64::MAX));
        let seen = !json && stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(of, target).with_message(verb);
        let template = match of {
            Some(_) => "{wide_bar} {pos}/{len} {msg}, {eta} left",
            None => "{spinner} {human_pos} {msg}, {elapsed}",
        };
        // An invalid template leaves the default bar, which is no reason to fail.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub fn count(&self) -> usize {
        usize::try_from(self.0.position()).unwrap_or(usize::MAX)
    }

    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
