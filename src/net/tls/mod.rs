//! Certificates, and what a listener or a client offers under TLS.

pub mod acme;
pub mod certificate;
pub mod config;
pub mod issued;
pub mod roots;
pub mod subject;
