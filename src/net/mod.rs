//! Sockets: streams of TCP and of Unix sockets, plain or under TLS.
//!
//! | file | what it is |
//! |---|---|
//! | `address` | where a socket is, and who is at its other end |
//! | `client` | a client for a few HTTP requests of the gateway itself |
//! | `connector` | TLS towards servers |
//! | `corked` | a stream under TLS, which lets small messages wait for each other |
//! | `flush` | messages of several connections, sent together |
//! | `proxy` | the PROXY protocol |
//! | `socket` | a stream that sends at once |
//! | `stream` | bytes past libc; besides `store`'s map the only unsafe code |
//! | `tls` | certificates, roots of trust, what a listener offers under TLS, ACME |
//! | `unix` | the file of a Unix socket that listens |

pub mod address;
pub mod client;
pub mod connector;
mod corked;
pub mod flush;
pub mod proxy;
pub mod socket;
pub mod stream;
pub mod tls;
pub mod unix;

pub use crate::net::tls::certificate::Certificate;
pub use crate::net::tls::issued::Issued;
pub use crate::net::tls::roots::Roots;
pub use crate::net::tls::subject::Subject;
pub use address::{Address, PeerAddress, PeerNetwork};
pub use connector::Connector;
pub use flush::{Flushes, Leave};
pub use socket::Socket;
pub use stream::Stream;
