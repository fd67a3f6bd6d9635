//! `[[admin]]`, and `[admin]` for a single one.

use domain::actor::AdminRole;

use super::*;

const ONE: &str = "4c0f9a7e13b8d265e7a1904fc3d86b52";
const TWO: &str = "e81d5b30f7c6a942b05e3d7f9168c4a2";

fn admin(name: &str, key: &str, more: &str) -> String {
    format!("[[admin]]\nname = \"{name}\"\nkey = \"{key}\"\n{more}\n")
}

fn names(config: &Config) -> Vec<(&str, AdminRole)> {
    config.admins.iter().map(|admin| (admin.name.as_str(), admin.role)).collect()
}

#[test]
fn a_single_admin_needs_no_name_and_a_list_has_names_and_roles() {
    let single = load(&format!("[admin]\nkey = \"{ONE}\""), &NOTHING).unwrap();
    assert_eq!(names(&single), [("admin", AdminRole::Admin)]);
    let list = admin("rita", ONE, "role = \"reader\"") + &admin("admin", TWO, "");
    let list = load(&list, &NOTHING).unwrap();
    assert_eq!(names(&list), [("rita", AdminRole::Reader), ("admin", AdminRole::Admin)]);
    assert!(load("[admin]", &NOTHING).unwrap().admins.is_empty(), "a key is made");
}

#[test]
fn admins_are_set_by_the_environment_in_both_forms() {
    let single = load("", &[("SOLVEGATE_ADMIN__KEY", ONE)]).unwrap();
    assert_eq!(names(&single), [("admin", AdminRole::Admin)]);
    let numbered = [
        ("SOLVEGATE_ADMIN__0__KEY", ONE),
        ("SOLVEGATE_ADMIN__0__NAME", "rita"),
        ("SOLVEGATE_ADMIN__0__ROLE", "operator"),
    ];
    assert_eq!(names(&load("", &numbered).unwrap()), [("rita", AdminRole::Operator)]);
    let mixed = load(&admin("rita", ONE, ""), &[("SOLVEGATE_ADMIN__KEY", TWO)]).unwrap_err();
    assert!(mixed.contains("[[admin]] is not a table in the file"), "{mixed}");
}

#[test]
fn a_mistake_in_an_admin_is_named() {
    let worker = format!("[[worker]]\nname = \"rita\"\nkey = \"{TWO}\"\n");
    for (written, says) in [
        (admin("a", ONE, "") + &admin("a", TWO, ""), "[[admin]] a: the name is used twice"),
        (admin("a", ONE, "") + &admin("b", ONE, ""), "[[admin]] b: the key is used twice"),
        (admin("rita", ONE, "") + &worker, "[[worker]] rita: an admin has this name"),
        (admin("a", TWO, "") + &worker, "[[worker]] rita: the key is used twice"),
        (admin("pool", ONE, ""), "[[admin]] pool: the gateway itself uses this name"),
        (admin("sighup", ONE, ""), "[[admin]] sighup: the gateway itself uses this name"),
        (admin("a", ONE, "role = \"operater\""), "did you mean \"operator\"?"),
        (admin("a", ONE, "role = \"root\""), "expected \"reader\", \"operator\" or \"admin\""),
        (admin("a", ONE, "rolle = \"reader\""), "did you mean `role`?"),
        ("[[admin]]\nname = \"a\"".into(), "[[admin]] a: key is missing"),
        (format!("[[admin]]\nkey = \"{ONE}\""), "[[admin]] number 1: name is missing"),
        ("[admin]\nname = \"a\"".into(), "[admin]: name and role need a key"),
        ("[admin]\nrole = \"reader\"".into(), "[admin]: name and role need a key"),
        ("admin = 3".into(), "expected a list of tables"),
    ] {
        let refused = refusal(&written);
        assert!(refused.contains(says), "{written}: {refused}");
        assert!(!refused.contains(ONE) && !refused.contains(TWO), "{refused}");
    }
}
