//! HTTP messages as values and as bytes: heads, framing, and the encodings of HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! It parses and writes, and never decides what happens to a message. It knows no time and no tasks.
//!
//! | module | what it is |
//! |---|---|
//! | `content_coding` | the codings of compressed content, and which one a client prefers |
//! | `head` | heads of requests and responses, for all versions of HTTP |
//! | `http1` | fields, framing and chunks of HTTP/1.1, for both sides |
//! | `http2` | frames and field compression of HTTP/2 |
//! | `http3` | frames and field compression of HTTP/3 |
//! | `quality` | quality values of `Accept` and `Accept-Encoding` |
//! | `websocket_frames` | the frames of WebSockets |

#[cfg(feature = "gateway")]
pub mod content_coding;
pub mod head;
#[cfg(feature = "gateway")]
pub mod http1;
#[cfg(feature = "gateway")]
pub mod http2;
#[cfg(feature = "gateway")]
pub mod http3;
#[cfg(feature = "gateway")]
pub mod quality;
#[cfg(feature = "gateway")]
pub mod websocket_frames;
