//! Sockets: TCP and Unix streams, plain or under TLS. Besides TLS and the PROXY protocol, only `client` and ACME know
//! what is sent over a connection.
//!
//! | file | what it is |
//! |---|---|
//! | `address` | the addresses of listeners, servers and peers |
//! | `client` | an HTTP client for the few requests of the gateway itself |
//! | `connector` | TLS handshakes with servers |
//! | `corked` | the stream under a TLS session, which sends small messages together |
//! | `export` | requests by which the gateway exports metrics and spans |
//! | `flush_queue` | sends the waiting messages of several connections together |
//! | `proxy_protocol` | the PROXY protocol |
//! | `quic` | sockets and settings of QUIC, and what its handshake says of a client |
//! | `socket` | a connection, plain or under TLS |
//! | `stream` | a stream of bytes, read and written past libc; has unsafe code |
//! | `tls` | certificates and their subjects, roots of trust, the TLS settings of listeners, JA4 fingerprints, ACME |
//! | `unix_socket` | the files of listening Unix sockets |

pub mod address;
pub mod client;
pub mod connector;
mod corked;
pub mod export;
pub mod flush_queue;
pub mod proxy_protocol;
pub mod quic;
pub mod socket;
pub mod stream;
pub mod tls;
pub mod unix_socket;

pub use crate::net::tls::certificate::Certificate;
pub use crate::net::tls::issued_certificate::IssuedCertificate;
pub use crate::net::tls::roots::Roots;
pub use crate::net::tls::subject::Subject;
pub use address::{Address, PeerAddress, PeerNetwork};
pub use connector::Connector;
pub use flush_queue::{DeferredFlush, FlushQueue};
pub use socket::Socket;
pub use stream::Stream;
