//! What policies change of requests and responses: header fields, paths and hosts. All of it on the wire, between a raw
//! client and a raw server.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
// These tests use a part of it.
#[allow(dead_code)]
#[path = "../http2_servers/server.rs"]
mod server;

mod attacks;
mod fields;
mod hosts;
mod mapping;
mod paths;
mod tls_facts;

use std::net::SocketAddr;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use common::{Gateway, write};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A gateway whose users come from tokens that [`token`] signs.
pub fn gateway(upstream: SocketAddr, more: &str, policies: &[(&str, &str)]) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream, more, policies);
    std::fs::write(folder.path().join("secret.txt"), SECRET).unwrap();
    Gateway::start_in(folder, Clock::system())
}

/// A line with a token that has these claims.
pub fn token(claims: &Value) -> String {
    let mut all = json!({ "exp": 4_000_000_000_u64 });
    for (name, value) in claims.as_object().unwrap() {
        all[name] = value.clone();
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = encode(&Header::default(), &all, &key).unwrap();
    format!("authorization: Bearer {token}\r\n")
}
