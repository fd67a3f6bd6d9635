//! The workers of a simulated world: they ask, wait, give up and ask again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, Draft, Kind},
    claim::{Allowance, Door},
    id::{ClaimId, Project, WorkerName},
    ports::Scope,
    secret::Secret,
};
use engine::{Ask, Engine, Outcome};

use super::{Got, World, standing};

/// How a worker feels this time.
#[derive(Clone, Copy)]
struct Mood {
    patience: Duration,
    whim: u32,
}

/// One piece of work.
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
                work.sitekey = standing::pooled_key(&work.kind);
            }
            self.pursue(&work, &mut rng).await;
            if rng.u32(0..8) == 0 {
                // A redelivered message: the same work again, perhaps after its token has died.
                self.sleep(Duration::from_secs(rng.u64(30..200))).await;
                self.pursue(&work, &mut rng).await;
            }
        }
    }

    /// Two workers at a time share a name, so that keys, joins and stock meet.
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

    /// Asks, waits, and asks again under the same key, as a worker behind a bad network would.
    async fn pursue(&self, work: &Work, rng: &mut fastrand::Rng) {
        for _ in 0..4 {
            let patience = Duration::from_millis(rng.u64(500..40_000));
            if let Some((engine, mut life)) = self.gateway(rng) {
                let mood = Mood { patience, whim: rng.u32(0..20) };
                tokio::select! {
                    biased;
                    done = self.ask(&engine, work, mood) => if done { return },
                    _ = life.changed() => {}
                }
            }
            self.sleep(Duration::from_millis(rng.u64(100..3_000))).await;
        }
    }

    /// One try; `true` when nothing is left to do.
    async fn ask(&self, engine: &Engine, work: &Work, mood: Mood) -> bool {
        let mut ask = work.ask(mood.whim == 0);
        if self.plan.callbacks && mood.whim % 2 == 1 {
            ask.callback_url = Some(Secret::new("https://hooks.example.com/"));
        }
        let Ok(admitted) = engine.claim(ask).await else { return false };
        let id = match admitted.outcome {
            Outcome::Waiting { claim, .. } => claim.id,
            Outcome::Served { claim, .. } => return self.take(work, claim),
            Outcome::Failed(_)
            | Outcome::Lapsed(_)
            | Outcome::Withdrawn(_)
            | Outcome::Expired(_) => return true,
        };
        self.wait(engine, work, id, mood).await
    }

    async fn wait(&self, engine: &Engine, work: &Work, id: ClaimId, mood: Mood) -> bool {
        let scope = Scope::Worker(work.worker.clone());
        if mood.whim == 1 {
            // Withdrawing may race with the answer; both ends are fine.
            drop(engine.withdraw(&scope, id).await);
            return true;
        }
        if mood.whim == 2 {
            return true; // never comes back for it
        }
        match engine.fetch(&scope, id, mood.patience).await {
            Ok(Outcome::Served { claim, .. }) => self.take(work, claim),
            Ok(Outcome::Waiting { .. }) | Err(_) => false,
            Ok(
                Outcome::Failed(_)
                | Outcome::Lapsed(_)
                | Outcome::Withdrawn(_)
                | Outcome::Expired(_),
            ) => true,
        }
    }

    fn take(&self, work: &Work, claim: domain::claim::Claim) -> bool {
        let token = claim.token.expect("a served claim has a token");
        let exclusive = claim.kind != Kind::Image;
        // Keyless claims with equal parameters are the same piece of work while its window lasts.
        let name = if work.key.is_some() { work.name.clone() } else { format!("{}", claim.id) };
        let (lifetime, margin) = claim.kind.lifetime_and_margin();
        let got = Got {
            work: name,
            exclusive,
            usable: lifetime.saturating_sub(margin),
            token: token.answer.text.expose().to_owned(),
            at: self.clock.now(),
        };
        self.monitor.tell(format!("worker {} got the token of claim {}", work.worker, claim.id));
        self.got.lock().unwrap().push(got);
        true
    }
}

impl Work {
    fn ask(&self, fresh: bool) -> Ask {
        let files = BTreeMap::from([("body".to_owned(), vec![7; 100 + self.sitekey as usize])]);
        let challenge = if self.kind == Kind::Image {
            Challenge::new(Kind::Image, Draft { files, ..Draft::default() }).unwrap()
        } else {
            standing::challenge(&self.kind, self.sitekey)
        };
        Ask {
            worker: self.worker.clone(),
            project: Project::new("simulated").unwrap(),
            door: Door::V1,
            challenge,
            key: self.key.clone(),
            fresh: fresh && self.key.is_none(),
            deadline: None,
            allowance: Allowance::default(),
            narrowing: None,
            collect: true,
            callback_url: None,
        }
    }
}
