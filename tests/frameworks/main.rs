//! The gateway in front of real frameworks: whatever they read as somebody's request, nobody gets more
//! requests through than a limit says. Requests are plain ones that are changed by chance in the ways in
//! which readers are known to differ.
//!
//! `REQUESTS=n` sends so many to each framework, `SEED=n` sends those of one round of a failure again.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod apps;
mod dimension;
mod draft;
mod faults;
mod mutate;
mod naive;
mod random;
mod rounds;
mod token;

use apps::App;
use dimension::Dimension;
use rounds::{Front, Run};

/// As many as a usual run has time for.
const REQUESTS: u64 = 2_700;

/// No client gets more through than its limit, and what is plain passes.
fn hold(app: App) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let requests = number("REQUESTS").unwrap_or(REQUESTS);
    let fronts: Vec<_> = Dimension::ALL
        .into_iter()
        .map(|dimension| (dimension, Front::gateway(&app, dimension)))
        .collect();
    let mut run = Run::new(&app);
    match number("SEED") {
        Some(seed) => run.replay(&fronts, seed),
        None => run.all(&fronts, requests),
    }
    run.judge();
}

#[test]
fn express() {
    hold(App::express());
}

#[test]
fn php() {
    hold(App::php());
}

#[test]
fn django() {
    hold(App::django());
}

#[test]
fn starlette() {
    hold(App::starlette());
}

#[test]
fn go() {
    hold(App::go());
}

#[test]
fn rack() {
    hold(App::rack());
}
