//! Elastic limits and priorities end to end: a gateway, an upstream of fixed capacity that queues like
//! one, and clients that ask at their own pace. `--nocapture` prints the figures, `make surge` draws them.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
#[path = "../common/mod.rs"]
mod common;
#[path = "../elastic/draw.rs"]
mod draw;
mod plot;
mod record;
mod server;
mod shares;
mod shed;
mod site;
mod surge;
mod svg;
mod traffic;

use std::sync::{Mutex, MutexGuard, PoisonError};

static MACHINE: Mutex<()> = Mutex::new(());

/// The machine to oneself: two of these tests at a time would measure each other. Where each test is a
/// process, `.config/nextest.toml` sees to it.
fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
