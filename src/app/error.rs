//! The errors of starting and reloading the gateway. `cli/` prints them; the admin listener returns those of a reload.

use std::io;

use crate::limit::LimitName;
use crate::net::Address;
use crate::policy;
use crate::record;
use crate::store;

/// Why the gateway could not start, or could not run a new configuration. After a failed reload the old one still runs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has mistakes or cannot be read.
    #[error("{0}")]
    Policy(policy::DiagnosticReport),
    /// The memory store cannot be made, or has no slot left for a limit.
    #[error("the store cannot hold these limits: {0}")]
    Store(#[from] store::Error),
    /// The folder of snapshots cannot be used, or the thread that writes them cannot be started.
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
    /// The access log cannot be opened, or the thread that writes it cannot be started.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// TLS cannot be set up with the keys of session tickets, or with the certificates or roots of a listener.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The settings of a shared store in memcached are wrong. A store that cannot be reached is no error.
    #[error("{0}")]
    Shared(#[from] store::memcached::Error),
    /// The record cannot be opened. A record that another process still writes is no error.
    #[error("{0}")]
    Record(#[from] record::OpenError),
    /// The folder of the file of orders, such as bans, cannot be created.
    #[error("cannot keep orders of operators: {0}")]
    Orders(io::Error),
    /// A reload has a limit with credits, and the store with which the process began would forget what is used of them.
    #[error(
        "`{0}` has credits, and the store with which this process began forgets counts: a reload does not change `store`; \
         restart the gateway"
    )]
    ForgottenCredits(LimitName),
    /// A thread of a worker or of another part cannot be started, or has no runtime.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
}
