//! Identifies the client of a request: its ip, user, token, email and plan, and what the gateway file defines.
//!
//! Each identity comes only from the sources that the configuration names. An identity whose proof fails counts as absent.
//!
//! | file | what it is |
//! |---|---|
//! | `settings` | the sources that the configuration names |
//! | `connection_peer`, `client_identity` | the peer of a connection; the identities of the client that sent a request |
//! | `identifier` | turns a request into a `ClientIdentity`, and that into keys of limits |
//! | `ip`, `embedded_ipv4` | the client's address behind trusted proxies; IPv4 addresses inside IPv6 ones |
//! | `user`, `jwt`, `api_keys` | what proves a user: a signed token, an API key, a header field, a certificate |
//! | `runtime_keys` | the API keys that operators add at run time |
//! | `user_name`, `unverified` | the syntax of a user's name; the reasons why a credential does not verify |
//! | `failures`, `fingerprint_cache` | a bound on failed signatures of an address; a cache whose keys are keyed hashes |
//! | `token`, `canonical` | the credential of a request, and its canonical form |
//! | `email`, `mailbox` | the email address in a body, a query or a cookie, and its canonical form |
//! | `plan` | the plans, and where a request's plan comes from |
//! | `custom`, `custom_value`, `path_part` | identities that the gateway file defines |
//! | `query`, `cookie`, `form`, `body` | one field of a query, a cookie, a form, or a body of any format |
//! | `field_value` | the value of such a field, if all readers agree on it |
//! | `preflight` | requests by which browsers ask whether a page may send another |
//! | `strip` | header fields that a client must not set |
//! | `key`, `key_text` | keyed hashes of identities; keys of limits as operators write them |
//! | `override_table` | the keys whose limits the policy overrides |

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
pub mod override_table;
pub(crate) mod path_part;
pub mod plan;
pub mod preflight;
pub mod query;
pub mod runtime_keys;
mod settings;
pub mod strip;
pub mod token;
mod unverified;
pub mod user;
pub mod user_name;

pub use client_identity::ClientIdentity;
pub use connection_peer::ConnectionPeer;
pub use field_value::FieldValue;
pub use identifier::{
    ADDRESS_KEYS, BufferedBody, CheckCondition, Denial, IdentificationStage, Identifier,
    RequestParts, WantedIdentities,
};
pub use key::Keyer;
pub use settings::{MeasuredIdentity, Settings};
pub use unverified::Unverified;
