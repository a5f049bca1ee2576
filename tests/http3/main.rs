//! HTTP/3, by a client that is not ours: aioquic for Python. See `client.py`.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod ends;
mod messages;
mod site;
