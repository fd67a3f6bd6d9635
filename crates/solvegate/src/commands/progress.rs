//! A progress bar on stderr, shown on a terminal only. Used by `dead-letters`, `batch`, `solve` and the benchmarks.

use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a spinner moves.
const TICK: Duration = Duration::from_millis(200);

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

    /// A spinner beside what is being waited for.
    pub fn waiting(json: bool) -> Self {
        let progress = Self::new("", None, json);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            progress.0.set_style(style);
        }
        progress.0.enable_steady_tick(TICK);
        progress
    }

    pub fn count(&self) -> usize {
        usize::try_from(self.0.position()).unwrap_or(usize::MAX)
    }

    /// Steps per second, lately.
    pub fn per_second(&self) -> f64 {
        self.0.per_sec()
    }

    /// Replaces the text beside the bar.
    pub fn say(&self, message: String) {
        self.0.set_message(message);
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
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
