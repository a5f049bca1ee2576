//! Certificates, roots of trust, and the TLS settings of listeners. Handshakes themselves are in `net/socket.rs` and
//! `net/connector.rs`.

pub mod acme;
pub mod certificate;
pub mod config;
pub mod issued;
pub mod roots;
pub mod subject;
