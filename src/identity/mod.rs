//! Identifies the client of a request: its ip, user, token, email and plan, and what the gateway file defines.
//!
//! Each identity comes only from the sources that the configuration names. One that does not verify
//! counts as absent.
//!
//! | file | what it is |
//! |---|---|
//! | `identifier` | turns a request into a `ClientIdentity`, and that into keys of limits |
//! | `ip`, `embedded_ipv4` | the client's address behind trusted proxies; IPv4 addresses inside IPv6 ones |
//! | `user`, `jwt`, `api_keys` | the proof of a user: a signed token, an API key, a header field, a certificate |
//! | `token`, `cookie`, `query`, `canonical` | the credential of a request, and its canonical form |
//! | `email`, `mailbox` | the email address in a body, and its canonical form |
//! | `plan` | the plan of a request |
//! | `custom`, `custom_value`, `path_part` | identities that the gateway file defines |
//! | `form`, `body` | one field of a form, or of a body of any format |
//! | `strip` | header fields that a client must not set |
//! | `key`, `key_text` | keyed hashes of identities; keys of limits as operators write them |

pub mod api_keys;
pub mod body;
mod canonical;
mod client_identity;
mod connection_peer;
mod cookie;
pub mod custom;
pub mod custom_value;
pub mod email;
pub mod embedded_ipv4;
pub mod failures;
mod field_value;
mod fingerprint_cache;
pub mod form;
pub mod identifier;
pub mod ip;
pub mod jwt;
pub mod key;
pub mod key_text;
pub mod mailbox;
mod path_part;
pub mod plan;
mod query;
mod settings;
pub mod strip;
pub mod token;
mod unverified;
pub mod user;
pub mod user_name;

pub use client_identity::ClientIdentity;
pub use connection_peer::ConnectionPeer;
pub use field_value::FieldValue;
pub use identifier::{CredentialCheck, Identifier, RequestParts};
pub use key::Keyer;
pub use settings::Settings;
pub use unverified::Unverified;
