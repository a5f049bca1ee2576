//! Stores of counts. A store makes the arithmetic of [`crate::limit`] atomic: it checks all limits of a request, then
//! takes units of all, or of none. Each shadow limit is decided about by itself. [`memcached`] says where it falls short
//! of this. A store never knows what a limit is for.
//!
//! | module | what it is |
//! |---|---|
//! | [`LimitItem`] | one limit's part of one request, as stores count it |
//! | [`MemoryStore`] | counts in the memory of this process |
//! | [`shared`] | counts that several gateways share, with [`redis`] or [`memcached`] behind it |
//! | [`permits`] | permits of open requests: those of this process, and what it holds of those that gateways share |
//! | [`snapshot`] | counts on the disk, for the next process |

mod limit_item;
#[cfg(feature = "gateway")]
pub mod memcached;
// Snapshots use parts of it that nothing else does.
#[cfg_attr(not(feature = "gateway"), allow(dead_code))]
mod memory;
pub mod permits;
#[cfg(feature = "gateway")]
pub mod redis;
#[cfg(feature = "gateway")]
pub mod shared;

pub use limit_item::{LimitItem, LimitSlot, ParentNetwork, RegisteredLimit, Taking};
#[cfg(feature = "gateway")]
pub use memory::snapshot;
pub use memory::{CellPlace, CellPlaces, Error, MemoryStore, MemoryUsage, Settings};
pub use permits::Permits;
#[cfg(feature = "gateway")]
pub use shared::SharedStore;
