//! What passes through the gateway, on the wire.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod access_lines;
mod bodies;
mod cors;
mod faults;
mod half_close;
mod own_pages;
mod refusals;
mod request_ids;
mod sizes;
mod uploads;
mod uploads_http3;
