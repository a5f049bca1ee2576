//! The door at which other proxies ask by gRPC: Envoy's rate limit service, version 3. Its calls pass by the layers of the
//! stack, but are decided by the same limits and recorded in the same way.
//!
//! | file | what it is |
//! |---|---|
//! | `grpc` | the head, the message, the deadline and the status of a call |
//! | `call` | answers one call: which method it is, and what becomes of it |
//! | `message_memory` | bounds the memory of messages that are not decided yet |
//! | `rate_limit` | decides about the descriptors of a request |
//! | `rate_limit_answer` | what the verdict is as a message |
//! | `rate_limit_messages` | the messages of the service |

pub mod call;
pub mod grpc;
pub mod message_memory;
mod rate_limit;
mod rate_limit_answer;
pub mod rate_limit_messages;
