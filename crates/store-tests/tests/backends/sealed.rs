//! Encryption keys on every store that keeps its data: gateways with other keys are refused, keys can be replaced, and the rows
//! of before are sealed.

use domain::{
    claim::Delivery,
    ports::{ClaimFilter, Scope},
};
use store_tests::{
    World, connect_sealed_to_corner, encryption_key, fresh_corner, keyring,
    servers::{shared_dynamodb, shared_postgres, shared_redis},
    token_of,
};
use stores::{Backend, Keyring, OpenError, StoreAdapter};

use crate::gateways::texts::use_everything;

/// A store that can be opened again.
struct Place {
    server: String,
    corner: String,
}

impl Place {
    fn on(server: String) -> Self {
        Self { server, corner: fresh_corner() }
    }

    async fn open(&self, keys: Option<&'static Keyring>) -> Result<Backend, OpenError> {
        if self.server.starts_with("embedded:") {
            return stores::connect_sealed(&self.server, keys).await;
        }
        connect_sealed_to_corner(&self.server, &self.corner, keys).await
    }

    async fn refusal(&self, keys: Option<&'static Keyring>) -> String {
        match self.open(keys).await {
            Err(error @ OpenError::Key { .. }) => error.to_string(),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
}

fn id(key: u8) -> String {
    encryption_key(key).id().to_string()
}

/// Everything that was written can be read, and a token is delivered.
async fn check_readable(world: &World, claims: usize) {
    let all = ClaimFilter::all(Scope::All, 1000);
    assert_eq!(world.records.history(all).await.expect("the store is up").items.len(), claims);
    world.store.callbacks(100, world.now()).await.expect("the store is up");
    world.records.pools(world.now()).await.expect("the store is up");
    world.records.active(Scope::All, 1000).await.expect("the store is up");
}

async fn keys_are_checked_and_can_be_replaced(place: Place) {
    // Unencrypted at first, as 0.1.0 wrote it.
    let backend = place.open(None).await.expect("the store is up");
    let world = World::new(&backend);
    use_everything(&world).await;
    let served = world.serve(world.turnstile("served"), "t-served").await;
    let count =
        world.records.history(ClaimFilter::all(Scope::All, 1000)).await.expect("the store is up");
    let count = count.items.len();
    drop((world.clone(), backend));
    let world = reopen(world, &place, Some(keyring(1, None))).await;
    check_readable(&world, count).await;
    assert_eq!(token_of(&world.find(&served).await), Some("token-t-served"));
    let world = close(world);

    // Other gateways need the key.
    let refused = place.refusal(None).await;
    assert!(refused.contains(&id(1)) && refused.contains("is not set"), "{refused}");
    let refused = place.refusal(Some(keyring(2, None))).await;
    assert!(refused.contains(&id(1)) && refused.contains(&id(2)), "{refused}");
    let refused = place.refusal(Some(keyring(2, Some(3)))).await;
    assert!(refused.contains(&id(3)), "{refused}");

    // The key is replaced: first every gateway can read the new one, then it writes with it.
    let world = close(reopen(world, &place, Some(keyring(1, Some(2)))).await);
    let world = reopen(world, &place, Some(keyring(2, Some(1)))).await;
    check_readable(&world, count).await;
    let world = close(world);
    let refused = place.refusal(Some(keyring(1, None))).await;
    assert!(refused.contains(&id(2)), "{refused}");

    // Opening with both keys sealed every row with the new one, so the old one can go.
    let world = reopen(world, &place, Some(keyring(2, None))).await;
    check_readable(&world, count).await;
    match world.fetch(&served).await {
        Delivery::Token(claim) => assert_eq!(token_of(&claim), Some("token-t-served")),
        Delivery::Expired(claim) | Delivery::Nothing(claim) => panic!("no token for {claim:?}"),
    }
    let world = close(world);
    let refused = place.refusal(Some(keyring(1, None))).await;
    assert!(refused.contains(&id(2)), "{refused}");
    drop(world);
}

/// The clock and the ids of a world whose store is closed.
#[expect(clippy::needless_pass_by_value, reason = "dropping the world closes its store")]
fn close(world: World) -> World {
    world.through(&stores::open("memory:").expect("the store is up"))
}

async fn reopen(world: World, place: &Place, keys: Option<&'static Keyring>) -> World {
    let world = close(world);
    world.through(&place.open(keys).await.expect("the store is up"))
}

#[tokio::test]
async fn embedded_keys_are_checked_and_can_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let server = format!("embedded:{}", directory.path().display());
    keys_are_checked_and_can_be_replaced(Place::on(server)).await;
}

#[tokio::test]
async fn redis_keys_are_checked_and_can_be_replaced() {
    keys_are_checked_and_can_be_replaced(Place::on(shared_redis().url())).await;
}

#[tokio::test]
async fn postgres_keys_are_checked_and_can_be_replaced() {
    keys_are_checked_and_can_be_replaced(Place::on(shared_postgres().url())).await;
}

#[tokio::test]
async fn dynamodb_keys_are_checked_and_can_be_replaced() {
    keys_are_checked_and_can_be_replaced(Place::on(shared_dynamodb().any_table())).await;
}

#[tokio::test]
async fn a_row_of_an_unknown_key_is_an_error_that_names_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", directory.path().display());
    let world = World::new(&stores::connect_sealed(&url, Some(keyring(1, None))).await.unwrap());
    let claim = world.serve(world.turnstile("a"), "t1").await;
    let _world = close(world);
    // Opened without the check, as if another gateway had changed the key meanwhile.
    let store = StoreAdapter::embedded(directory.path()).unwrap();
    let error = domain::ports::Store::find_claim(&store, claim.id).await.unwrap_err();
    assert!(error.to_string().contains(&id(1)), "{error}");
}
