//! What is pushed to other engines: nothing is lost and nothing counted twice, whatever is down meanwhile.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod cursors;
mod encoders;
mod flaky;
mod histories;
mod lines;
mod mistakes;
mod outages;
mod peers;
mod places;
mod wire;
