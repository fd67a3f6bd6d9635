//! The status page and the headers of every answer.

use crate::world::{WORKER, World};

#[tokio::test]
async fn the_status_page_works_without_script_and_shows_the_day() {
    let world = World::open().await;
    world.claim("0x4A", &["Prefer: wait=10"]).await;
    let page = world.get("/", "").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for text in ["solvegate", "Healthy.", "In flight", "Paid attempts", "Saved"] {
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
    assert!(world.get("/", "").await.body.contains("Not accepting claims"));
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let world = World::open().await;
    for path in
        ["/", "/style.css", "/healthz", "/readyz", "/in.php", "/res.php", "/v1/active", "/x"]
    {
        for key in ["", WORKER] {
            let answer = world.get(path, key).await;
            let policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'";
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
