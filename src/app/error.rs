//! The errors of starting and reloading the gateway.

use std::io;

use crate::net::Address;
use crate::policy;
use crate::record;
use crate::store;

/// Why the gateway could not start, or could not run a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has mistakes.
    #[error("{0}")]
    Policy(policy::DiagnosticReport),
    /// The memory store is too small for the limits.
    #[error("the store cannot hold these limits: {0}")]
    Store(#[from] store::Error),
    /// The folder of snapshots cannot be used.
    #[error("{0}")]
    Snapshots(#[from] store::snapshot::FolderError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address that the gateway file names.
        address: Address,
        /// The error of the system.
        cause: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The shared store cannot be used.
    #[error("{0}")]
    Shared(#[from] store::memcached::Error),
    /// The record cannot be opened.
    #[error("{0}")]
    Record(#[from] record::OpenError),
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}
