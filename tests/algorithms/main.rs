//! The limit algorithms against a naive oracle that keeps everything: what each limit says of itself
//! must be true of every history, and the attacks that its sentence admits must reach it.
//!
//! Histories are short, many, and the same in each run; a failure names the seed of its history.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attacks;
mod changes;
mod draw;
mod elastic;
mod histories;
mod reserving;
mod subject;
