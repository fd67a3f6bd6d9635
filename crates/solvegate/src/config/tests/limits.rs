//! The limits of a worker and of the queue.

use super::*;

fn worker(more: &str) -> String {
    format!("[[worker]]\nname = \"a\"\nkey = \"{KEY}\"\n{more}\n")
}

#[test]
fn every_worker_has_limits_and_may_charge_its_own_project() {
    let config = load(&worker(""), &NOTHING).unwrap();
    let [worker] = &config.workers[..] else { panic!("{:?}", config.workers) };
    let rates = (worker.rate, worker.poll_rate.to_string(), worker.read_rate.to_string());
    assert_eq!(rates, (None, "500/s".to_owned(), "20/s".to_owned()));
    assert_eq!((worker.queue, &worker.projects[..]), (1000, &[][..]));
    assert!(worker.balance, "clients ask for it at their start");
    assert_eq!(config.claims.max_queued, 10_000);
}

#[test]
fn limits_are_read() {
    let more = "projects = [\"returns\"]\npoll_rate = \"3/m\"\nread_rate = \"2/h\"\nqueue = 7\nbalance = false";
    let config = load(&format!("max_queued = 50\n{}", worker(more)), &NOTHING).unwrap();
    let worker = &config.workers[0];
    assert_eq!(
        (worker.poll_rate.to_string(), worker.read_rate.to_string()),
        ("3/m".into(), "2/h".into())
    );
    assert_eq!((worker.queue, worker.projects[0].as_str()), (7, "returns"));
    assert!(!worker.balance);
    assert_eq!(config.claims.max_queued, 50);
}

#[test]
fn a_bad_limit_is_refused_with_its_key() {
    let many: Vec<_> = (0..101).map(|n| format!("\"p{n}\"")).collect();
    let many = worker(&format!("projects = [{}]", many.join(",")));
    for (text, key, why) in [
        ("max_queued = 0\n".to_owned(), "max_queued", "is not from 1 to 100000"),
        ("max_queued = 100001\n".to_owned(), "max_queued", "is not from 1 to 100000"),
        (worker("queue = 0"), "queue", "is not from 1 to 100000"),
        (worker("balance = \"no\""), "balance", "expected true or false"),
        (worker("poll_rate = \"fast\""), "poll_rate", "write it as 20/s, 300/m or 1000/h"),
        (worker("read_rate = \"0/s\""), "read_rate", "write it as 20/s, 300/m or 1000/h"),
        (worker("projects = [\"a b\"]"), "projects", "1-64 characters"),
        (many, "projects", "names 101 projects; a worker may have 100 at most"),
    ] {
        let said = refusal(&text);
        assert!(said.contains(key) && said.contains(why), "{text}: {said}");
    }
}
