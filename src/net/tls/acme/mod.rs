//! ACME (RFC 8555): orders and renews certificates at a directory, on a thread of its own. An order that fails neither
//! stops the gateway nor delays a request. But TLS handshakes fail until a first certificate is issued.
//!
//! | file | what it is |
//! |---|---|
//! | `challenge_tokens` | the proofs of names that are served over HTTP |
//! | `directory_client` | sends HTTPS requests to the directory |
//! | `error` | why a certificate was not issued |
//! | `managed_certificate` | a certificate that is renewed, with its settings |
//! | `order` | one order: account, proofs, certificate |
//! | `renewal` | when the next order is due, and how long to wait after a failure |
//! | `renewer` | the thread, and the set of certificates that it renews |
//! | `settings` | the settings of an order |
//! | `storage` | accounts and certificates on the disk |

mod challenge_tokens;
mod directory_client;
mod error;
mod managed_certificate;
mod order;
mod renewal;
mod renewer;
mod settings;
mod storage;

pub use challenge_tokens::ChallengeTokens;
pub use error::Error;
pub use managed_certificate::ManagedCertificate;
pub use renewer::CertificateRenewer;
pub use settings::{Challenge, Settings};
