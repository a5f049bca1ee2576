//! HTTP as values and as bytes. Nothing here waits.
//!
//! | module | what it is |
//! |---|---|
//! | `head` | heads of requests and responses, whatever version they came in |
//! | `http1` | fields, framing and chunks of HTTP/1.1, for both sides |
//! | `http2` | frames and field compression of HTTP/2 |

pub mod head;
pub mod http1;
pub mod http2;
