//! Units near the bounds of their numbers, what answers say of the limit that decides, and limits that no descriptor fits.

use serde_json::{Value, json};
use tollgate::policy;

use super::common::assert_contains;
use super::{Asker, DOOR, codes, request, start, write};

const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;
const MINUTE: u64 = 2;
const HOUR: u64 = 3;

const POLICY: &str =
    "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 1000000000/h } }\n";

#[test]
fn units_near_the_bounds_of_their_numbers_are_counted_exactly() {
    const MOST: u64 = 1_000_000_000;
    let gateway = start(DOOR, &[("a", POLICY)]);
    let mut asker = Asker::of(&gateway);
    let mut check = |value: &str, hits: Value, of_descriptors: &[Value], expected: (u64, u64)| {
        let entries = [("a", value)];
        let descriptors: Vec<&[(&str, &str)]> = vec![&entries; of_descriptors.len()];
        let mut command = request(&descriptors);
        command["hits"] = hits;
        for (index, of_descriptor) in of_descriptors.iter().enumerate() {
            if !of_descriptor.is_null() {
                command["descriptors"][index]["hits"] = of_descriptor.clone();
            }
        }
        let answer = asker.ask(command);
        let remaining = answer["statuses"][0]["remaining"].as_u64().unwrap();
        let code = answer["overall"].as_u64().unwrap();
        assert_eq!((code, remaining), expected, "{value} {answer}");
    };
    let plain = [Value::Null];
    let (full, exceeded) = (MOST, MOST + 1);
    check("exact", full.into(), &plain, (OK, 0));
    check("exceeded", exceeded.into(), &plain, (OVER_LIMIT, full));
    check("u32", u32::MAX.into(), &plain, (OVER_LIMIT, full));
    // The field has 32 bits, and 0 is the same as 1.
    check("wrapped", (1_u64 << 32).into(), &plain, (OK, full - 1));
    check(
        "wrapped",
        ((1_u64 << 32) + 5).into(),
        &plain,
        (OK, full - 6),
    );
    for units in [u64::from(u32::MAX), 1 << 32, (1 << 32) + 5, u64::MAX] {
        check("wide", 1.into(), &[units.into()], (OVER_LIMIT, full));
    }
    let half: Value = (1_u64 << 31).into();
    check("sum", 1.into(), &[half.clone(), half], (OVER_LIMIT, full));
    let parts: Value = (MOST / 2).into();
    check("parts", 1.into(), &[parts.clone(), parts], (OK, 0));
}

#[test]
fn limits_that_callers_state_are_ignored() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 2/h } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = Asker::of(&gateway);
    for (units, expected) in [(u64::from(u32::MAX), OK), (0, OK), (u64::MAX, OVER_LIMIT)] {
        let mut command = request(&[&[("a", "x")]]);
        command["descriptors"][0]["limit"] = json!([units, MINUTE]);
        let answer = asker.ask(command);
        assert_eq!(answer["overall"], expected, "{units}");
        assert_eq!(answer["statuses"][0]["limit"], json!([2, HOUR, "a"]));
    }
}

#[test]
fn answers_are_about_the_limit_that_decides() {
    let wide = "domain: edge\nentries: { wide: any }\nlimits:\n  per-hour: { key: wide, rate: 3/h }\n  per-minute: { key: wide, rate: 5/m }\n  tried: { key: wide, rate: 1/m, mode: shadow }\n";
    let narrow =
        "domain: edge\nentries: { narrow: any }\nlimits: { narrow: { key: narrow, rate: 1/m } }\n";
    let gateway = start(DOOR, &[("wide", wide), ("narrow", narrow)]);
    let mut asker = Asker::of(&gateway);
    let both: [&[(&str, &str)]; 2] = [&[("wide", "a")], &[("narrow", "a")]];
    let check =
        |answer: &Value, overall: u64, of_descriptors: &[(u64, Value, u64)], decides: &str| {
            assert_eq!(answer["overall"], overall, "{answer}");
            let statuses = answer["statuses"].as_array().unwrap();
            assert_eq!(statuses.len(), of_descriptors.len(), "{answer}");
            for (status, (code, limit, remaining)) in statuses.iter().zip(of_descriptors) {
                let found = (&status["code"], &status["limit"], &status["remaining"]);
                assert_eq!(found, (&json!(code), limit, &json!(remaining)), "{answer}");
            }
            let metadata = &answer["metadata"];
            let found = [
                &metadata["policy"],
                &metadata["limit"],
                &metadata["standing"],
            ];
            assert_eq!(found.map(|text| text.as_str().unwrap()).join(" "), decides);
        };
    let per_hour = || json!([3, HOUR, "per-hour"]);
    let per_minute = || json!([1, MINUTE, "narrow"]);
    // The fewest units remain of the second descriptor.
    let first = [(OK, per_hour(), 2), (OK, per_minute(), 0)];
    check(&asker.decide(&both), OK, &first, "narrow narrow within");
    let refused = [(OK, per_hour(), 2), (OVER_LIMIT, per_minute(), 0)];
    let decides = "narrow narrow refused";
    check(&asker.decide(&both), OVER_LIMIT, &refused, decides);
    // The limit in shadow would refuse, and decides nothing.
    for remaining in [1, 0] {
        let status = [(OK, per_hour(), remaining)];
        check(
            &asker.decide(&both[..1]),
            OK,
            &status,
            "wide per-hour within",
        );
    }
    // Of two limits that refuse, the one with the longer wait decides.
    let refused = [(OVER_LIMIT, per_hour(), 0), (OVER_LIMIT, per_minute(), 0)];
    let decides = "wide per-hour refused";
    check(&asker.decide(&both), OVER_LIMIT, &refused, decides);
    // A refused look is refused by its limit too.
    let mut look = request(&both[..1]);
    look["descriptors"][0]["hits"] = 0.into();
    check(&asker.ask(look), OVER_LIMIT, &refused[..1], decides);
}

#[test]
fn the_time_until_reset_is_missing_where_waiting_does_not_help() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 5/m } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = Asker::of(&gateway);
    let mut ask = |hits: u64| {
        let mut command = request(&[&[("a", "x")]]);
        command["hits"] = hits.into();
        let answer = asker.ask(command);
        let fields: Vec<(String, String)> =
            serde_json::from_value(answer["fields"].clone()).unwrap();
        let mut fields = fields.into_iter();
        let retry_after = fields.find(|(name, _)| name == "retry-after");
        let retry_after = retry_after.map(|(_, seconds)| seconds.parse().unwrap());
        let status = &answer["statuses"][0];
        let standing = answer["metadata"]["standing"].as_str().unwrap().to_owned();
        (
            codes(&answer),
            standing,
            status["reset"].as_u64(),
            retry_after,
        )
    };
    let never = (vec![OVER_LIMIT], "unsatisfiable".to_owned(), None, None);
    assert_eq!(ask(6), never);
    assert_eq!(ask(u32::MAX.into()), never);
    assert_eq!(ask(5).0, [OK]);
    let (codes, standing, reset, retry_after): (_, _, _, Option<u64>) = ask(5);
    assert_eq!((codes, &*standing), (vec![OVER_LIMIT], "refused"));
    assert!(reset.is_some_and(|seconds| (1..=60).contains(&seconds)));
    assert_eq!(reset, retry_after);
}

#[test]
fn limits_that_no_descriptor_fits_are_mistakes() {
    let gateway_file = "decide: { grpc: 127.0.0.1:0 }\nplans: { free: { multiply: 1 } }\n";
    let by_plan =
        "domain: edge\nentries: { plan: any }\nlimits: { by-plan: { key: plan, rate: 1/s } }\n";
    let by_one_value = "domain: edge\nentries: { generic_key: api, path: any }\nlimits: { all: { key: [path, generic_key], rate: 1/s } }\n";
    let load = |gateway_file: &str, policy: &str| {
        let folder = write(gateway_file, &[("policy", policy)]);
        policy::load(&folder.path().join("tollgate.yaml")).map_err(|report| report.to_string())
    };
    let report = load(gateway_file, by_plan).unwrap_err();
    let expected = [
        "`by-plan` counts by `plan`, and entries may name plans that there are not",
        "help: give the entry another key, or add a default: `plan: { default: free }`",
    ];
    assert_contains(&report, &expected);
    let with_default = format!(
        "{gateway_file}identity: {{ plan: {{ header: x-plan, from: [10.0.0.0/8], default: free }} }}\n"
    );
    assert!(load(&with_default, by_plan).is_ok());
    let report = load(gateway_file, by_one_value).unwrap_err();
    let expected = [
        "the entry `generic_key` has one value in this policy, so nothing counts by it",
        "help: leave it out of the key, or write `key: everyone` to count all descriptors together",
    ];
    assert_contains(&report, &expected);
}
