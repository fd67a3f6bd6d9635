//! Budgets, and the prices that they need.

use domain::{challenge::Kind, money::Money};

use super::*;

const PROVIDER: &str = "[upstream]\nurl = \"https://ocr.captchaai.com\"\nkey = \"account-key\"\n";
const SITE: &str = "[[site]]\nhost = \"shop.example.com\"\nbasis = \"own shop\"\n";

fn worker(budget: &str) -> String {
    format!("[[worker]]\nname = \"a\"\nkey = \"{KEY}\"\nbudget = {budget}\n")
}

fn prices(written: &str) -> String {
    format!("{PROVIDER}price_per_1000 = {written}\n")
}

#[test]
fn a_budget_is_per_day_and_month_for_workers_pools_and_the_account() {
    let all =
        "{ solves_per_day = 1, cost_per_day = 2.5, solves_per_month = 3, cost_per_month = 4 }";
    let pool = format!(
        "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4AAA\"\npageurl = \"https://shop.example.com/\"\nbudget = {all}\n"
    );
    let text = format!("{}budget = {all}\n{SITE}{}{pool}", prices("{ default = 1 }"), worker(all));
    let config = load(&text, &NOTHING).unwrap();
    let expected = domain::budget::Allowance {
        solves_per_day: Some(1),
        cost_per_day: Some(Money::from_micros(2_500_000)),
        solves_per_month: Some(3),
        cost_per_month: Some(Money::from_micros(4_000_000)),
    };
    let budgets = config.budgets();
    assert_eq!(budgets.account, expected);
    assert_eq!(budgets.of_worker(&config.workers[0].name), expected);
    assert_eq!(config.pools[0].budget, expected);
}

#[test]
fn variants_and_other_kinds_have_prices() {
    let written = "{ recaptcha_v2 = 1, recaptcha_v2_enterprise = 3, default = 0.5 }";
    let list = load(&prices(written), &NOTHING).unwrap().upstream.prices;
    assert_eq!(list.of_kind(&Kind::RecaptchaV2), Some(Money::from_micros(1000)));
    assert_eq!(list.enterprise[&Kind::RecaptchaV2], Money::from_micros(3000));
    assert_eq!(list.of_kind(&Kind::Image), Some(Money::from_micros(500)));
    let refused = load(&prices("{ turnstile_enterprise = 3 }"), &NOTHING).unwrap_err();
    assert!(refused.contains("unknown kind \"turnstile_enterprise\""), "{refused}");
}

#[test]
fn a_budget_of_money_without_a_price_names_what_is_missing() {
    let one = "{ cost_per_month = 5 }";
    let images = "[images]\nbasis = \"own forms\"\n";
    let known = "{ recaptcha_v2 = 1, recaptcha_v3 = 1, hcaptcha = 1, turnstile = 1, geetest = 1, \
                 geetest_v4 = 1, funcaptcha = 1, cloudflare_challenge = 1 }";
    for (text, place, missing) in [
        (
            format!("{}{SITE}{}", prices("{ turnstile = 1 }"), worker(one)),
            "[[worker]] a budget",
            "hcaptcha",
        ),
        (
            format!("{}{SITE}{images}{}", prices(known), worker(one)),
            "[[worker]] a budget",
            "image, text",
        ),
        (
            format!("{}budget = {one}\n{SITE}{images}", prices(known)),
            "[upstream] budget",
            "image, text",
        ),
        (
            format!(
                "{}{SITE}[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4AAA\"\n\
                 pageurl = \"https://shop.example.com/\"\nbudget = {one}\n",
                prices("{ hcaptcha = 1 }")
            ),
            "[[pool]] number 1 budget",
            "turnstile",
        ),
    ] {
        let refused = load(&text, &NOTHING).unwrap_err();
        assert!(refused.starts_with(place) && refused.contains(missing), "{refused}");
        assert!(refused.contains("price_per_1000"), "{refused}");
    }
    // A worker that is kept to sites sends no pictures; numbers of solves need no price; the simulator's are known.
    let kept = worker(one).replace("budget", "sites = [\"shop.example.com\"]\nbudget");
    for text in [
        format!("{}{SITE}{images}{kept}", prices(known)),
        format!("{PROVIDER}{SITE}{}", worker("{ solves_per_day = 5 }")),
        format!("[upstream]\nurl = \"sim\"\nbudget = {one}\n{SITE}{}", worker(one)),
    ] {
        load(&text, &NOTHING).unwrap();
    }
}

#[test]
fn new_budgets_have_to_fit_the_prices_in_force() {
    let old = load(&prices("{ turnstile = 1 }"), &NOTHING).unwrap();
    let priced = prices("{ default = 1 }");
    let new = load(&format!("{priced}{SITE}{}", worker("{ cost_per_day = 5 }")), &NOTHING).unwrap();
    assert!(new.check_budgets(&new.upstream.prices).is_ok());
    let refused = new.check_budgets(&old.upstream.prices).unwrap_err().to_string();
    assert!(refused.contains("recaptcha_v2"), "{refused}");
}

#[test]
fn a_plan_makes_budgets_of_money_computable_and_excludes_prices() {
    let plan = format!("{PROVIDER}plan = {{ monthly = 15.0, threads = 5 }}\ncurrency = \"USD\"\n");
    let budget = worker("{ cost_per_day = 0.5 }");
    let config = load(&format!("{plan}{SITE}{budget}"), &NOTHING).unwrap();
    let written = config.upstream.prices.plan.unwrap();
    assert_eq!((written.monthly, written.threads.get()), (Money::from_micros(15_000_000), 5));
    assert_eq!(config.upstream.currency.unwrap().to_string(), "USD");
    for (text, part) in [
        (format!("{plan}price_per_1000 = {{ default = 1 }}\n"), "exclude each other"),
        (format!("{PROVIDER}plan = {{ monthly = 15.0 }}\n"), "threads = 5"),
        (format!("{PROVIDER}plan = {{ threads = 5 }}\n"), "monthly = 15.0"),
        (format!("{PROVIDER}plan = {{ monthly = 0, threads = 5 }}\n"), "costs nothing"),
        (format!("{PROVIDER}plan = {{ monthly = 15, threads = 0 }}\n"), "threads"),
        (format!("{PROVIDER}plan = {{ monthy = 15, threads = 5 }}\n"), "monthly"),
        (format!("{PROVIDER}currency = \"dollars\"\n"), "currency"),
    ] {
        let refused = load(&text, &NOTHING).unwrap_err();
        assert!(refused.contains(part), "{refused}");
    }
}
