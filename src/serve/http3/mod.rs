//! Connections of clients that speak HTTP/3, and their streams. QUIC itself is quinn's.
//!
//! A connection has a task that accepts streams. Each request has a task of its own, and so has each stream of the client
//! in one direction. All run on one thread and share the connection's state.
//!
//! | file | what it is |
//! |---|---|
//! | `accept` | accepts the connections of one worker's socket, and serves them within their deadlines |
//! | `connection` | the task of a connection: begins requests, announces the end |
//! | `shared_state` | what the tasks of a connection share |
//! | `control` | reads the streams of the client that carry no request |
//! | `exchange` | reads a request's head, passes the request through the stack, sends the response |
//! | `frame_stream` | reads frames from a stream, piece by piece |
//! | `request_head` | reads the head of a request |
//! | `send_response` | sends a response: head, body, trailers |
//! | `stream` | a request and its response, as the layers see them |

mod accept;
mod connection;
mod control;
mod exchange;
mod frame_stream;
mod request_head;
mod send_response;
mod shared_state;
mod stream;

pub use accept::accept_connections;
pub use stream::Http3Stream;
