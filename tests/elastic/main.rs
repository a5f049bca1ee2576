//! Elastic limits and priorities in simulated time: the real `pressure` module between clients and an
//! upstream of fixed capacity. Each run is the same for the same seed. `--nocapture` prints the figures.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod draw;
mod failures;
mod figures;
mod other_worlds;
mod scenarios;
mod upstream;
mod world;
