//! Properties of every form, challenge and reply.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;

use domain::{
    challenge::{Challenge, Kind, RESERVED},
    id::{AttemptName, Nonce, SolveId, TaskId},
    money::Money,
    ports::Threads,
    retry::Code,
    secret::Secret,
    token::Answer,
};
use proptest::{collection, option, prelude::*, sample};
use wire::{
    code,
    fetch::{self, AccountReply, Action, Many},
    form::Form,
    pingback,
    submit::{self, Dialect, V1Parts},
};

type Pairs = Vec<(String, String)>;

fn kinds() -> impl Strategy<Value = Kind> {
    let known: Vec<Kind> = Kind::known().collect();
    prop_oneof![
        4 => sample::select(known),
        1 => "x[a-z0-9_]{1,20}".prop_map(Kind::Other),
    ]
}

/// Parameters as real clients name them, some that tell kinds apart, and any other.
fn params() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = prop_oneof![
        2 => sample::select(vec![
            "action", "data-s", "data[blob]", "proxy", "proxytype", "userAgent", "min_score", "invisible", "lang",
            "imginstructions", "body", "file_1", "image_base64_2", "version", "recaptcha", "img_type", "domain",
        ]).prop_map(str::to_owned),
        1 => "[a-zA-Z][a-zA-Z0-9_-]{0,20}",
    ];
    // The replacement character is refused in a query: it stands where bytes were no text.
    let text = "\\PC{0,20}".prop_map(|text| text.replace('\u{fffd}', "?"));
    let values = prop_oneof!["[ -~]{0,30}", text, "[A-Za-z0-9+/]{4}", "[01v34]{1,2}"];
    collection::btree_map(names, values, 0..6)
}

fn pictures() -> impl Strategy<Value = Vec<u8>> {
    collection::vec(any::<u8>(), 1..200)
}

/// Challenges of every kind, made as the v1 door makes them.
fn challenges() -> impl Strategy<Value = Challenge> {
    let pages = sample::select(vec![
        "https://shop.example.com/login",
        "http://SHOP.example.com:8443/a/../b?q=1&r=%20#top",
        "https://xn--bcher-kva.example/ü?ä=|",
    ]);
    let parts = ("[!-\"$-%'-<>@-~]{1,60}", pages, params(), pictures());
    let made = (kinds(), parts).prop_map(|(kind, (sitekey, page, mut params, image))| {
        for needed in ["challenge", "proxy", "proxytype", "textcaptcha", "instructions"] {
            params.entry(needed.to_owned()).or_insert_with(|| "needed".to_owned());
        }
        let has_picture = kind.is_pageless() && kind != Kind::TextQuestion && kind != Kind::Bls;
        let (sitekey, pageurl) = (Some(sitekey), Some(page.to_owned()));
        let image = has_picture.then_some(image);
        submit::challenge(kind, V1Parts { sitekey, pageurl, params, image }).ok()
    });
    made.prop_filter_map("the parts contradict the kind", |made| made)
}

fn read(pairs: Pairs) -> Challenge {
    submit::read(&Form::from_pairs(pairs).unwrap()).unwrap().challenge
}

fn urlencoded(pairs: &Pairs) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Without quotes and line breaks in names, which no parameter has.
fn multipart(pairs: &Pairs) -> Vec<u8> {
    let part = |(name, value): &(String, String)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    (pairs.iter().map(part).collect::<String>() + "--b--\r\n").into_bytes()
}

/// Texts that plain text can carry: not empty, no line break at an end, not the looks of JSON.
fn answers() -> impl Strategy<Value = Answer> {
    let text = "[!-Z\\^-z]\\PC{0,40}[!-z]".prop_map(|text| (text, false));
    let object = params().prop_map(|members| (serde_json::to_string(&members).unwrap(), true));
    let extras = option::of(sample::select(vec![
        r#"{"useragent":"Mozilla/5.0"}"#,
        r#"{"cookies":{"a":[1, 2]},"n":12345678901234567890123,"result":"x"}"#,
    ]));
    (prop_oneof![4 => text, 1 => object], extras).prop_map(|((text, is_json), extras)| Answer {
        text: Secret::new(text),
        is_json,
        extras: extras.map(Secret::new),
    })
}

fn replies() -> impl Strategy<Value = fetch::FetchReply> {
    let refused: Vec<&str> = code::ALL_RES[2..].to_vec();
    prop_oneof![
        Just(fetch::FetchReply::NotReady),
        sample::select(refused).prop_map(|name| fetch::FetchReply::Refused(Code::new(name))),
        (answers(), 0..i64::MAX).prop_map(|(answer, micros)| {
            fetch::FetchReply::Answer { answer, price: Some(Money::from_micros(micros)) }
        }),
    ]
}

fn submissions() -> impl Strategy<Value = submit::SubmitReply> {
    prop_oneof![
        "[0-9a-zA-DF-Z][0-9a-zA-Z._:-]{0,63}"
            .prop_map(|id| submit::SubmitReply::Accepted(TaskId::new(id).unwrap())),
        sample::select(code::ALL_IN).prop_map(|name| submit::SubmitReply::Refused(Code::new(name))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_challenge_is_read_back_from_what_it_is_sent_as(challenge in challenges()) {
        for dialect in [Dialect::CaptchaAi, Dialect::TwoCaptcha] {
            prop_assert!(read(submit::fields_in(dialect, &challenge)) == challenge);
        }
    }

    #[test]
    fn every_wire_form_is_the_same_form(challenge in challenges()) {
        let pairs = submit::fields(&challenge);
        let form = Form::from_pairs(pairs.clone()).unwrap();
        let url = urlencoded(&pairs);
        let members: BTreeMap<_, _> = pairs.iter().cloned().collect();
        let json = serde_json::to_vec_pretty(&members).unwrap();
        prop_assert!(Form::read(Some(&url), None, b"").as_ref() == Ok(&form));
        prop_assert!(Form::read(None, Some("application/x-www-form-urlencoded"), url.as_bytes()).as_ref() == Ok(&form));
        prop_assert!(Form::read(None, Some("text/plain"), &json).as_ref() == Ok(&form));
        prop_assert!(Form::read(None, Some("multipart/form-data"), &json).as_ref() == Ok(&form));
        let sent = multipart(&pairs);
        prop_assert!(Form::read(None, Some("multipart/form-data; boundary=b"), &sent).as_ref() == Ok(&form));
    }

    #[test]
    fn the_order_of_parameters_never_matters(
        (challenge, shuffled) in challenges().prop_flat_map(|challenge| {
            let pairs = submit::fields(&challenge);
            (Just(challenge), Just(pairs).prop_shuffle())
        }),
    ) {
        prop_assert!(read(shuffled) == challenge);
    }

    #[test]
    fn reserved_fields_never_change_the_challenge(
        challenge in challenges(),
        reserved in sample::subsequence(RESERVED.to_vec(), 1..RESERVED.len()),
        value in "[ -~]{0,20}",
    ) {
        let mut pairs = submit::fields(&challenge);
        for name in reserved.into_iter().filter(|name| *name != "method") {
            pairs.push((name.to_owned(), value.clone()));
        }
        prop_assert!(read(pairs) == challenge);
    }

    #[test]
    fn no_request_makes_a_reader_panic(
        query in option::of("\\PC{0,200}"),
        content_type in option::of(prop_oneof![
            Just("multipart/form-data; boundary=b".to_owned()),
            Just("application/json".to_owned()),
            "multipart/form-data; boundary=[ -~]{0,20}",
            "\\PC{0,60}",
        ]),
        body in prop_oneof![
            collection::vec(any::<u8>(), 0..300),
            "(--b\r\n|Content-Disposition: form-data; name=\"[a-z]\"|\r\n|--b--|[a-z]|\\{|\"|:|,|\\}|&|=|%){0,40}".prop_map(String::into_bytes),
        ],
    ) {
        if let Ok(form) = Form::read(query.as_deref(), content_type.as_deref(), &body) {
            drop(submit::read(&form));
            drop(fetch::read(&form));
        }
    }

    #[test]
    fn no_fields_make_a_reader_panic(
        method in option::of(sample::select(vec![
            "post", "base64", "userrecaptcha", "geetest", "geetest_v4", "bls", "rotatecaptcha", "turnstile", "new",
        ])),
        mut pairs in collection::btree_map("[a-z_]{1,12}", "\\PC{0,30}", 0..8),
        more in params(),
    ) {
        pairs.extend(more);
        pairs.extend(method.map(|method| ("method".to_owned(), method.to_owned())));
        let form = Form::from_pairs(pairs).unwrap();
        if let Ok(submit) = submit::read(&form) {
            let sent = submit::fields(&submit.challenge);
            prop_assert!(read(sent) == submit.challenge);
        }
    }

    #[test]
    fn no_reply_makes_a_reader_panic(body in prop_oneof![
        collection::vec(any::<u8>(), 0..200),
        "(OK\\||\\{|\"status\":|\"request\":|[01]|,|\"|\\}|ERROR_|[A-Z]{1,5}|\\[|\\]|:|\\|){0,12}".prop_map(String::into_bytes),
    ]) {
        drop(submit::read_reply(&body));
        for priced in [false, true] {
            drop(fetch::read_reply(&body, priced));
        }
        for n in 0..4 {
            drop(fetch::read_many(&body, n));
        }
        drop((fetch::read_balance(&body), fetch::read_threads(&body), fetch::read_report(&body)));
    }

    #[test]
    fn a_submission_s_reply_is_read_back(reply in submissions()) {
        let written = [submit::write_reply(&reply, false), submit::write_reply(&reply, true), submit::write_reply_int_id(&reply)];
        for body in written {
            prop_assert_eq!(submit::read_reply(body.as_bytes()), Ok(reply.clone()), "{}", body);
        }
    }

    #[test]
    fn half_a_reply_to_a_submission_decides_nothing(reply in submissions(), cut in any::<sample::Index>()) {
        let whole = submit::write_reply(&reply, true);
        prop_assert!(submit::read_reply(&whole.as_bytes()[..cut.index(whole.len())]).is_err());
        if let submit::SubmitReply::Refused(_) = reply {
            let whole = submit::write_reply(&reply, false);
            prop_assert!(submit::read_reply(&whole.as_bytes()[..cut.index(whole.len())]).is_err());
        }
    }

    #[test]
    fn an_answer_is_read_back(reply in replies()) {
        let json = fetch::write_reply(&reply, true, true);
        prop_assert_eq!(fetch::read_reply(json.as_bytes(), true), Ok(reply.clone()), "{}", json);
        let plain = fetch::write_reply(&reply, false, true);
        let mut expected = reply;
        if let fetch::FetchReply::Answer { answer, .. } = &mut expected {
            answer.extras = None;
        }
        prop_assert_eq!(fetch::read_reply(plain.as_bytes(), true), Ok(expected), "{}", plain);
    }

    #[test]
    fn captcha_ai_s_result_is_the_same_answer(answer in answers()) {
        let body = fetch::write_result(&answer);
        let Ok(fetch::FetchReply::Answer { answer: read, .. }) = fetch::read_reply(body.as_bytes(), false) else {
            panic!("no answer in {body}");
        };
        prop_assert_eq!((read.text, read.is_json), (answer.text, answer.is_json));
    }

    #[test]
    fn many_answers_are_read_back(texts in collection::vec("[!-;=-Z^-z~]{1,30}", 2..6), json in any::<bool>()) {
        let reply = |text: &String| {
            let answer = Answer { text: Secret::new(text), is_json: false, extras: None };
            fetch::FetchReply::Answer { answer, price: None }
        };
        let mut replies: Vec<fetch::FetchReply> = texts.iter().map(reply).collect();
        replies.push(fetch::FetchReply::NotReady);
        replies.push(fetch::FetchReply::Refused(code::ERROR_CAPTCHA_UNSOLVABLE.into()));
        let body = fetch::write_many(&replies, json);
        prop_assert_eq!(fetch::read_many(body.as_bytes(), replies.len()), Ok(Many::Each(replies)), "{}", body);
    }

    #[test]
    fn an_answer_with_a_bar_never_moves_another_answer(
        mut texts in collection::vec("[a-zA-Z0-9=/+-]{1,20}", 2..6), at in any::<sample::Index>(), json in any::<bool>(),
    ) {
        let at = at.index(texts.len());
        texts[at].push_str("|jordan");
        let reply = |text: &String| {
            let answer = Answer { text: Secret::new(text), is_json: false, extras: None };
            fetch::FetchReply::Answer { answer, price: None }
        };
        let replies: Vec<fetch::FetchReply> = texts.iter().map(reply).collect();
        let body = fetch::write_many(&replies, json);
        prop_assert!(fetch::read_many(body.as_bytes(), replies.len()).is_err(), "{}", body);
    }

    #[test]
    fn one_code_for_several_ids_is_never_taken_for_theirs(
        code in sample::select([code::ALL_IN, code::ALL_RES].concat()), n in 2_usize..6, json in any::<bool>(),
    ) {
        let body = fetch::write_refusal(&code.into(), json);
        let read = fetch::read_many(body.as_bytes(), n);
        prop_assert!(!matches!(read, Ok(Many::Each(_))), "{}: {:?}", body, read);
    }

    #[test]
    fn only_the_maker_of_a_pingback_address_reads_it(
        solve in 1_u64.., attempt in any::<u32>(), nonce in 1_u64.., secret in "[ -~]{0,80}", other in "[ -~]{0,80}",
    ) {
        let (solve, nonce) = (SolveId::from_number(solve), Nonce::from_number(nonce));
        let (attempt, secret) = (AttemptName { solve, attempt, nonce }, Secret::new(secret));
        let path = pingback::path(attempt, &secret);
        prop_assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{}", path);
        prop_assert_eq!(pingback::read(&path, &secret), Some(attempt));
        let other = Secret::new(other);
        prop_assert!(other == secret || pingback::read(&path, &other).is_none());
    }

    #[test]
    fn no_pingback_makes_a_reader_panic(text in ".{0,80}", body in collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(pingback::read(&text, &Secret::new("secret")), None);
        drop(pingback::read_body(&body));
    }

    #[test]
    fn a_question_is_read_back(id in "[!-+.-~-]{1,30}", many in collection::vec("[0-9]{1,15}", 1..20), good in any::<bool>()) {
        let actions = [
            Action::Get(id.clone()), Action::GetPriced(id.clone()), Action::Report { id, good }, Action::GetMany(many),
            Action::Balance, Action::Threads, Action::Other("getstats".into()),
        ];
        for action in actions {
            let form = Form::from_pairs(fetch::fields(&action)).unwrap();
            prop_assert_eq!(fetch::read(&form).unwrap().action, action);
        }
    }

    #[test]
    fn what_is_told_of_the_account_is_read_back(micros in any::<i64>(), total in any::<u32>(), working in any::<u32>(), json in any::<bool>()) {
        let micros = micros.max(-i64::MAX);
        let balance = Money::from_micros(micros);
        prop_assert_eq!(fetch::read_balance(fetch::write_balance(balance, json).as_bytes()), Ok(AccountReply::Value(balance)));
        let threads = Threads { total, working };
        prop_assert_eq!(fetch::read_threads(fetch::write_threads(threads).as_bytes()), Ok(AccountReply::Value(threads)));
        prop_assert_eq!(fetch::read_report(fetch::write_report(json).as_bytes()), Ok(AccountReply::Value(())));
    }
}
