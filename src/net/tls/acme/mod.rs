//! Certificates from a directory that speaks ACME (RFC 8555), ordered and renewed on a thread of its own.
//! A failure here neither stops the gateway nor delays a request.
//!
//! | file | what it is |
//! |---|---|
//! | `client` | HTTPS requests to the directory |
//! | `error` | why a certificate was not issued |
//! | `managed` | a certificate with its settings |
//! | `manager` | the thread, and which certificates it keeps |
//! | `order` | one order: account, proofs, certificate |
//! | `renewal` | when the next order is due, and how long a failure waits |
//! | `settings` | what a certificate is ordered with |
//! | `storage` | accounts and certificates on the disk |
//! | `tokens` | the proofs that are shown at port 80 |

mod client;
mod error;
mod managed;
mod manager;
mod order;
mod renewal;
mod settings;
mod storage;
mod tokens;

pub use error::Error;
pub use managed::ManagedCertificate;
pub use manager::CertificateManager;
pub use settings::{Challenge, Settings};
pub use tokens::ChallengeTokens;
