//! Raises the limit of open files: every connection is one, and many systems allow a process 1,024 unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are not connections of callers: the store, the provider, callbacks.
const OTHER_FILES: usize = 200;

/// Raises the limit as far as the system allows, and returns how many connections of callers fit.
pub fn connections(wanted: usize) -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    let connections = fitting(wanted, allowed);
    if connections < wanted {
        tracing::warn!(
            allowed,
            connections,
            "few open files allowed, so fewer connections are accepted; raise the hard limit (ulimit -Hn, LimitNOFILE)"
        );
    }
    connections
}

fn fitting(wanted: usize, allowed: usize) -> usize {
    // With very few files at least half of them are for connections.
    wanted.min(allowed.saturating_sub(OTHER_FILES).max(allowed / 2)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_keep_their_share() {
        assert_eq!(fitting(10_000, 1024), 824);
        assert_eq!(fitting(10_000, 20_000), 10_000);
        assert_eq!(fitting(10_000, 256), 128);
        assert_eq!(fitting(10_000, 0), 1);
    }

    #[test]
    fn the_limit_is_raised() {
        assert!(connections(1) == 1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
