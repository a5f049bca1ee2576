//! Connections of clients that speak HTTP/2, and their streams.
//!
//! A connection has a task that reads and sends frames. A request that cannot be served at once gets a task of its own. All
//! tasks of a connection run on one thread and share its state, so a stream's task writes directly into the connection's
//! output.
//!
//! | file | what it is |
//! |---|---|
//! | `connection` | the task of a connection: reads frames, begins requests, sends output |
//! | `exchange` | passes one request through the stack and sends its response |
//! | `grpc_exchange` | one call of gRPC at a door |
//! | `stream` | a request and its response, as the layers see them |
//! | `stream_state` | the buffers, windows and flags of one stream |
//! | `connection_state` | the state that streams share: windows, the table of open streams, the output |
//! | `request_data` | receives the bodies of requests, and keeps those that are read |
//! | `connection_handle` | gives the tasks of a connection access to that state, and wakes the connection's task |
//! | `stream_history`, `stray_frames` | streams that are not open, and frames on such streams |
//! | `head`, `trailers` | build a request's head and trailers from their fields |
//! | `head_memory` | bounds the memory of all heads and trailers |
//! | `response_form` | whether a response has a body, and which fields its head has |
//! | `send_response` | sends a response: head, body, trailers |
//! | `allowance` | bounds frames without use |
//! | `initial_settings` | the limits that the gateway announces first |

pub mod allowance;
mod connection;
mod connection_handle;
mod connection_state;
pub mod exchange;
mod grpc_exchange;
pub mod head;
pub mod head_memory;
mod initial_settings;
mod request_data;
pub mod response_form;
mod send_response;
mod stray_frames;
mod stream;
mod stream_history;
mod stream_state;
pub mod trailers;

pub use connection::serve;
pub use stream::Http2Stream;
