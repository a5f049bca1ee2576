//! The fast path: decides about the few items of most requests at a fourth of the cost of a full decision
//! ([`super::decide`]). It gives exactly the readings and leaves exactly the states of a full decision.
//!
//! It never makes, moves, evicts or converts a cell. It gives up before it changes anything, and the full decision starts
//! from the beginning, when
//!
//! - the request has more than [`cell_places::MAX_PLACES`] items, two items of one key, or an item with networks around its key,
//! - a key's cell is not in the first of its two buckets under the requested slot; a key without any cell is fine if
//!   none has to be made,
//! - a state has no room for the units that it would take, or
//! - the overflow sketch may hold units in one of the windows.
//!
//! | file | what it is |
//! |---|---|
//! | `cell_places` | where a request's keys are looked for; callers may keep it for the next request |
//! | `home_bucket` | first buckets of keys, while they are locked, and their entries |
//! | `decide` | the decision |

pub(super) mod cell_places;
mod decide;
pub(super) mod home_bucket;

pub use cell_places::{CellPlace, CellPlaces};
pub(super) use decide::decide;
