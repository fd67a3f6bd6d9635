//! Lists of a worker while others have thousands of solves.

use domain::{id::WorkerName, ports::Scope};
use store_tests::World;

/// More than a worker's list reads of others.
const FLOOD: usize = 2100;

#[tokio::test]
async fn a_worker_sees_its_active_solves_among_thousands_of_others() {
    let world = World::new(&stores::open("memory:").unwrap());
    let open_as = async |name: &str, sitekey: &str| {
        let mut new = world.turnstile(sitekey);
        new.worker = WorkerName::new(name).unwrap();
        world.open(new).await
    };
    let sent = open_as("ann", "sent").await;
    world.submit(&sent, "t1").await;
    let served = world.serve(world.turnstile("served"), "t2").await;
    let withdrawn = open_as("ann", "withdrawn").await;
    world.withdraw(&withdrawn).await;
    for n in 0..FLOOD {
        open_as("bob", &format!("b{n}")).await;
    }
    let queued = open_as("ann", "queued").await;
    let scope = Scope::Worker(WorkerName::new("ann").unwrap());
    let seen = world.records.active(scope.clone(), 50).await.unwrap();
    let mut ids: Vec<_> = seen.iter().map(|solve| Some(solve.id)).collect();
    ids.sort_unstable();
    let mut expected = vec![sent.solve, queued.solve];
    expected.sort_unstable();
    assert_eq!(ids, expected, "not {:?} and {:?}", served.solve, withdrawn.solve);
    assert_eq!(world.records.active(scope, 1).await.unwrap().len(), 1);
    assert_eq!(world.records.active(Scope::All, 5000).await.unwrap().len(), FLOOD + 2);
}
