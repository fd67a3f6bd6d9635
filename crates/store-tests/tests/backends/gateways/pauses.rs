//! A pause written by one gateway stops every other one at its next decision, whatever that one has cached.

use domain::{
    actor::{Actor, ActorRole},
    id::WorkerName,
    pause::PauseScope,
    ports::{PauseRequest, PauseResult},
    solve::{Refused, Stage},
};
use store_tests::World;

use crate::prefix;

use super::gateways;

/// Pauses everything, or resumes it.
pub(crate) async fn set_pause(world: &World, paused: bool) {
    let name = WorkerName::new("ops").expect("a valid name");
    let by = Actor { name, role: ActorRole::Operator, address: None };
    let request = PauseRequest { scope: PauseScope::Everything, paused, by };
    let done = world.store.set_pause(request, world.now()).await.expect("the server is up");
    assert!(matches!(done, PauseResult::Done { is_new: true, .. }), "{done:?}");
}

/// Two pauses and two resumes, each at another gateway than the submission.
pub(crate) async fn a_pause_holds_at_every_gateway(url: &str) {
    let all = gateways(url, &prefix(), 3).await;
    let [one, two, three] = [0, 1, 2].map(|number| &all[number].world);
    for (paused_by, resumed_by) in [(one, three), (three, one)] {
        let claim = two.open(two.turnstile("a")).await;
        let lease = two.lease_of(&claim).await;
        set_pause(paused_by, true).await;
        assert_eq!(two.intend(&lease).await, Err(Refused::Paused));
        assert_eq!(two.store.pauses().await.expect("the server is up").len(), 1);
        set_pause(resumed_by, false).await;
        let intended = two.intend(&lease).await.map(|solve| solve.stage);
        assert_eq!(intended, Ok(Stage::Intent));
    }
}
