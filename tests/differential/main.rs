//! The upstream codec beside hyper's client: the same bytes from a server, the same verdict. Where they
//! differ, `compare/reasons.rs` says why; nothing else may.
//!
//! `SEED=n` reads the one case of a failure again, `CASES=n` reads so many of each kind.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod compare;
mod generate;
mod known;

use std::collections::BTreeMap;
use std::env;

use compare::ours::Ours;
use compare::{Asks, check};

/// Reads so many cases, and holds that enough of them were answers.
fn read_all(asks: Asks, cases: u64) {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cases = number("CASES").unwrap_or(cases);
    let seed = number("SEED");
    let seeds = seed.map_or(0..cases, |seed| seed..seed + 1);
    let mut ours = Ours::start();
    let mut whole = 0;
    let mut reasons = BTreeMap::new();
    for seed in seeds {
        let case = generate::case(asks, seed);
        let outcome = check(&mut ours, &case);
        let outcome = outcome.unwrap_or_else(|mistake| panic!("SEED={seed} {mistake}"));
        whole += u64::from(outcome.whole);
        if let Some(reason) = outcome.reason {
            *reasons.entry(reason).or_insert(0) += 1;
        }
    }
    println!("{cases} cases, {whole} whole, {reasons:?}");
    assert!(
        seed.is_some()
            || (whole > cases / 3 && reasons.len() > compare::reasons::all().count() / 2),
        "only {whole} answers were whole: this tests nothing"
    );
}

#[test]
fn answers_to_get() {
    read_all(Asks::Get, 20_000);
}

#[test]
fn answers_to_head() {
    read_all(Asks::Head, 10_000);
}

#[test]
fn answers_to_upgrades() {
    read_all(Asks::Upgrade, 10_000);
}
