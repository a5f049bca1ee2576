//! The access log: one JSON line for each request, naming the limit that decided. A worker collects
//! lines and hands them to a thread that writes. A slow or full disk loses lines, which are counted and logged, and never
//! delays a request.
//!
//! Bounds: [`PIECE`] bytes collected by each worker; those of the [`writer`].

mod collector;
mod file;
mod line;
pub(crate) mod members;
mod writer;

pub use collector::{PIECE, WorkerLog};
pub use file::writable;
pub(crate) use line::log;
pub use writer::{LogWriter, LogWriterEnd, usable};
