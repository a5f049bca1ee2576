//! The test is tested: a gateway that reads as a first draft would is found out, one fault of each kind, by no
//! more requests than a usual run has for a dimension.

use crate::REQUESTS;
use crate::apps::App;
use crate::dimension::Dimension;
use crate::naive;
use crate::rounds::{Front, ROUND, Run};

/// Frameworks of a usual run.
const FRAMEWORKS: u64 = 6;

/// A request that only this kind of change has made passes a naive reading, and is found.
fn check(app: &App, dimension: Dimension, kind: &str) {
    let fronts = [(dimension, Front::at(naive::start(app, dimension)))];
    let mut run = Run::new(app);
    let requests = REQUESTS * FRAMEWORKS / Dimension::ALL.len() as u64;
    for seed in 0..requests / ROUND {
        run.round(&fronts, seed);
        if let Some(found) = run.passed.iter().find(|passed| passed.kinds == [kind]) {
            println!("{kind}: {}", found.text);
            return;
        }
    }
    let others: Vec<_> = run.passed.iter().map(|passed| &passed.kinds).collect();
    panic!("{dimension:?}, {kind}: not among {others:?}");
}

#[test]
fn naive_readings_are_found() {
    let express = App::express();
    check(&express, Dimension::Email, "blanks");
    check(&express, Dimension::Bearer, "something behind");
    check(&express, Dimension::Cookie, "escaped");
    check(&express, Dimension::User, "without an end");
    check(&express, Dimension::Host, "case");
    check(&express, Dimension::Path, "case");
    check(&express, Dimension::Path, "odd item");
    check(&express, Dimension::Method, "override field");
    check(&express, Dimension::Method, "override in a form");
    check(&express, Dimension::Address, "list");
    let php = App::php();
    check(&php, Dimension::Email, "name escaped");
    check(&php, Dimension::Query, "escaped");
    check(&php, Dimension::Query, "in the body");
    check(&php, Dimension::Query, "in a cookie");
    check(&php, Dimension::Header, "odd name");
}
