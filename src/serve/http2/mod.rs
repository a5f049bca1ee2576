//! HTTP/2 as clients speak it: the frames of a connection, and its streams through the stack, those that must wait each in
//! a task of its own. All of a connection belongs to one thread, so that a stream's task writes where the connection's
//! sends.
//!
//! | file | what it is |
//! |---|---|
//! | `connection` | the task of a connection: reads frames, begins requests, sends what is ready |
//! | `stream` | a request and its response, as the layers see them |
//! | `stream_state` | where a stream is |
//! | `connection_state` | what the streams share: windows, the table of open streams, the way out |
//! | `connection_handle` | how the tasks of a connection get at it, and wake each other |
//! | `past`, `stray` | streams that are not open any more, and frames that come on those |
//! | `head` | a request's head, from its fields |
//! | `heads` | the memory of all heads |
//! | `reply` | a response on its way |
//! | `allowance` | what may come that asks for nothing |
//! | `offer` | what a client may use, as the first frames say |

mod allowance;
mod connection;
mod connection_handle;
mod connection_state;
mod head;
mod heads;
mod offer;
mod past;
mod reply;
mod stray;
mod stream;
mod stream_state;

pub use connection::serve;
pub use stream::Http2Stream;
