//! The store in memcached against the real one: what it decides, whatever happens to it meanwhile.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod calendar;
mod decisions;
mod failing;
mod gateways;
mod parallel;
mod server;
mod site;
