//! What a hostile client and a hostile server may try: over raw sockets, case by case, each with the rule
//! that it holds the gateway to. A limit is passed by none of it.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod answers;
mod case;
mod credentials;
mod hygiene;
mod limits;
mod lines;
mod mutations;
mod overrides;
mod own_responses;
mod paths;
mod recorder;
mod repeats;
mod replay;
mod sessions;
mod slow;
mod smuggling;
mod strict;
mod unreadable;
mod upstreams;
mod users;
