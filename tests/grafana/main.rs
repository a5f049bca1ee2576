//! What Grafana's Prometheus data source asks, asked of the gateway's record and of a real Prometheus that has the same
//! samples: the answers are the same.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod alike;
mod dashboard;
mod panels;
mod servers;
mod world;

use servers::{Both, Question};
use world::{END, GAP};

/// Whether a question's answer has an order of its own.
fn ordered(query: &str) -> bool {
    // Prometheus goes through histograms in no order.
    !query.contains("histogram_quantile")
}

/// Moments in seconds after the beginning, which need not be whole.
const MOMENTS: [f64; 4] = [2_000.5, GAP.0 as f64 + 200.0, 3_333.25, 7_200.0];

/// Begins, ends and steps in seconds after the beginning.
const SPANS: [(f64, f64, f64); 4] = [
    (GAP.0 as f64 - 200.0, GAP.1 as f64 + 200.0, 1.0),
    (-7.75, END as f64, 15.0),
    (-600.0, END as f64 + 600.0, 60.0),
    (0.0, END as f64, 300.0),
];

fn moment(both: &Both, offset: f64) -> String {
    format!("{}", both.start as f64 + offset)
}

/// A query at all moments and over all spans.
fn asked(both: &Both, query: &str) -> Vec<Question> {
    let instants = MOMENTS.map(|at| {
        let at = moment(both, at);
        Question::new("query", &[("query", query), ("time", &at)])
    });
    let ranges = SPANS.map(|(from, to, step)| {
        let (from, to, step) = (moment(both, from), moment(both, to), step.to_string());
        let parameters = [
            ("query", query),
            ("start", &from),
            ("end", &to),
            ("step", &step),
        ];
        Question::new("query_range", &parameters)
    });
    instants.into_iter().chain(ranges).collect()
}

/// All questions in turn; what is not alike is collected.
fn check_all(both: &Both) -> usize {
    let mut different = Vec::new();
    let mut alike = 0;
    let mut check = |question: &Question, ordered: bool| match both.compare(question, ordered) {
        Ok(()) => alike += 1,
        Err(difference) => different.push(difference),
    };
    let span = [
        ("start", moment(both, 0.0)),
        ("end", moment(both, END as f64)),
    ];
    for (path, parameters) in panels::PICKERS {
        let mut question = Question::new(path, parameters);
        let own = |parameter: &str| parameters.iter().any(|(name, _)| *name == parameter);
        for (name, value) in &span {
            // What is said of the time decides.
            if !own(name) && !own("untimed") {
                question
                    .parameters
                    .push(((*name).to_owned(), value.clone()));
            }
        }
        question.parameters.retain(|(name, _)| name != "untimed");
        check(&question, true);
    }
    let dashboard = dashboard::queries();
    assert!(dashboard.len() >= 8, "{dashboard:?}");
    let panels = panels::PANELS.iter().map(|query| (*query).to_owned());
    let panels: Vec<String> = panels.chain(dashboard).collect();
    for query in &panels {
        for question in asked(both, query) {
            check(&question, ordered(query));
        }
    }
    for query in panels::MISTAKES {
        check(&asked(both, query)[1], true);
        check(&asked(both, query)[MOMENTS.len()], true);
    }
    println!("{} queries of panels, {alike} answers alike", panels.len());
    let some: Vec<_> = different.iter().take(20).map(String::as_str).collect();
    assert!(
        different.is_empty(),
        "{} of {}:\n{}",
        different.len(),
        alike + different.len(),
        some.join("\n\n")
    );
    panels.len()
}

#[test]
fn as_prometheus_answers() {
    let both = Both::start();
    both.described_alike();
    both.built_alike();
    assert!(check_all(&both) >= 60);
    both.answers_of_its_own();
    both.still_the_same_series();
}
