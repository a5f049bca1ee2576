//! Traces: which requests have spans, what the spans say, and that no collector and no client makes requests wait.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod collector;
#[path = "../common/mod.rs"]
mod common;
mod decisions;
mod exemplars;
mod outages;
mod parents;
mod span_texts;
