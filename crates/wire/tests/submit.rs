//! in.php: the challenges that forms become, and the forms that are refused before anything is paid.

use std::collections::BTreeMap;

use domain::{
    challenge::{BadChallenge, Challenge, Kind},
    fingerprint::{Fingerprint, Identity},
    retry::Code,
};
use wire::{
    code,
    form::{BadForm, Form},
    submit::{self, BadPart, V1Parts},
};

const PAGE: &str = "https://shop.example.com/login";

fn submitted(query: &str) -> Result<Challenge, Code> {
    let form = Form::read(Some(query), None, b"")?;
    submit::read(&form).map(|submit| submit.challenge).map_err(|refused| refused.code)
}

fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn parts(sitekey: &str, pairs: &[(&str, &str)]) -> V1Parts {
    let (sitekey, pageurl) = (Some(sitekey.to_owned()), Some(PAGE.to_owned()));
    V1Parts { sitekey, pageurl, params: params(pairs), image: None }
}

fn picture(pairs: &[(&str, &str)]) -> V1Parts {
    V1Parts { params: params(pairs), image: Some(b"GIF89a".to_vec()), ..V1Parts::default() }
}

#[test]
fn both_doors_make_the_same_challenge() {
    let page = format!("pageurl={PAGE}");
    let cases = [
        (
            Kind::RecaptchaV2,
            parts("k", &[("invisible", "1")]),
            "method=userrecaptcha&googlekey=k&invisible=1",
        ),
        (Kind::RecaptchaV3, parts("k", &[]), "method=userrecaptcha&googlekey=k&version=v3"),
        (
            Kind::RecaptchaV3,
            parts("k", &[("version", "v3")]),
            "method=userrecaptcha&googlekey=k&version=v3",
        ),
        (Kind::Hcaptcha, parts("k", &[]), "method=hcaptcha&sitekey=k"),
        (Kind::Turnstile, parts("k", &[("action", "a")]), "method=turnstile&sitekey=k&action=a"),
        (Kind::Geetest, parts("k", &[("challenge", "c")]), "method=geetest&gt=k&challenge=c"),
        (Kind::GeetestV4, parts("k", &[]), "method=geetest&version=4&captcha_id=k"),
        (Kind::GeetestV4, parts("k", &[]), "method=geetest_v4&captcha_id=k"),
        (Kind::Funcaptcha, parts("k", &[]), "method=funcaptcha&publickey=k"),
        (
            Kind::Other("lemin".into()),
            parts("k", &[("div_id", "d")]),
            "method=lemin&sitekey=k&div_id=d",
        ),
        (
            Kind::CloudflareChallenge,
            V1Parts { sitekey: None, ..parts("", &[("proxy", "h:1"), ("proxytype", "HTTP")]) },
            "method=cloudflare_challenge&proxy=h:1&proxytype=HTTP",
        ),
    ];
    for (kind, parts, query) in cases {
        let v1 = submit::challenge(kind, parts).unwrap();
        assert_eq!(submitted(&format!("{query}&{page}")), Ok(v1), "{query}");
    }
}

#[test]
fn both_doors_make_the_same_challenge_of_a_picture() {
    let body = "body=R0lGODlh";
    let cases = [
        (Kind::Image, picture(&[("numeric", "1")]), "method=base64&numeric=1"),
        (Kind::Image, picture(&[]), ""),
        (Kind::Grid, picture(&[]), "method=post&recaptcha=1"),
        (Kind::Grid, picture(&[("img_type", "recaptcha")]), "method=base64&img_type=recaptcha"),
        (Kind::Coordinates, picture(&[]), "method=base64&coordinatescaptcha=1"),
        (Kind::Rotate, picture(&[("angle", "40")]), "method=rotatecaptcha&angle=40"),
    ];
    for (kind, parts, query) in cases {
        let v1 = submit::challenge(kind, parts).unwrap();
        assert_eq!(submitted(&format!("{query}&{body}")), Ok(v1), "{query}");
    }
    let question = V1Parts { params: params(&[("textcaptcha", "2+2")]), ..V1Parts::default() };
    let v1 = submit::challenge(Kind::TextQuestion, question).unwrap();
    assert_eq!(submitted("method=post&textcaptcha=2%2B2"), Ok(v1));
}

#[test]
fn a_challenge_is_what_its_parts_say_not_what_it_is_called() {
    let refused = |kind: Kind, parts| submit::challenge(kind, parts).unwrap_err();
    for (kind, parts, means) in [
        (Kind::RecaptchaV2, parts("k", &[("version", "v3")]), Kind::RecaptchaV3),
        (Kind::Other("userrecaptcha".into()), parts("k", &[("googlekey", "k")]), Kind::RecaptchaV2),
        (Kind::Image, picture(&[("recaptcha", "1")]), Kind::Grid),
        (Kind::TextQuestion, picture(&[("textcaptcha", "2+2")]), Kind::Image),
    ] {
        assert_eq!(refused(kind.clone(), parts), BadPart::OtherKind { given: kind, means });
    }
    let twice = refused(Kind::Turnstile, parts("k", &[("pageurl", "https://evil.example/")]));
    assert_eq!(twice, BadPart::Twice("pageurl".into()));
    assert_eq!(
        refused(Kind::Image, picture(&[("body", "R0lGODlh")])),
        BadPart::Twice("body".into())
    );
    let reserved = refused(Kind::Turnstile, parts("k", &[("key", "x")]));
    assert_eq!(reserved, BadPart::Challenge(BadChallenge::Reserved("key".into())));
}

#[test]
fn no_name_can_stand_in_for_a_checked_field() {
    let query = format!("method=turnstile&sitekey=k&pageurl={PAGE}");
    for shadow in [
        "pageurl[]",
        "pageurl[0]",
        "pageurl[x",
        "sitekey[]",
        "key[]",
        "method[a]",
        "soft.id",
        "PageUrl",
        "PAGEURL",
        "page_url",
        "url",
        "websiteURL",
        "websiteKey",
        "googlekey",
        "Pingback",
        "callback",
        "callbackUrl",
        "softId",
        "Key",
    ] {
        let given = submitted(&format!("{query}&{shadow}=x"));
        assert_eq!(given, Err(code::ERROR_BAD_PARAMETERS.into()), "{shadow}");
    }
    assert!(submitted(&format!("{query}&data[blob]=x")).is_ok());
}

#[test]
fn pictures_differ_by_their_whole_content() {
    let of = |body: &str| {
        let challenge = submitted(&format!("method=base64&body={body}")).unwrap();
        Fingerprint::of(&challenge, Identity::default())
    };
    let start = "iVBORw0KGgo".to_owned() + &"A".repeat(101);
    assert_ne!(of(&format!("{start}ONEx")), of(&format!("{start}TWOx")));
    assert_eq!(of(&start), of(&format!("data:image/png;base64,{start}")));
}

#[test]
fn too_much_is_refused() {
    let large = vec![b'A'; 2 * 1024 * 1024 + 1];
    assert_eq!(Form::read(None, None, &large), Err(BadForm::TooLarge));
    let many: Vec<String> = (0..81).map(|n| format!("p{n}=1")).collect();
    assert_eq!(Form::read(Some(&many.join("&")), None, b""), Err(BadForm::TooMany));
    let picture = "A".repeat(4 * (1024 * 1024 / 3 + 1));
    let refused = submitted(&format!("method=base64&body={picture}"));
    assert_eq!(refused, Err(code::ERROR_TOO_BIG_CAPTCHA_FILESIZE.into()));
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(33), "]".repeat(33));
    assert!(matches!(Form::read(None, None, deep.as_bytes()), Err(BadForm::Malformed(_))));
}

#[test]
fn hostile_multipart_is_refused() {
    let read =
        |content_type: &str, body: &str| Form::read(None, Some(content_type), body.as_bytes());
    let part =
        |n: usize| format!("--b\r\nContent-Disposition: form-data; name=\"p{n}\"\r\n\r\n1\r\n");
    let many: String = (0..71).map(part).collect();
    let typed = "multipart/form-data; boundary=b";
    assert_eq!(read(typed, &format!("{many}--b--")), Err(BadForm::TooMany));
    let twice = format!("{}{}--b--", part(1), part(1));
    assert_eq!(read(typed, &twice), Err(BadForm::Repeated("p1".into())));
    let nameless = "--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--";
    for (content_type, body) in [
        (typed, part(1).as_str()),
        (typed, nameless),
        (typed, "--b"),
        ("multipart/form-data; boundary=\"\"", "----"),
        (&format!("multipart/form-data; boundary={}", "b".repeat(10_000)), "x"),
        ("multipart/mixed; boundary=b", "--b--"),
    ] {
        assert!(
            matches!(read(content_type, body), Err(BadForm::Malformed(_))),
            "{content_type} {body}"
        );
    }
}

#[test]
fn a_file_is_taken_only_where_a_picture_belongs() {
    let upload = |name: &str| {
        let head = format!("form-data; name=\"{name}\"; filename=\"a\"");
        let body = format!("--b\r\nContent-Disposition: {head}\r\n\r\nGIF89a\r\n--b--");
        let form = Form::read(
            Some("method=post"),
            Some("multipart/form-data; boundary=b"),
            body.as_bytes(),
        );
        submit::read(&form.unwrap()).map(|submit| submit.challenge).map_err(|refused| refused.code)
    };
    assert!(upload("file").is_ok());
    for name in ["key", "pageurl", "other", "file_x"] {
        assert_eq!(upload(name), Err(code::ERROR_UPLOAD.into()), "{name}");
    }
}

#[test]
fn a_form_shows_no_values() {
    let form = Form::read(Some("key=canary&proxy=canary&pageurl=canary"), None, b"").unwrap();
    let shown = format!("{form:?}");
    assert!(!shown.contains("canary") && shown.contains("proxy"), "{shown}");
    let body = br#"{"status":1,"request":["canary"]}"#;
    let garbled = submit::read_reply(body).unwrap_err();
    assert!(!format!("{garbled} {garbled:?}").contains("canary"));
}

#[test]
fn a_text_that_is_not_utf8_is_refused() {
    assert!(matches!(Form::read(Some("sitekey=%ff%fe"), None, b""), Err(BadForm::Malformed(_))));
    assert!(matches!(Form::read(None, None, b"{\"a\":\"\xff\"}"), Err(BadForm::Malformed(_))));
}

#[test]
fn only_a_well_formed_reply_decides_about_a_submission() {
    for garbled in [
        "",
        " ",
        "OK",
        "OK|",
        "OK| ",
        "OK|<html>",
        "OK|ERROR_ZERO_BALANCE",
        "OK|12|34",
        "ok|12",
        "CAPCHA_NOT_READY",
        "ERROR",
        "ERROR_",
        "ERROR_NO",
        "ERROR_NO_SLOT_AVAILABLE extra",
        "NULL",
        "<html>ERROR_ZERO_BALANCE</html>",
        "https://2captcha.com/why",
        "[]",
        "{}",
        r#"{"status":1}"#,
        r#"{"status":1,"request":""}"#,
        r#"{"status":1,"request":null}"#,
        r#"{"status":1,"request":1.5}"#,
        r#"{"status":1,"request":-5}"#,
        r#"{"status":2,"request":"5"}"#,
        r#"{"status":true,"request":"5"}"#,
        r#"{"request":"ERROR_ZERO_BALANCE"}"#,
        r#"{"status":0,"request":"Internal Server Error"}"#,
        r#"{"status":0,"request":"CAPCHA_NOT_READY"}"#,
        r#"{"status":0,"request":5}"#,
        r#"{"status":0,"status":1,"request":"5"}"#,
        r#"{"status":1,"request":"5"}{"#,
    ] {
        assert!(submit::read_reply(garbled.as_bytes()).is_err(), "{garbled}");
    }
    assert!(submit::read_reply(format!("OK|{}", "9".repeat(65)).as_bytes()).is_err());
    assert!(submit::read_reply(b"OK|\xff").is_err());
    for accepted in ["OK|5", "OK|5\r\n", r#" {"status":"1","request":5} "#, "\u{feff}OK|5"] {
        let read = submit::read_reply(accepted.as_bytes()).unwrap();
        assert_eq!(submit::write_reply(&read, false), "OK|5", "{accepted}");
    }
}
