//! The script that decides in Redis, in a real server: it says what `limit::KeyState` says.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod calendar;
#[path = "../algorithms/draw.rs"]
#[allow(dead_code)]
mod draw;
mod give_backs;
mod moving;
mod script;
mod scripted;
