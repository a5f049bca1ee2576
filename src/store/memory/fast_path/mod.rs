//! The fast path: decides about the few items of most requests at a fourth of the cost of a full decision
//! ([`super::decide`]). It gives exactly the findings and leaves exactly the states of a full decision.
//!
//! It never makes, moves, evicts or converts a cell. It gives up before it changes anything, and the full decision starts
//! from the beginning, when
//!
//! - the request has more than [`cell_places::MAX_PLACES`] items, or two items of one key,
//! - an item has networks around its key, or its slot was never registered,
//! - a key's cell is not in its home bucket under the requested slot,
//! - a key has no cell, and either one must be made or its limit has no [`FastPath`](crate::limit::FastPath),
//! - a state has no room for the units that it would take, or
//! - the overflow sketch may hold units in one of the windows.
//!
//! | file | what it is |
//! |---|---|
//! | `cell_places` | where a request's keys are looked for first; callers may keep it for the next request |
//! | `home_bucket` | home buckets of keys, while they are locked, and their entries |
//! | `decide` | the decision |

pub(super) mod cell_places;
mod decide;
pub(super) mod home_bucket;

pub use cell_places::{CellPlace, CellPlaces};
pub(super) use decide::decide;
