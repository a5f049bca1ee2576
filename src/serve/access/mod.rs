//! The access log: one JSON line for each request, which names the limit that decided.
//!
//! Each worker collects lines in a batch and hands it to one thread that writes. A slow or full disk loses lines, which
//! are counted and logged; it never delays a request.
//!
//! Bounds: [`BATCH_BYTES`] for each worker, and those of the [`writer`].

mod collector;
mod file;
mod line;
pub(crate) mod members;
mod writer;

pub use collector::{BATCH_BYTES, WorkerLog};
pub use file::check_folder_writable;
pub(crate) use line::log_request;
pub use writer::{LogWriter, LogWriterEnd, check_log_path};
