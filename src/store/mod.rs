//! Where counts live. A store makes the arithmetic of [`crate::limit`] atomic: all limits of one
//! request are checked, then all are taken, or none.

mod item;
pub mod memcached;
mod memory;
pub mod permits;
pub mod redis;
pub mod shared;

pub use item::{Item, Parent, Registered, Slot, Taking};
pub use memory::{CellPlace, CellPlaces, Error, Memory, Settings, Usage, snapshot};
pub use permits::Permits;
pub use shared::Shared;
