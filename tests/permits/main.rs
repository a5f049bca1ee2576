//! Limits on open requests before real clients: never too many at once, and whatever a client or a
//! server does, every permit comes back.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod layer;
mod left;
mod site;
mod terms;
