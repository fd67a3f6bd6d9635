use super::*;
use crate::{challenge::ChallengeParts, site::Opened};

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

fn site(rule: &str, expires: Option<&str>) -> Site {
    Site {
        expires: expires.map(|day| day.parse().unwrap()),
        ambiguous: AmbiguousPolicy::Never,
        key_ignores_proxy: true,
        opened: Opened { methods: vec!["yandex".into()], ..Opened::default() },
        ..Site::new(rule.parse().unwrap(), "own shop")
    }
}

fn page(url: &str) -> PageUrl {
    PageUrl::parse(url).unwrap()
}

fn name(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

/// A challenge with every part that any kind needs, as far as this one may have it.
fn challenge(kind: &Kind, pageurl: Option<&str>) -> Challenge {
    let may_have = |name: &&str| kind.has_param(name);
    let params = ["challenge", "textcaptcha", "instructions", "proxy", "proxytype"].into_iter();
    let files = ["body", "image_base64_1"].into_iter().filter(may_have);
    let parts = ChallengeParts {
        sitekey: Some("key".into()),
        pageurl: pageurl.map(page),
        params: params.filter(may_have).map(|name| (name.to_owned(), "x".to_owned())).collect(),
        files: files.map(|name| (name.to_owned(), vec![1, 2, 3])).collect(),
    };
    Challenge::new(kind.clone(), parts).unwrap()
}

fn declarations(images: Option<Images>) -> Declarations {
    let narrow: Arc<[HostRule]> = ["shop.example.com".parse().unwrap()].into();
    let workers = [
        (name("wide"), WorkerScope::FULL),
        (name("narrow"), WorkerScope { sites: Some(Arc::clone(&narrow)), images: false }),
        (name("both"), WorkerScope { sites: Some(narrow), images: true }),
    ];
    Declarations {
        sites: vec![site("shop.example.com", None), site("*.corp.example.org", None)],
        images,
        workers: KnownWorkers::Listed(workers.into()),
    }
}

/// Every kind, with a page that is declared, one that is not, and none, with every declaration of images, for workers of
/// every scope.
#[test]
fn what_is_allowed_follows_from_kind_page_images_and_worker() {
    let pages = [
        None,
        Some("https://shop.example.com/login"),
        Some("https://a.corp.example.org/"),
        Some("https://else.example.net/"),
    ];
    let images = [None, Some(Images::new("own forms")), Some(Images::all_kinds("own forms"))];
    for kind in Kind::known().chain([Kind::Other("yandex".into())]) {
        for pageurl in pages {
            if pageurl.is_none() && !kind.is_pageless() {
                continue;
            }
            for images in &images {
                for worker in ["wide", "narrow", "both", "gone", POOL] {
                    let checked = declarations(images.clone()).check(
                        &challenge(&kind, pageurl),
                        &name(worker),
                        NOW,
                    );
                    let narrowed = matches!(worker, "narrow" | "both");
                    let page_ok = match pageurl {
                        None | Some("https://shop.example.com/login") => true,
                        Some("https://a.corp.example.org/") => !narrowed,
                        Some(_) => false,
                    };
                    let images_ok = images.as_ref().is_some_and(|i| i.kinds.contains(&kind));
                    let picture_ok = !kind.is_pageless() || (images_ok && worker != "narrow");
                    let expected = worker != "gone" && page_ok && picture_ok;
                    assert_eq!(checked.is_ok(), expected, "{kind:?} {pageurl:?} {worker}");
                    if let Ok(terms) = checked {
                        let basis = if kind.is_pageless() { "own forms" } else { "own shop" };
                        assert_eq!(&*terms.basis, basis);
                        assert_eq!(terms.identity.ignores_proxy, pageurl.is_some());
                    }
                }
            }
        }
    }
}

#[test]
fn a_refusal_says_what_to_declare() {
    let declared = declarations(Some(Images::new("own forms")));
    let why = |kind: Kind, pageurl, worker| {
        declared.check(&challenge(&kind, pageurl), &name(worker), NOW).unwrap_err().to_string()
    };
    let shop = Some("https://shop.example.com/login");
    assert!(why(Kind::Grid, shop, "wide").contains("`kinds` in [images]"));
    assert!(why(Kind::Image, shop, "narrow").contains("`images = true`"));
    assert!(why(Kind::Turnstile, shop, "gone").contains("the worker gone is not configured"));
    let corp = Some("https://a.corp.example.org/");
    assert!(why(Kind::Turnstile, corp, "both").contains("`sites`"));
    let elsewhere = Some("https://else.example.net/");
    assert!(why(Kind::Image, elsewhere, "wide").contains("else.example.net is not declared"));
}

#[test]
fn a_declaration_ends_after_its_last_day() {
    let sites = vec![site("shop.example.com", Some("2026-06-30"))];
    let images = Images { expires: Some("2026-06-30".parse().unwrap()), ..Images::new("forms") };
    let declared = Declarations { sites, images: Some(images), ..Declarations::default() };
    let check = |kind: &Kind, pageurl, day: &str| {
        let now = day.parse::<Day>().unwrap().start();
        declared.check(&challenge(kind, pageurl), &name("wide"), now)
    };
    let shop = Some("https://shop.example.com/");
    assert!(check(&Kind::Turnstile, shop, "2026-06-30").is_ok());
    assert!(matches!(
        check(&Kind::Turnstile, shop, "2026-07-01"),
        Err(SiteRefusal::Expired { .. })
    ));
    assert!(check(&Kind::Image, None, "2026-06-30").is_ok());
    let ended = check(&Kind::Image, None, "2026-07-01");
    assert!(matches!(ended, Err(SiteRefusal::ImagesExpired(_))));
}
