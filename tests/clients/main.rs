//! Clients that people use, unmodified, through the gateway to the servers that they are used with. The
//! clients and the servers are programs of Debian; what they do is written in the scripts of this folder.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod curl;
mod fetch;
mod grpc;
mod h2load;
mod httpx;
mod nginx;
mod program;
mod site;
mod unix;
mod websockets;
