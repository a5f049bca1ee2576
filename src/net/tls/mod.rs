//! Certificates, roots of trust, and the TLS settings of listeners. Handshakes themselves are in `net/socket.rs` and
//! `net/connector.rs`.

pub mod acme;
pub mod certificate;
pub mod issued_certificate;
pub mod listener_tls;
pub mod roots;
pub mod subject;
