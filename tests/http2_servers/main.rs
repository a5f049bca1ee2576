//! HTTP/2 to servers, from clients of either version. Each test says which rule it holds the gateway to.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod connections;
mod messages;
mod permits;
mod server;
