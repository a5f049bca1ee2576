//! The in-memory store, which all workers of a process share. The memory of its counts is bounded in bytes, and it never
//! forgets units that count: only cells equal to fresh ones are evicted. Where there is no room for a cell, a sketch counts
//! its units, and over-estimates. A request takes units of all its limits but shadows, or of none.
//!
//! A cell is the state of one key under one limit. It is in an entry of the bucket table, and in a block of the arena where
//! it outgrows the entry.
//!
//! | file | what it is |
//! |---|---|
//! | `store` | the store: its parts, its budget, its methods |
//! | `settings` | settings and errors |
//! | `decide` | the full decision about all limits of a request |
//! | `item_cell` | the cell and the networks of one item, while it is decided about |
//! | `fast_path` | a cheaper decision, for requests that make, move, convert and evict no cell |
//! | `cells` | finds, makes, converts, moves and evicts cells |
//! | `bucket_table`, `bucket_choice` | buckets of seven entries, and the two buckets of each key |
//! | `entry_mark`, `entry_state` | which key and slot an entry is for, and its state |
//! | `bucket_layout` | the words of a bucket |
//! | `bucket_lock` | the spin lock of a bucket |
//! | `arena` | blocks for states that outgrow an entry |
//! | `sketch` | the overflow sketch |
//! | `sketched_units` | how units in the sketch change a decision |
//! | `networks`, `network_calls` | budgets of the networks around a key, here and in calls to a shared store |
//! | `copy_progress` | how far a snapshot's copy of the table is, and which buckets must be copied again |
//! | `settle` | settles reservations, and counts units that another decision admitted |
//! | `slots` | the registered limits |
//! | `snapshot` | counts on the disk, for the next process |
//! | `zeroed_map` | zeroed memory on demand; the only unsafe code of the store |

mod arena;
mod bucket_choice;
mod bucket_layout;
mod bucket_lock;
mod bucket_table;
mod cells;
mod copy_progress;
mod decide;
mod entry_mark;
mod entry_state;
mod fast_path;
mod item_cell;
#[cfg(feature = "gateway")]
pub(super) mod network_calls;
mod networks;
mod settings;
mod settle;
mod sketch;
mod sketched_units;
mod slots;
#[cfg(feature = "gateway")]
pub mod snapshot;
mod store;
#[cfg(test)]
mod tests;
mod zeroed_map;

pub use fast_path::{CellPlace, CellPlaces};
pub use settings::{Error, Settings};
pub use store::{MemoryStore, MemoryUsage};
