//! What an operator can pause: nothing is submitted in a paused scope, while paid tasks are polled on. The store checks the
//! pauses in the transaction that would spend.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    actor::Actor,
    challenge::Challenge,
    id::WorkerName,
    site::{BadRule, HostRule, PageUrl},
    time::Timestamp,
};

/// What is paused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseScope {
    /// All submissions.
    Everything,
    /// The submissions for pages of a host: a rule as in `[[site]] host`, which covers all ports unless it names one.
    Site(String),
    /// The submissions of a worker.
    Worker(WorkerName),
}

/// A pause in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// What is paused.
    pub scope: PauseScope,
    /// Since when.
    pub since: Timestamp,
    /// Who paused it, and from where.
    pub by: Actor,
}

/// The pauses in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses(Vec<Pause>);

/// More pauses than this are refused, because every spending decision reads all of them.
pub const MAX_PAUSES: usize = 100;

// === impl PauseScope ===

impl PauseScope {
    /// The pages that a rule for hosts covers.
    pub fn site(rule: &str) -> Result<Self, BadRule> {
        rule.parse().map(|rule: HostRule| Self::Site(rule.to_string()))
    }

    /// Whether it covers a page.
    fn covers_page(&self, page: Option<&PageUrl>) -> bool {
        match self {
            Self::Everything => true,
            Self::Site(rule) => match (page, rule.parse::<HostRule>()) {
                (Some(page), Ok(rule)) => rule.covers_host(page),
                // A rule that this release cannot read stops more rather than less.
                (Some(_), Err(_)) => true,
                (None, _) => false,
            },
            Self::Worker(_) => false,
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Site(host) => write!(f, "site {host}"),
            Self::Worker(name) => write!(f, "worker {name}"),
        }
    }
}

// === impl Pauses ===

impl Pauses {
    /// The pauses, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Pause> {
        self.0.iter()
    }

    /// Whether nothing is paused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether exactly this scope is paused.
    pub fn has(&self, scope: &PauseScope) -> bool {
        self.0.iter().any(|pause| pause.scope == *scope)
    }

    /// Adds a pause; `false` when its scope was paused before, which changes nothing.
    pub fn add(&mut self, pause: Pause) -> bool {
        let is_new = !self.has(&pause.scope);
        if is_new {
            self.0.push(pause);
        }
        is_new
    }

    /// Ends the pause of exactly this scope; `false` when there was none.
    pub fn end(&mut self, scope: &PauseScope) -> bool {
        let before = self.0.len();
        self.0.retain(|pause| pause.scope != *scope);
        self.0.len() < before
    }

    /// The pause that stops a challenge on which these workers wait, if there is one. Work that one of them may still have
    /// done is not paused, because the others get its answer for nothing.
    pub fn stopping<'a>(
        &self,
        challenge: &Challenge,
        workers: impl IntoIterator<Item = &'a WorkerName>,
    ) -> Option<&Pause> {
        // This is on the path of every intent.
        if self.0.is_empty() {
            return None;
        }
        self.stopping_page(challenge.pageurl()).or_else(|| {
            workers.into_iter().map(|worker| self.stopping_worker(worker)).reduce(Option::and)?
        })
    }

    /// The pause that stops work for a page, for every worker. Without a page it can only be that of everything.
    pub fn stopping_page(&self, page: Option<&PageUrl>) -> Option<&Pause> {
        self.0.iter().find(|pause| pause.scope.covers_page(page))
    }

    /// The pause of a worker.
    pub fn stopping_worker(&self, worker: &WorkerName) -> Option<&Pause> {
        let is_theirs =
            |pause: &&Pause| matches!(&pause.scope, PauseScope::Worker(name) if name == worker);
        self.0.iter().find(is_theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        actor::ActorRole,
        challenge::{ChallengeParts, Kind},
    };

    fn worker(name: &str) -> WorkerName {
        WorkerName::new(name).unwrap()
    }

    fn paused(scope: PauseScope) -> Pauses {
        let by = Actor { name: worker("ops"), role: ActorRole::Operator, address: None };
        let mut pauses = Pauses::default();
        assert!(pauses.add(Pause {
            scope: scope.clone(),
            since: Timestamp::default(),
            by: by.clone()
        }));
        assert!(!pauses.add(Pause { scope, since: Timestamp::from_millis(7), by }));
        pauses
    }

    fn page(url: &str) -> Challenge {
        let parts = ChallengeParts {
            sitekey: Some("k".into()),
            pageurl: Some(PageUrl::parse(url).unwrap()),
            ..ChallengeParts::default()
        };
        Challenge::new(Kind::Turnstile, parts).unwrap()
    }

    fn picture() -> Challenge {
        let files = [("body".to_owned(), vec![1])].into();
        Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap()
    }

    #[test]
    fn a_host_is_paused_with_all_its_ports_and_not_its_neighbours() {
        let stops = |rule: &str, url: &str| {
            let pauses = paused(PauseScope::site(rule).unwrap());
            pauses.stopping(&page(url), [&worker("a")]).is_some()
        };
        for url in [
            "https://shop.example.com/a",
            "http://shop.example.com/",
            "https://shop.example.com:8443/",
        ] {
            assert!(stops("shop.example.com", url), "{url}");
        }
        assert!(!stops("shop.example.com", "https://a.shop.example.com/"));
        assert!(!stops("shop.example.com", "https://example.com/"));
        assert!(stops("*.example.com", "https://shop.example.com:8443/"));
        assert!(!stops("*.example.com", "https://example.com/"), "a rule with * is strictly below");
        assert!(!stops("shop.example.com:8443", "https://shop.example.com/"));
        assert!(PauseScope::site("https://shop.example.com/").is_err());
    }

    #[test]
    fn pictures_are_paused_with_everything_or_with_their_worker() {
        let site = paused(PauseScope::site("*.example.com").unwrap());
        assert!(site.stopping(&picture(), [&worker("a")]).is_none());
        assert!(paused(PauseScope::Everything).stopping(&picture(), [&worker("a")]).is_some());
        let a = paused(PauseScope::Worker(worker("a")));
        assert!(a.stopping(&picture(), [&worker("a")]).is_some());
        assert!(a.stopping(&picture(), [&worker("b")]).is_none());
    }

    #[test]
    fn work_goes_on_for_a_worker_that_is_not_paused() {
        let a = paused(PauseScope::Worker(worker("a")));
        assert!(a.stopping(&picture(), [&worker("a"), &worker("b")]).is_none());
        assert!(a.stopping(&picture(), []).is_none());
    }

    #[test]
    fn a_pause_ends_by_its_own_scope() {
        let mut pauses = paused(PauseScope::Everything);
        assert!(!pauses.end(&PauseScope::Worker(worker("a"))));
        assert!(pauses.end(&PauseScope::Everything) && pauses.is_empty());
    }
}
