//! Reads planned faults from JSON, with errors for a person who writes them by hand.

use domain::challenge::nearest;
use serde_json::{Map, Value};

use super::Planned;

/// The name of every fault, with an example if it has a value.
pub const FAULT_FORMS: [(&str, Option<&str>); 16] = [
    ("code", Some(r#"{"code":"ERROR_ZERO_BALANCE"}"#)),
    ("unreachable", None),
    ("drop", None),
    ("hang", None),
    ("status", Some(r#"{"status":502}"#)),
    ("too_many_requests", Some(r#"{"too_many_requests":{"retry_after":3}}"#)),
    ("garbage", None),
    ("truncated", None),
    ("html", None),
    ("empty", None),
    ("no_id", None),
    ("huge", None),
    ("trickle", Some(r#"{"trickle":3000}"#)),
    ("unsolvable", None),
    ("never_ready", None),
    ("same_task", None),
];

const MEMBERS: [&str; 5] = ["on", "fault", "accepted", "times", "rate"];
const CALLS: [&str; 3] = ["submit", "poll", "account"];
const EXAMPLE: &str = r#"{"on":"submit","fault":"drop","accepted":true}"#;

/// Reads one fault or a list of them.
pub fn read_plan(body: &[u8]) -> Result<Vec<Planned>, String> {
    let written: Value = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not JSON ({error}); send one fault, {EXAMPLE}, or a list of them")
    })?;
    if let Value::Array(all) = written {
        return all.into_iter().map(read_one).collect();
    }
    read_one(written).map(|planned| vec![planned])
}

fn read_one(written: Value) -> Result<Planned, String> {
    let Value::Object(members) = &written else {
        return Err(format!("a fault is an object, {EXAMPLE}"));
    };
    check_members(members)?;
    check_fault(&members["fault"])?;
    // What is left are values of a wrong type.
    serde_json::from_value(written).map_err(|error| {
        format!(
            "{error}; `times` is a whole number, `rate` one from 0 to 1, `accepted` true or false"
        )
    })
}

fn check_members(members: &Map<String, Value>) -> Result<(), String> {
    if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("unknown member `{unknown}`{}", meant(MEMBERS.into_iter(), unknown)));
    }
    if let Some(missing) = ["on", "fault"].into_iter().find(|name| !members.contains_key(*name)) {
        return Err(format!("`{missing}` is missing; write for example {EXAMPLE}"));
    }
    let on = members["on"].as_str().unwrap_or_default();
    if CALLS.contains(&on) {
        return Ok(());
    }
    Err(format!("`on` is {}{}", members["on"], meant(CALLS.into_iter(), on)))
}

fn check_fault(written: &Value) -> Result<(), String> {
    let (name, has_value) = match written {
        Value::String(name) => (name.as_str(), false),
        Value::Object(members) if members.len() == 1 => {
            (members.keys().next().map_or("", String::as_str), true)
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(
                "`fault` is a name, as \"drop\", or a name with its value, as {\"status\":502}"
                    .into(),
            );
        }
    };
    match (FAULT_FORMS.iter().find(|(known, _)| *known == name), has_value) {
        (None, _) => {
            let names = FAULT_FORMS.iter().map(|(known, _)| *known);
            Err(format!("unknown fault {name:?}{}", meant(names, name)))
        }
        (Some((_, Some(example))), false) => {
            Err(format!("the fault {name:?} needs a value: {example}"))
        }
        (Some((_, None)), true) => {
            Err(format!("the fault {name:?} has no value: write \"fault\":{name:?}"))
        }
        (Some((_, Some(_))), true) | (Some((_, None)), false) => Ok(()),
    }
}

/// Continues a message about an unknown name.
fn meant(known: impl Iterator<Item = &'static str> + Clone, written: &str) -> String {
    let all = known.clone().collect::<Vec<_>>().join(", ");
    match nearest(known, written) {
        Some(near) => format!(", did you mean {near:?}? Known are: {all}"),
        None => format!("; known are: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Call, Fault};

    fn refused(text: &str) -> String {
        read_plan(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn every_documented_form_is_read() {
        for (name, example) in FAULT_FORMS {
            let fault = example.map_or_else(|| format!("{name:?}"), str::to_owned);
            let text = format!("{{\"on\":\"submit\",\"fault\":{fault}}}");
            let read = read_plan(text.as_bytes()).unwrap();
            let again = serde_json::to_value(&read[0].fault).unwrap();
            let written: Value = serde_json::from_str(&fault).unwrap();
            assert_eq!(again, written, "the table has the name that serde has");
        }
        let two = read_plan(br#" [{"on":"poll","fault":"html"},{"on":"account","fault":"hang"}]"#);
        let two: Vec<_> =
            two.unwrap().into_iter().map(|planned| (planned.on, planned.fault)).collect();
        assert_eq!(two, [(Call::Poll, Fault::Html), (Call::Account, Fault::Hang)]);
    }

    #[test]
    fn a_wrong_form_is_answered_with_the_right_one() {
        for (text, says) in [
            ("drop", "the body is not JSON"),
            ("3", "a fault is an object"),
            (r#"{"on":"submit","falt":"drop"}"#, "unknown member `falt`, did you mean \"fault\"?"),
            (r#"{"fault":"drop"}"#, "`on` is missing"),
            (r#"{"on":"submits","fault":"drop"}"#, "`on` is \"submits\", did you mean \"submit\"?"),
            (
                r#"{"on":"submit","fault":"dropp"}"#,
                "unknown fault \"dropp\", did you mean \"drop\"?",
            ),
            (
                r#"{"on":"submit","fault":"status"}"#,
                r#"the fault "status" needs a value: {"status":502}"#,
            ),
            (
                r#"{"on":"submit","fault":{"drop":1}}"#,
                r#"the fault "drop" has no value: write "fault":"drop""#,
            ),
            (r#"{"on":"submit","fault":{"status":"x"}}"#, "invalid type"),
            (r#"{"on":"submit","fault":"drop","times":-1}"#, "`times` is a whole number"),
            (r#"{"on":"submit","fault":7}"#, "`fault` is a name"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
    }
}
