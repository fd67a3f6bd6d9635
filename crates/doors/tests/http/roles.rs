//! Every route without a key, as a worker and as an admin of each role.

use crate::world::{ADMIN, NARROW, OPERATOR, READER, WORKER, World, request, turnstile};

/// Method, path, then the status without a key, for a worker, and for admins of the roles reader, operator and admin.
const MATRIX: [(&str, &str, [u16; 5]); 42] = [
    ("GET", "/", [200, 200, 200, 200, 200]),
    ("GET", "/style.css", [200, 200, 200, 200, 200]),
    ("GET", "/healthz", [200, 200, 200, 200, 200]),
    ("GET", "/readyz", [200, 200, 200, 200, 200]),
    ("GET", "/in.php", [200, 200, 200, 200, 200]),
    ("GET", "/res.php", [200, 200, 200, 200, 200]),
    ("POST", "/v1/solves", [401, 202, 403, 403, 403]),
    ("GET", "/v1/solves/123456789012345", [401, 404, 404, 404, 404]),
    ("DELETE", "/v1/solves/123456789012345", [401, 404, 403, 404, 404]),
    ("POST", "/v1/solves/123456789012345/report", [401, 400, 403, 400, 400]),
    ("GET", "/v1/solves/123456789012345/explain", [401, 404, 404, 404, 404]),
    ("POST", "/v1/batches", [401, 415, 403, 403, 403]),
    ("GET", "/v1/history", [401, 200, 200, 200, 200]),
    ("GET", "/v1/active", [401, 200, 200, 200, 200]),
    ("GET", "/v1/dead-letters", [401, 200, 200, 200, 200]),
    ("GET", "/v1/dead-letters/s123456789012345", [401, 404, 404, 404, 404]),
    ("GET", "/v1/dead-letters?worker=one", [401, 200, 200, 200, 200]),
    ("GET", "/v1/dead-letters?worker=two", [401, 403, 200, 200, 200]),
    ("DELETE", "/v1/dead-letters", [401, 403, 403, 400, 400]),
    ("DELETE", "/v1/dead-letters/s123456789012345", [401, 403, 403, 404, 404]),
    ("POST", "/v1/dead-letters/revive", [401, 403, 403, 400, 400]),
    ("GET", "/v1/pools", [401, 403, 200, 200, 200]),
    ("PUT", "/v1/pools", [401, 403, 403, 400, 400]),
    ("DELETE", "/v1/pools/0123456789ab", [401, 403, 403, 404, 404]),
    ("POST", "/v1/pools/0123456789ab/expect", [401, 403, 403, 400, 400]),
    ("POST", "/-/pingback/0", [404, 404, 404, 404, 404]),
    ("GET", "/v1/pauses", [401, 403, 200, 200, 200]),
    ("POST", "/-/pause", [401, 403, 403, 400, 400]),
    ("POST", "/-/resume", [401, 403, 403, 400, 400]),
    ("GET", "/v1/stats", [401, 200, 200, 200, 200]),
    ("GET", "/v1/report", [401, 200, 200, 200, 200]),
    ("GET", "/v1/reconcile", [401, 403, 200, 200, 200]),
    ("GET", "/v1/what-if", [401, 403, 200, 200, 200]),
    ("GET", "/v1/audit", [401, 403, 200, 200, 200]),
    ("GET", "/v1/audit/export", [401, 403, 200, 200, 200]),
    ("GET", "/v1/balance", [401, 200, 200, 200, 200]),
    ("GET", "/v1/sites", [401, 403, 200, 200, 200]),
    ("GET", "/v1/workers", [401, 403, 200, 200, 200]),
    ("POST", "/v1/admin/keys", [401, 403, 400, 400, 400]),
    ("GET", "/admin/anything", [401, 403, 400, 400, 400]),
    ("GET", "/metrics", [401, 404, 404, 404, 404]),
    ("PUT", "/v1/solves", [401, 405, 405, 405, 405]),
];

#[tokio::test]
async fn every_route_checks_the_role() {
    let world = World::open().await;
    for (method, path, expected) in MATRIX {
        for (key, status) in ["", WORKER, READER, OPERATOR, ADMIN].into_iter().zip(expected) {
            let body = if method == "POST" { turnstile("0x4A") } else { String::new() };
            let json = ["Content-Type: application/json"];
            let answer = world.send(&request(method, path, key, &json, &body)).await;
            assert_eq!(answer.status, status, "{method} {path} as {key:?}: {answer:?}");
        }
    }
}

/// The paths of a source file's `.route("PATH", get(…).post(…))`, each with its methods.
fn routes(source: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for line in source.split(".route(\"").skip(1) {
        let line = line.lines().next().unwrap();
        let (path, handlers) = line.split_once('"').unwrap();
        for (word, method) in
            [("get(", "GET"), ("post(", "POST"), ("put(", "PUT"), ("delete(", "DELETE")]
        {
            if handlers.contains(word) {
                found.push((path.to_owned(), method));
            }
        }
    }
    found
}

/// Whether the path of a request fits a path with `{names}` in it.
fn fits(route: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap();
    let (mut pattern, mut parts) = (route.split('/'), path.split('/'));
    loop {
        match (pattern.next(), parts.next()) {
            (None, None) => return true,
            (Some(name), Some(_)) if name.starts_with('{') => {}
            (Some(name), Some(part)) if name == part => {}
            (_, _) => return false,
        }
    }
}

#[test]
fn the_matrix_has_every_route() {
    let mut all = routes(include_str!("../../src/v1/mod.rs"));
    all.extend(routes(include_str!("../../src/lib.rs")));
    assert!(all.len() > 30, "{all:?}");
    for (route, method) in all {
        // Both methods of in.php, res.php and pingbacks are one handler.
        let is_there = |(asked, path, _): &(&str, &str, [u16; 5])| {
            fits(&route, path) && (*asked == method || !route.starts_with("/v1/"))
        };
        assert!(MATRIX.iter().any(is_there), "{method} {route}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let world = World::open().await;
    let answer = world.send(&request("PUT", "/v1/solves/1", WORKER, &[], "")).await;
    assert_eq!(answer.header("allow"), Some("GET,HEAD,DELETE"));
}

#[tokio::test]
async fn without_a_key_a_known_path_cannot_be_told_from_an_unknown_one() {
    let world = World::open().await;
    let unknown = world.send(&request("PUT", "/v1/nothing", "", &[], "")).await;
    for path in ["/v1/pools/1", "/v1/workers", "/v1/dead-letters/revive", "/readyz", "/in.php"] {
        let known = world.send(&request("PUT", path, "", &[], "")).await;
        assert_eq!((known.status, &known.body), (401, &unknown.body), "{path}");
        let names = |head: &str| {
            head.lines()
                .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&known.head), names(&unknown.head), "{path}");
    }
}

#[tokio::test]
async fn a_key_on_the_compat_door_is_never_taken_from_a_header() {
    let world = World::open().await;
    let answer = world.get("/res.php?action=getbalance", WORKER).await;
    assert_eq!(answer.body, "ERROR_WRONG_USER_KEY");
}

#[tokio::test]
async fn a_worker_without_leave_does_not_read_the_balance() {
    let world = World::open().await;
    for (key, status) in [(WORKER, 200), (NARROW, 403), (READER, 200)] {
        assert_eq!(world.get("/v1/balance", key).await.status, status);
    }
    let asked = async |key: &str| world.php(&format!("/res.php?key={key}&action=getbalance")).await;
    assert_eq!(asked(NARROW).await.body, "ERROR_BAD_PARAMETERS");
    assert!(asked(WORKER).await.body.parse::<f64>().is_ok());
}

#[tokio::test]
async fn declarations_are_shown_to_the_admin_without_keys() {
    let world = World::open().await;
    let sites = world.get("/v1/sites", ADMIN).await;
    assert_eq!(sites.json()["items"][0]["host"], "shop.example.com");
    let workers = world.get("/v1/workers", ADMIN).await;
    assert_eq!(workers.json()["items"].as_array().unwrap().len(), 3);
    assert_eq!(workers.json()["items"][0]["priority"], 1);
    assert!(!workers.body.contains("Key"), "{workers:?}");
}

#[tokio::test]
async fn a_role_that_is_too_low_is_named_with_the_one_that_is_needed() {
    let world = World::open().await;
    let answer = world.send(&request("DELETE", "/v1/dead-letters?all=true", READER, &[], "")).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (403, Some("role_too_low")));
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains("the role operator; this key has the role reader"), "{detail}");
}

#[tokio::test]
async fn no_admin_sees_a_token() {
    let world = World::open().await;
    let claim =
        world.post("/v1/solves", WORKER, &[], &turnstile("0x4A")).await.json()["id"].to_string();
    let path = format!("/v1/solves/{}", claim.trim_matches('"'));
    let served = world.get(&format!("{path}?wait=30"), WORKER).await;
    let token = served.json()["token"].as_str().unwrap().to_owned();
    for admin in [READER, OPERATOR, ADMIN] {
        for path in [path.clone(), format!("{path}/explain"), "/v1/history".into()] {
            let answer = world.get(&path, admin).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert!(!answer.body.contains(&token), "{path}: {answer:?}");
        }
    }
}
