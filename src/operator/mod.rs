//! What operators order at run time, beside the files: bans. Each order is an entry with an end. Entries are kept on the
//! disk and shared by gateways, and no order of their arrival changes the result.
//!
//! | module | content |
//! |---|---|
//! | `entry` | one entry, its bounds and its text |
//! | `entry_map` | all entries; the newest change of a key wins |
//! | `entry_file` | the file that keeps entries over restarts |
//! | `ban_index` | finds the ban of an address or of an identified client |
//! | `ban_registry` | bans of the whole gateway, and what its workers see of them |
//! | `registry_state` | what the registry holds behind its lock |
//! | `offences` | counts the refusals of limits that ban |
//! | `settings` | where entries are kept, and what banned clients get |
//! | `error` | why an order is refused |
//!
//! Bounds: [`EntryMap::MAX_ENTRIES`] entries, each of at most 2 KiB.

mod ban_index;
mod ban_registry;
mod entry;
mod entry_file;
mod entry_map;
mod error;
mod offences;
mod registry_state;
mod settings;

pub use ban_index::{ActiveBan, BanIndex};
pub use ban_registry::{BanRegistry, NewBan};
pub use entry::{EntryKind, OperatorEntry};
pub use entry_file::EntryFile;
pub use entry_map::EntryMap;
pub use error::BanError;
pub use registry_state::{BanChange, BanChangeKind, ListedBan};
pub use settings::{BanResponse, Settings};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_sharing;
