//! The workers of a simulated world: they claim, wait, give up and retry.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Allowance, Claim, Door},
    id::{ClaimId, Project, WorkerName},
    ports::Scope,
    secret::Secret,
};
use engine::{ClaimRequest, Engine, Outcome};

use super::{ReceivedToken, World, pools};

/// What a worker does after a try.
enum Next {
    /// Nothing is left to do.
    Done,
    /// It tries again in a moment.
    Soon,
    /// Its key opens the failed work again after this.
    After(Duration),
}

/// How a worker behaves this time.
#[derive(Clone, Copy)]
struct Conduct {
    patience: Duration,
    choice: u32,
}

struct Work {
    name: String,
    worker: WorkerName,
    kind: Kind,
    sitekey: u32,
    key: Option<String>,
}

impl World {
    pub(super) async fn work(self: Arc<Self>, number: usize) {
        let mut rng =
            fastrand::Rng::with_seed(self.plan.seed.wrapping_mul(7919).wrapping_add(number as u64));
        for turn in 0..self.plan.claims_each {
            self.sleep(Duration::from_millis(rng.u64(0..8_000))).await;
            let mut work = Self::choose(number, turn, &mut rng);
            if self.plan.pools && work.kind != Kind::Image && turn % 4 < 3 {
                work.sitekey = pools::pooled_key(&work.kind);
            }
            self.claim_until_done(&work, &mut rng).await;
            if rng.u32(0..8) == 0 {
                // A redelivered message: the same work again, perhaps after its token has expired.
                self.sleep(Duration::from_secs(rng.u64(30..200))).await;
                self.claim_until_done(&work, &mut rng).await;
            }
        }
    }

    /// Pairs of workers share a name, so that keys, joins and stock meet.
    fn choose(number: usize, turn: usize, rng: &mut fastrand::Rng) -> Work {
        let kind = [Kind::Turnstile, Kind::RecaptchaV2, Kind::Image][rng.usize(0..3)].clone();
        let worker = WorkerName::new(format!("team-{}", number / 2)).unwrap();
        let key = rng.bool().then(|| format!("job-{}-{}", number / 2, turn));
        let sitekey = if key.is_some() { u32::try_from(turn).unwrap() % 3 } else { rng.u32(0..3) };
        let keyed = [Kind::Turnstile, Kind::RecaptchaV2][turn % 2].clone();
        let kind = if key.is_some() { keyed } else { kind };
        let name =
            key.clone().map_or_else(|| format!("{number}/{turn}"), |key| format!("{worker}/{key}"));
        Work { name, worker, kind, sitekey, key }
    }

    /// Claims, waits, and retries under the same key, like a worker behind a bad network.
    async fn claim_until_done(&self, work: &Work, rng: &mut fastrand::Rng) {
        for _ in 0..4 {
            let patience = Duration::from_millis(rng.u64(500..40_000));
            let mut next = Next::Soon;
            if let Some((engine, mut life)) = self.gateway(rng) {
                let conduct = Conduct { patience, choice: rng.u32(0..20) };
                tokio::select! {
                    biased;
                    tried = self.try_claim(&engine, work, conduct) => next = tried,
                    _ = life.changed() => {}
                }
            }
            match next {
                Next::Done => return,
                Next::Soon => self.sleep(Duration::from_millis(rng.u64(100..3_000))).await,
                Next::After(wait) => self.sleep(wait).await,
            }
        }
    }

    /// One try.
    async fn try_claim(&self, engine: &Engine, work: &Work, conduct: Conduct) -> Next {
        let allowance = self.plan.budgets().of_worker(&work.worker);
        let mut request = work.request(conduct.choice == 0, allowance);
        if self.plan.callbacks && conduct.choice % 2 == 1 {
            request.callback_url = Some(Secret::new("https://hooks.example.com/"));
        }
        let Ok(admitted) = engine.claim(request).await else { return Next::Soon };
        let id = match admitted.outcome {
            Outcome::Waiting { claim, .. } => claim.id,
            Outcome::Served { claim, .. } => return self.take(work, claim),
            Outcome::Failed(claim) | Outcome::Lapsed(claim) => return self.after(engine, &claim),
            Outcome::Withdrawn(_) | Outcome::Expired(_) => return Next::Done,
        };
        self.wait(engine, work, id, conduct).await
    }

    /// Obeys the `Retry-After` of a failure. The worker of one that may have been paid asks once more, in vain.
    fn after(&self, engine: &Engine, failed: &Claim) -> Next {
        let window = engine.config().failure_window;
        match engine.reopens_at(failed) {
            Some(at) => match at.since(self.clock.now()) {
                // Nobody waits for the next day or month of a budget: a world lasts for hours.
                wait if wait > window * 20 => Next::Done,
                wait => Next::After(wait),
            },
            None if failed.may_have_paid && failed.has_named_key() => Next::After(window),
            None => Next::Done,
        }
    }

    async fn wait(&self, engine: &Engine, work: &Work, id: ClaimId, conduct: Conduct) -> Next {
        let scope = Scope::Worker(work.worker.clone());
        if conduct.choice == 1 {
            // Withdrawing may race with the answer; both outcomes are correct.
            drop(engine.withdraw(&scope, id, None).await);
            return Next::Done;
        }
        if conduct.choice == 2 {
            return Next::Done; // never comes back for it
        }
        match engine.fetch(&scope, id, conduct.patience).await {
            Ok(Outcome::Served { claim, .. }) => self.take(work, claim),
            Ok(Outcome::Waiting { .. }) | Err(_) => Next::Soon,
            Ok(Outcome::Failed(claim) | Outcome::Lapsed(claim)) => self.after(engine, &claim),
            Ok(Outcome::Withdrawn(_) | Outcome::Expired(_)) => Next::Done,
        }
    }

    fn take(&self, work: &Work, claim: Claim) -> Next {
        let token = claim.token.expect("a served claim has a token");
        let exclusive = claim.kind != Kind::Image;
        // Keyless claims with equal parameters are the same piece of work within the window.
        let name = if work.key.is_some() { work.name.clone() } else { format!("{}", claim.id) };
        let (lifetime, margin) = claim.kind.lifetime_and_margin();
        let got = ReceivedToken {
            work: name,
            exclusive,
            usable: lifetime.saturating_sub(margin),
            token: token.answer.text.expose().to_owned(),
            at: self.clock.now(),
        };
        self.monitor.record(format!("worker {} got the token of claim {}", work.worker, claim.id));
        self.got.lock().unwrap().push(got);
        Next::Done
    }
}

impl Work {
    fn request(&self, fresh: bool, allowance: Allowance) -> ClaimRequest {
        let files = BTreeMap::from([("body".to_owned(), vec![7; 100 + self.sitekey as usize])]);
        let challenge = if self.kind == Kind::Image {
            Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() })
                .unwrap()
        } else {
            pools::challenge(&self.kind, self.sitekey)
        };
        ClaimRequest {
            worker: self.worker.clone(),
            project: Project::new("simulated").unwrap(),
            door: Door::V1,
            challenge,
            key: self.key.clone(),
            fresh: fresh && self.key.is_none(),
            deadline: None,
            allowance,
            collect: true,
            callback_url: None,
            address: None,
        }
    }
}
