//! The access log: one line for each request that the settings select. Its JSON names the limit that decided, if one
//! did.
//!
//! Each worker collects lines in a batch and hands it to one thread that writes. A slow or full disk loses lines, which
//! are counted; it never delays a request. Failed writes are reported in the gateway's own log.
//!
//! | file | what it is |
//! |---|---|
//! | `line` | the line of one request, as JSON |
//! | `listed_members` | the members that the gateway file lists |
//! | `combined` | the line in Apache's format |
//! | `client_text`, `logged_target` | texts of clients, and the target |
//! | `members` | the members of a line, as JSON |
//! | `worker_log` | a worker's end: collects lines |
//! | `log_writer` | the thread that writes |
//! | `log_file` | the file, and its rotation |
//!
//! Bounds: [`BATCH_BYTES`] and one line for each worker, and the bounds of [`log_writer`].

mod client_text;
mod combined;
mod line;
mod listed_members;
mod log_file;
mod log_writer;
mod logged_target;
pub(crate) mod members;
mod worker_log;

pub(crate) use line::log_request;
pub use log_file::check_folder_writable;
pub use log_writer::{LogWriter, LogWriterEnd, check_log_path};
pub use worker_log::{BATCH_BYTES, WorkerLog};
