//! What a process leaves to the next: a copy of all counts in a folder, made over and over while it runs and
//! once more when it ends. It never holds up a decision, and what it cannot read it never takes for counts.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | where, and how often |
//! | `restore` | a snapshot of the process before, and the clock that goes on after it |
//! | `folder` | two files in turn, a lock, and what becomes of damaged ones |
//! | `writer` | the thread that writes |
//! | `copy`, `copying` | copies the store while it is in use |
//! | `load` | takes a copy into a fresh store |
//! | `records`, `limits` | what a file says |
//! | `blocks` | how it is cut and checked |
//!
//! A copy holds times as they are. The next process does not change them: its clock goes on where that of
//! the one before ended, and later by as much as the wall clock says that has passed.

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
