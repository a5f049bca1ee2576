//! The in-memory store: all workers share one, its memory is fixed in bytes, and it never forgives.
//! Only cells equal to fresh are evicted; a key that finds no room is decided by a sketch that
//! over-estimates. All limits of one request are taken, or none.
//!
//! | file | what it is |
//! |---|---|
//! | `store` | the store: its parts, its budget, and the doors by which requests come in |
//! | `settings` | what it is made with, and why it cannot be |
//! | `decide`, `item_cell` | one request's decision over all its limits; what it knows of each |
//! | `fast` | the same where all cells are in their places, or nowhere and not to be made: cheaper |
//! | `cells` | finds, makes, moves and evicts cells |
//! | `table`, `buckets` | buckets of seven entries, two for each key, a spin lock each |
//! | `arena` | blocks for states that outgrow an entry |
//! | `sketch`, `hedge` | the overflow sketch, and what it adds to a decision |
//! | `networks` | budgets of the networks around an address |
//! | `settle` | how a reservation ends |
//! | `slots` | the limits that were registered |
//! | `snapshot` | what a process leaves to the next |
//! | `map` | zeroed memory on demand; the only unsafe code here |

mod arena;
mod buckets;
mod cells;
mod decide;
mod fast;
mod hedge;
mod item_cell;
mod map;
pub(super) mod networks;
mod settings;
mod settle;
mod sketch;
mod slots;
pub mod snapshot;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use fast::{CellPlace, CellPlaces};
pub use settings::{Error, Settings};
pub use store::{Memory, Usage};
