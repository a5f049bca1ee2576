//! Sockets: TCP streams, plain or under TLS.
//!
//! | file | what it is |
//! |---|---|
//! | `socket` | a stream that sends at once |
//! | `certificate` | a certificate with its key, checked when it is read |
//! | `corked` | a stream under TLS, which lets small messages wait for each other |
//! | `connector` | how servers are verified and shaken hands with |
//! | `flush` | messages of several connections, sent together |
//! | `issued` | a certificate that may be another at any time |
//! | `proxy` | the PROXY protocol |
//! | `subject` | whom a client's certificate is for |
//! | `tcp` | a stream past libc; besides `store`'s map the only unsafe code |
//! | `tls` | what a listener that speaks TLS offers |

pub mod certificate;
pub mod connector;
mod corked;
pub mod flush;
pub mod issued;
pub mod proxy;
pub mod socket;
pub mod subject;
mod tcp;
pub mod tls;

pub use certificate::Certificate;
pub use connector::{Connector, Roots};
pub use flush::{Flushes, Leave};
pub use issued::Issued;
pub use socket::Socket;
pub use subject::Subject;
