//! Snapshots: copies of all counts in a folder, for the next process. A snapshot is written again and again while the
//! process runs, and once more at its end. A decision waits at most while one bucket, or one row of the sketch, is copied.
//! The checksums of a whole file are verified before its counts are loaded.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | the folder, and how often a snapshot is written |
//! | `saved_counts` | the newest snapshot, and the clock that continues after it |
//! | `folder` | the files of a folder: two that are written in turn, a lock, damaged ones |
//! | `writer` | the thread that writes snapshots |
//! | `copy` | copies the store while it is in use |
//! | `load` | loads a snapshot into a fresh store |
//! | `records`, `limits` | the contents of a file |
//! | `blocks` | blocks with checksums, into which a file is divided |
//!
//! A snapshot holds times as they are, and the next process does not change them. Its clock continues where the former one
//! ended, plus the time that has passed by the wall clock.

mod blocks;
mod copy;
mod folder;
mod limits;
mod load;
mod records;
mod saved_counts;
mod settings;
#[cfg(test)]
mod tests;
mod writer;

pub use blocks::{SnapshotDamage, encode_blocks};
pub use folder::FolderError;
pub use load::LoadedCounts;
pub use saved_counts::{SavedCounts, load_snapshot};
pub use settings::Settings;
pub use writer::SnapshotWriter;
