//! The alerts for Prometheus: each is tested by `promtool`, names metrics that the gateway has, and has its part of the
//! guide.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::common::child::{finish, program};
use super::{ROOT, read};

fn promtool(arguments: &[&str]) {
    let ended = finish(&mut program("promtool", Path::new(ROOT), arguments));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The rules, each as a map.
fn rules() -> Vec<Value> {
    let file: Value = serde_yaml::from_str(&read("packaging/prometheus/alerts.yaml")).unwrap();
    file["groups"][0]["rules"].as_array().unwrap().clone()
}

/// The words of a query that may be names of metrics.
fn words(query: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    query.split(move |letter| !is_of_name(letter))
}

#[test]
fn alerts_fire_when_they_should() {
    promtool(&["check", "rules", "packaging/prometheus/alerts.yaml"]);
    promtool(&["test", "rules", "packaging/prometheus/alerts.test.yaml"]);
    let tests: Value =
        serde_yaml::from_str(&read("packaging/prometheus/alerts.test.yaml")).unwrap();
    let tests = tests["tests"].as_array().unwrap();
    for rule in rules() {
        let alert = &rule["alert"];
        let test = tests.iter().find(|test| test["name"] == *alert);
        let cases = test.map(|test| test["alert_rule_test"].as_array().unwrap());
        let cases = cases.unwrap_or_else(|| panic!("{alert} has no test"));
        let fires = |case: &&Value| !case["exp_alerts"].as_array().unwrap().is_empty();
        let firing: Vec<_> = cases.iter().filter(fires).collect();
        // Of two or more series one is wrong, so the number of alerts shows that the others do not matter.
        assert_eq!(firing.len(), 1, "{alert}");
        assert_eq!(
            firing[0]["exp_alerts"].as_array().unwrap().len(),
            1,
            "{alert}"
        );
    }
}

#[test]
fn alerts_name_metrics_of_the_gateway() {
    let names = read("src/base/telemetry/names.rs");
    let known: BTreeSet<&str> = names.split('"').skip(1).step_by(2).collect();
    for rule in rules() {
        let query = rule["expr"].as_str().unwrap();
        let named = words(query)
            .filter(|word| word.starts_with("tollgate_") || word.starts_with("process_"));
        let named: Vec<&str> = named.collect();
        let is_about_scrapes = query.starts_with("up{");
        assert!(is_about_scrapes || !named.is_empty(), "{query}");
        for name in named {
            assert!(known.contains(name), "{name}");
        }
    }
}

/// Who is paged finds the part of the guide by the annotation, and the guide has nothing about alerts that are gone.
#[test]
fn every_alert_has_a_runbook() {
    let guide = read("docs/alerts.md");
    let mut expected = Vec::new();
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap();
        let runbook = format!("docs/alerts.md#{}", alert.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], *runbook, "{alert}");
        assert!(
            ["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{alert}"
        );
        expected.push(alert.to_owned());
    }
    let headings = guide.lines().filter_map(|line| line.strip_prefix("### "));
    let headings: BTreeSet<&str> = headings.collect();
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(headings, expected);
}
