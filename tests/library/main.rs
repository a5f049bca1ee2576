//! The throttle layer in services of others: how exactly it counts in axum, hyper and tonic, and how little it brings along.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod exact;
mod guide;
mod lean;
mod tonic;
