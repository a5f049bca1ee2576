//! Bodies on their way through the gateway: of requests, of upstreams' responses, and of the gateway's own responses.
//!
//! | file | what it is |
//! |---|---|
//! | `request_body` | the body that a client sends, which may be read ahead |
//! | `response_body` | the body that a client gets, from an upstream or from the gateway |
//! | `compressed_body`, `content_encoder` | an upstream's body that is compressed for the client; the codings |
//! | `early_close` | why the gateway ends a WebSocket early, and the close frame for its client |
//! | `body_error` | why a body broke off |

mod body_error;
mod compressed_body;
mod content_encoder;
mod early_close;
mod request_body;
mod response_body;

pub use body_error::{CLIENT_LEFT, Error, PERMITS_LOST};
pub use compressed_body::DIGEST_FIELDS;
pub use early_close::{CloseInsertion, EarlyClose, SharedClose};
pub use request_body::{
    BodyStart, FieldPresence, MAX_READ_AHEAD_BYTES, PolledFrame, ReadAhead, RequestBody, TunnelGate,
};
pub use response_body::{AdmittedBody, RelaySettings, RelayedBody, ResponseBody, SpareRelay};
