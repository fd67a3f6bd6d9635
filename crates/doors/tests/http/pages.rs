//! The status page and the headers of every answer.

use doors::Limits;
use tokio::io::AsyncWriteExt as _;

use crate::{
    client::read_answer,
    tls::{connect, secure_world},
    world::{ADMIN, OTHER, WORKER, World, request},
};

#[tokio::test]
async fn the_status_page_works_without_script_and_shows_the_day() {
    let world = World::open().await;
    world.claim("0x4A", &["Prefer: wait=10"]).await;
    let page = world.get("/", ADMIN).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for text in ["solvegate", "Healthy.", "In flight", "Attempts", "Saved"] {
        assert!(page.body.contains(text), "{text}: {page:?}");
    }
    for inline in ["<script", "<style", "style=", "onload"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    let style = world.get("/style.css", "").await;
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
}

#[tokio::test]
async fn the_status_page_says_what_is_wrong() {
    let world = World::open().await;
    world.engine.drain().await;
    assert!(world.get("/", "").await.body.contains("Not accepting claims: draining"));
}

#[tokio::test]
async fn the_status_page_is_never_healthy_with_open_dead_letters() {
    let world = World::open().await;
    world.claim("unsolvable-1", &["Prefer: wait=10"]).await;
    for key in [ADMIN, WORKER] {
        let page = world.get("/", key).await.body;
        assert!(page.contains("Degraded, but accepting claims: dead letters"), "{page}");
        assert!(page.contains("what failed: 1 open") && !page.contains("Healthy"), "{page}");
    }
    let page = world.get("/", OTHER).await.body;
    assert!(page.contains("Healthy.") && !page.contains("Dead letters"), "not its own: {page}");
}

#[tokio::test]
async fn without_a_key_the_status_page_shows_no_sums_and_with_one_only_its_own() {
    let world = World::open().await;
    world.claim("0x4A", &["Prefer: wait=10"]).await;
    let page = world.get("/", "").await.body;
    assert!(page.contains("Accepting claims.") && page.contains("/v1/stats"), "{page}");
    for text in ["Paid", "Claims", "In flight", "Queued", env!("CARGO_PKG_VERSION")] {
        assert!(!page.contains(text), "{text}: {page}");
    }
    assert!(world.get("/", WORKER).await.body.contains("<dt>Claims</dt><dd>1</dd>"));
    assert!(world.get("/", OTHER).await.body.contains("<dt>Claims</dt><dd>0</dd>"));
}

#[tokio::test]
async fn readyz_shows_details_to_admins_only() {
    let world = World::open().await;
    world.store.set_away(true);
    world.claim("0x4A", &[]).await;
    for key in ["", WORKER] {
        let ready = world.get("/readyz", key).await;
        assert_eq!(
            (ready.status, ready.json()["troubles"].to_string()),
            (503, r#"["store"]"#.to_owned())
        );
    }
    let ready = world.get("/readyz", ADMIN).await;
    assert!(ready.json()["troubles"][0].as_str().unwrap().len() > "store".len(), "{ready:?}");
    world.store.set_away(false);
    world.engine.crash();
}

#[tokio::test]
async fn answers_over_tls_ask_for_tls_from_now_on() {
    let (world, made) = secure_world(Limits::default()).await;
    let mut stream = connect(&world, &made, b"http/1.1").await;
    stream.write_all(request("GET", "/", "", &[], "").as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await.unwrap();
    assert_eq!(answer.header("strict-transport-security"), Some("max-age=31536000"));
    let plain = World::open().await.get("/", "").await;
    assert_eq!(plain.header("strict-transport-security"), None);
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let world = World::open().await;
    for path in
        ["/", "/style.css", "/healthz", "/readyz", "/in.php", "/res.php", "/v1/active", "/x"]
    {
        for key in ["", WORKER] {
            let answer = world.get(path, key).await;
            let policy = "default-src 'self'; object-src 'none'; base-uri 'none'; \
                form-action 'self'; frame-ancestors 'none'";
            assert_eq!(answer.header("content-security-policy"), Some(policy), "{path}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
            let kept = answer.header("cache-control") != Some("no-store");
            assert_eq!(kept, path == "/style.css", "{path}");
        }
    }
    let refused = world.send("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!((refused.status, refused.header("x-content-type-options")), (400, Some("nosniff")));
}
