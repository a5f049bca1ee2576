//! Certificates, roots of trust, and the TLS settings of listeners. Handshakes themselves are in `net/socket.rs` and
//! `net/connector.rs`.
//!
//! | module | what it is |
//! |---|---|
//! | `acme` | orders and renews certificates |
//! | `certificate` | a certificate chain with its private key |
//! | `issued_certificate` | a certificate that is replaced while the gateway runs |
//! | `ja4` | the fingerprint of a client's handshake |
//! | `listener_tls` | the TLS settings of a listener |
//! | `roots` | the authorities that are trusted |
//! | `subject` | the names in a client's certificate, as text |

pub mod acme;
pub mod certificate;
pub mod issued_certificate;
pub mod ja4;
pub mod listener_tls;
pub mod roots;
pub mod subject;
