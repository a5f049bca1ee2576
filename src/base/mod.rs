//! The lowest floor: small tools that any other module may use. They do no I/O for a request and know no policy.
//!
//! | module | what it is |
//! |---|---|
//! | `clock` | time as a value, from the machine or from a test |
//! | `locks` | the locks of state that threads share |
//! | `otlp` | the messages of OTLP that metrics and traces share |
//! | `proto_message` | the wire format of protocol buffers |
//! | `random` | seeded generators, a mixer of bits, and jitter |
//! | `suggest` | the nearest valid word for a misspelled one; lists of words |
//! | `telemetry` | every metric and label by name, their values, and the process's log |
//! | `varint` | integers in seven bits per byte |

pub mod clock;
pub mod locks;
#[cfg(feature = "gateway")]
pub mod otlp;
#[cfg(feature = "gateway")]
pub mod proto_message;
pub mod random;
#[cfg(feature = "gateway")]
pub mod suggest;
#[cfg(feature = "gateway")]
pub mod telemetry;
#[cfg(feature = "gateway")]
pub mod varint;
