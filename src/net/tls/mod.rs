//! Certificates, roots of trust, and the TLS settings of listeners. Handshakes themselves are in `net/socket.rs` and
//! `net/connector.rs`.
//!
//! | module | what it is |
//! |---|---|
//! | `acme` | orders and renews certificates |
//! | `certificate` | a certificate chain with its private key |
//! | `issued_certificate` | a certificate that is replaced while the gateway runs |
//! | `listener_tls` | the TLS settings of a listener |
//! | `roots` | the authorities that are trusted |
//! | `subject` | whom a client's certificate is for |

pub mod acme;
pub mod certificate;
pub mod issued_certificate;
pub mod listener_tls;
pub mod roots;
pub mod subject;
