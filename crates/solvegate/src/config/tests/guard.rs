//! What a site opens and pins, and unknown kinds.

use super::*;

fn site(extra: &str) -> String {
    format!("[[site]]\nhost = \"shop.example.com\"\nbasis = \"own\"\n{extra}\n")
}

#[test]
fn a_site_opens_methods_and_parameters_and_pins_keys() {
    let text = site(
        "owner = \" qa \"\nmethods = [\"yandex\"]\nparams = [\"div_id\", \"captcha_id\"]\nsitekeys = [\"k-1\"]",
    );
    let prices =
        "[upstream]\nprice_per_1000 = { yandex = 2.0 }\n[tokens.yandex]\nlifetime = \"60s\"";
    let config = load(&format!("{prices}\n{text}"), &NOTHING).unwrap();
    let site = &config.declarations.sites[0];
    assert_eq!(site.owner.as_deref(), Some("qa"));
    assert_eq!(site.opened.methods, ["yandex"]);
    assert_eq!(site.opened.params, ["div_id", "captcha_id"]);
    assert_eq!(site.opened.sitekeys, ["k-1"]);
}

#[test]
fn mistakes_in_what_a_site_opens_are_refused_with_the_way_out() {
    let cases: Vec<(String, &str)> = vec![
        (site("owner = \" \""), "owner: is empty; name a person or team"),
        (site("owner = 5"), "owner: expected a string"),
        (site("methods = \"yandex\""), "methods: expected a list of strings"),
        (site("methods = [\"Yandex!\"]"), "is not a name of 1-40 lower-case letters"),
        (site("methods = [\"turnstile\"]"), "is a known kind, which is open already"),
        (site("methods = [\"userrecaptcha\"]"), "is the method of a known kind"),
        (site("methods = [\"other\"]"), "not \"other\""),
        (site("after_failure = \"retry\""), "expected \"reopen\" or \"replay\""),
        (site("after_failure = true"), "expected \"reopen\" or \"replay\""),
        ("failure_window = \"25h\"".into(), "is longer than the 24h that a key is kept"),
        ("failure_window = \"soon\"".into(), "is not a duration such as \"5s\""),
        ("failure_windw = \"30s\"".into(), "did you mean `failure_window`?"),
        (site("params = [\"page_url\"]"), "`page_url` would stand in for a field"),
        (site("params = [\"websiteKey\"]"), "`websiteKey` would stand in for a field"),
        (site("params = [\"a b\"]"), "is not 1-64 letters"),
        (site("sitekeys = [\"\"]"), "has an empty site key"),
        (site("sitekeys = [\"a&b\"]"), "is not 1-512 visible ASCII"),
        ("[upstream]\nprice_per_1000 = { turnstyle = 1 }".into(), "did you mean \"turnstile\"?"),
        ("[tokens.hcapcha]\nlifetime = \"60s\"".into(), "did you mean \"hcaptcha\"?"),
        (
            "[[pool]]\nkind = \"turnstyle\"\nsitekey = \"k\"\npageurl = \"https://example.com/\""
                .into(),
            "did you mean \"turnstile\"?",
        ),
        (
            "[[pool]]\nkind = \"turnstile\"\nsitekey = \"k k\"\npageurl = \"https://example.com/\""
                .into(),
            "`sitekey` is not 1-512",
        ),
        (
            "[[pool]]\nkind = \"turnstile\"\nsitekey = \"k\"\npageurl = \"https://example.com/\"\n\
             params = { acton = \"x\" }"
                .into(),
            "did you mean \"action\"?",
        ),
    ];
    for (text, says) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(says), "{text}\n  said: {refusal}");
    }
}
