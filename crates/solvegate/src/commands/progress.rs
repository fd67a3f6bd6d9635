//! How far a long command is: on stderr, on a terminal only. For `dead-letters`, and for the benches.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or a count where nobody knows the end. Gone when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows nothing where nobody looks, or where a program reads.
    pub fn new(verb: &'static str, of: Option<usize>, json: bool) -> Self {
        let of = of.map(|of| u64::try_from(of).unwrap_or(u64::MAX));
        let seen = !json && stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(of, target).with_message(verb);
        let template = match of {
            Some(_) => "{wide_bar} {pos}/{len} {msg}, {eta} left",
            None => "{spinner} {human_pos} {msg}, {elapsed}",
        };
        // A template that cannot be read leaves the usual bar: no reason to stop working.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// So many more are done.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
