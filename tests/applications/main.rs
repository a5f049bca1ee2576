//! Real applications behind the gateway, with the policies that docs/recipes.md names for them: under a path that they do
//! not know, by a virtual host, with sessions and WebSockets, and with uploads and event streams.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod application;
mod fastapi;
mod prefixes;
mod sessions;
mod virtual_host;
