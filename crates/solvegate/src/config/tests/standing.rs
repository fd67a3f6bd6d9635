//! Pools, polling and pingbacks.

use domain::pool::Level;
use engine::PoolWish;

use super::*;

const SHOP: &str = "[[site]]\nhost = \"shop.example.net\"\nbasis = \"own shop\"\n";

fn pool(more: &str) -> String {
    format!(
        "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4A\"\n\
         pageurl = \"https://shop.example.net/login\"\n{more}\n"
    )
}

fn one_pool(more: &str) -> PoolWish {
    load(&format!("{SHOP}{}", pool(more)), &NOTHING).unwrap().pools.remove(0)
}

#[test]
fn a_pool_is_automatic_and_modest_unless_it_says_more() {
    let usual = one_pool("");
    assert_eq!((usual.level, usual.most, usual.waste), (Level::Auto, 20, 100));
    assert_eq!(usual.project.as_str(), "pool");
    let own = one_pool(
        "level = 3\nmax = 3\nwaste = 0\nproject = \"qa\"\nparams = { action = \"x\", data = 1, lang = true }",
    );
    assert_eq!((own.level, own.most, own.waste), (Level::Fixed(3), 3, 0));
    let params: Vec<_> = own.challenge.params().values().map(String::as_str).collect();
    assert_eq!((own.project.as_str(), params), ("qa", vec!["x", "1", "1"]));
    assert_eq!(one_pool("level = \"auto\"\nwaste = 1").waste, 1000);
}

#[test]
fn a_pool_that_cannot_be_kept_is_refused_with_the_reason() {
    let of_kind = |kind: &str, more: &str| format!("{SHOP}[[pool]]\nkind = \"{kind}\"\n{more}");
    let page = "sitekey = \"k\"\npageurl = \"https://shop.example.net/\"";
    let cases = [
        (format!("{SHOP}{}", pool("level = 21")), "level is not"),
        (format!("{SHOP}{}", pool("level = 0")), "level is not"),
        (format!("{SHOP}{}", pool("level = \"many\"")), "expected \"auto\" or a whole number"),
        (format!("{SHOP}{}", pool("level = 1.5")), "expected \"auto\" or a whole number"),
        (format!("{SHOP}{}", pool("max = 0")), "max is not from 1"),
        (format!("{SHOP}{}", pool("waste = 1.1")), "waste is not from 0"),
        (format!("{SHOP}{}", pool("waste = -0.1")), "waste is not from 0"),
        (format!("{SHOP}{}", pool("project = \"a b\"")), "project"),
        (format!("{SHOP}{}{}", pool(""), pool("level = 2")), "number 2: is for the same challenge"),
        (pool("").replace("example.net", "example.edu"), "shop.example.edu"),
        (format!("{SHOP}[[pool]]\nlevel = 1"), "kind is missing"),
        (of_kind("turnstile", "pageurl = \"https://shop.example.net/\""), "needs `sitekey`"),
        (
            of_kind(
                "cloudflare_challenge",
                &format!("{page}\nparams = {{ proxy = \"h:1\", proxytype = \"HTTP\" }}"),
            ),
            "not kept ready",
        ),
        (of_kind("image", ""), "not kept ready"),
        (format!("{SHOP}{}", pool("levle = 3")), "did you mean `level`?"),
    ];
    for (text, says) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(says), "{text}\n{refusal}");
    }
}

#[test]
fn polling_is_learned_unless_somebody_says_when() {
    let polling = |text: &str| load(text, &NOTHING).unwrap().polling;
    let min_gap = |text: &str| match polling(text).schedule {
        Schedule::Learned(learned) => Some(learned.min_gap),
        Schedule::Fixed(_) => None,
    };
    assert_eq!(min_gap(""), Some(Duration::from_millis(250)), "pleasant with the simulator");
    let real = load("", &[("CAPTCHAAI_API_KEY", "abc")]).unwrap().polling.schedule;
    assert!(
        matches!(real, Schedule::Learned(l) if l.min_gap == Duration::from_secs(1) && l.most == 20)
    );
    assert_eq!(min_gap("[polling]\nmin_gap = \"2s\""), Some(Duration::from_secs(2)));
    for fixed in ["mode = \"fixed\"", "first = \"2s\"", "interval = \"2s\""] {
        assert_eq!(min_gap(&format!("[polling]\n{fixed}")), None, "{fixed}");
    }
    assert!(polling("").batches && !polling("[polling]\nbatch = false").batches);
    let says = refusal("[polling]\nmode = \"learned\"\nfirst = \"2s\"");
    assert!(says.contains("belong to mode = \"fixed\""), "{says}");
    assert!(refusal("[polling]\nmode = \"psychic\"").contains("expected \"learned\" or \"fixed\""));
}

#[test]
fn the_service_calls_back_only_where_tokens_are_safe() {
    let pingback = |url: &str| load(&format!("[upstream]\npingback_url = \"{url}\""), &NOTHING);
    for (url, base) in [
        ("https://gate.example.com", "https://gate.example.com/-/pingback/"),
        ("https://gate.example.com:8443/sg/", "https://gate.example.com:8443/sg/-/pingback/"),
        ("http://127.0.0.1:8402", "http://127.0.0.1:8402/-/pingback/"),
    ] {
        assert_eq!(pingback(url).unwrap().upstream.pingback.unwrap().base(), base);
    }
    for (url, says) in [
        ("http://gate.example.com", "read on the way"),
        ("ftp://gate.example.com", "expected https://"),
        ("gate.example.com", "this gateway's own address"),
        ("https://u:p@gate.example.com", "must not hold"),
        ("https://gate.example.com/?a=1", "must not hold"),
        ("https://gate.example.com/#a", "must not hold"),
    ] {
        let refusal = pingback(url).unwrap_err();
        assert!(refusal.contains(says) && !refusal.contains("u:p@"), "{url}: {refusal}");
    }
    assert!(refusal("[upstream]\npingback_secret = \"x\"").contains("has no effect without it"));
    let short = "[upstream]\npingback_url = \"https://g.example\"\npingback_secret = \"short\"";
    assert!(refusal(short).contains("shorter than 16"));
}

#[test]
fn names_the_gateway_writes_under_are_no_workers() {
    for name in ["pool", "admin"] {
        let says = refusal(&format!("[[worker]]\nname = \"{name}\"\nkey = \"{KEY}\""));
        assert!(says.contains("choose another"), "{says}");
    }
}

#[test]
fn pools_need_a_restart_and_a_reload_says_so() {
    let [old, new] = ["", "level = 2"].map(|more| load(&format!("{SHOP}{}", pool(more)), &NOTHING));
    assert_eq!(old.unwrap().needs_restart(&new.unwrap()), ["[[pool]]"]);
}
