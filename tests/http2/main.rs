//! HTTP/2 to clients: RFC 9113. Each test says which rule it holds the gateway to.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod bodies;
mod bombs;
mod heads;
mod malformed;
mod messages;
mod rules;
mod site;
mod windows;

use common::raw;
use peak_alloc::PeakAlloc;

/// Counts the bytes that this process has allocated and not freed; client, gateway and upstream are in it.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;
