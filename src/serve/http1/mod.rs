//! HTTP/1.1 as clients speak it.
//!
//! | file | what it is |
//! |---|---|
//! | `exchanges` | the loop of a connection: a request through the stack, then its response |
//! | `wire` | the connection as bytes |
//! | `request` | the head of a request |
//! | `repeat` | the cache of repeated requests |
//! | `reply`, `lead` | a response on its way |

pub mod exchanges;
pub mod lead;
pub mod repeat;
pub mod reply;
pub mod request;
pub mod wire;
