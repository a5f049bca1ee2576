//! Sockets: streams of TCP and of Unix sockets, plain or under TLS.
//!
//! | file | what it is |
//! |---|---|
//! | `socket` | a stream that sends at once |
//! | `address` | where a socket is, and who is at its other end |
//! | `certificate` | a certificate with its key, checked when it is read |
//! | `corked` | a stream under TLS, which lets small messages wait for each other |
//! | `connector` | how servers are verified and shaken hands with |
//! | `flush` | messages of several connections, sent together |
//! | `issued` | a certificate that may be another at any time |
//! | `proxy` | the PROXY protocol |
//! | `subject` | whom a client's certificate is for |
//! | `stream` | bytes past libc; besides `store`'s map the only unsafe code |
//! | `tls` | what a listener that speaks TLS offers |
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
pub use crate::net::tls::subject::Subject;
pub use address::{Address, PeerAddress, PeerNetwork};
pub use connector::{Connector, Roots};
pub use flush::{Flushes, Leave};
pub use socket::Socket;
pub use stream::Stream;
