//! HTTP/3, by a client that is not ours: aioquic for Python. See `client.py`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod ends;
mod messages;
mod site;
