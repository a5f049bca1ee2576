//! Snapshots: copies of all counts in a folder, for the next process. One is written again and again while the process runs,
//! and once more at its end. It never holds up a decision, and a damaged file is never taken for counts.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | the folder, and how often a snapshot is written |
//! | `restore` | the newest snapshot, and the clock that continues after it |
//! | `folder` | two files in turn, a lock, and damaged files |
//! | `writer` | the thread that writes snapshots |
//! | `copy`, `copying` | copies the store while it is in use |
//! | `load` | loads a snapshot into a fresh store |
//! | `records`, `limits` | the contents of a file |
//! | `blocks` | how a file is cut into blocks with checksums |
//!
//! A snapshot holds times as they are, and the next process does not change them. Its clock continues where the former one
//! ended, plus the time that has passed by the wall clock.

mod blocks;
mod copy;
pub(super) mod copying;
mod folder;
mod limits;
mod load;
mod records;
mod restore;
mod settings;
#[cfg(test)]
mod tests;
mod writer;

pub use blocks::{SnapshotDamage, sealed};
pub use folder::FolderError;
pub use load::LoadedCounts;
pub use restore::{SavedCounts, load};
pub use settings::Settings;
pub use writer::SnapshotWriter;
