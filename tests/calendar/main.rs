//! Windows of the calendar: each instant is in exactly one, in every zone, and changes of clocks and ends of months come
//! out as people expect.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;
mod decisions;
mod properties;
