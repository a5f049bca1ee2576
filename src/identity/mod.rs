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
//! | `client_network` | the network that counts as one client, and those around it |
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
//! | `key`, `random_secret` | keyed hashes of identities, and their secret |
//! | `key_text` | keys of limits as operators write them |
//! | `override_table` | the keys whose limits the policy overrides |

#[cfg(feature = "gateway")]
pub mod api_keys;
#[cfg(feature = "gateway")]
pub mod body;
#[cfg(feature = "gateway")]
mod canonical;
#[cfg(feature = "gateway")]
mod client_identity;
pub mod client_network;
#[cfg(feature = "gateway")]
mod connection_peer;
#[cfg(feature = "gateway")]
mod cookie;
#[cfg(feature = "gateway")]
pub mod custom;
pub mod custom_value;
#[cfg(feature = "gateway")]
pub mod email;
pub mod embedded_ipv4;
#[cfg(feature = "gateway")]
pub mod failures;
#[cfg(feature = "gateway")]
mod field_value;
#[cfg(feature = "gateway")]
mod fingerprint_cache;
#[cfg(feature = "gateway")]
pub mod form;
#[cfg(feature = "gateway")]
pub mod identifier;
#[cfg(feature = "gateway")]
pub mod ip;
#[cfg(feature = "gateway")]
pub mod jwt;
pub mod key;
#[cfg(feature = "gateway")]
pub mod key_text;
#[cfg(feature = "gateway")]
pub mod mailbox;
#[cfg(feature = "gateway")]
pub mod override_table;
#[cfg(feature = "gateway")]
pub(crate) mod path_part;
#[cfg(feature = "gateway")]
pub mod plan;
#[cfg(feature = "gateway")]
pub mod preflight;
#[cfg(feature = "gateway")]
pub mod query;
mod random_secret;
#[cfg(feature = "gateway")]
pub mod runtime_keys;
#[cfg(feature = "gateway")]
mod settings;
#[cfg(feature = "gateway")]
pub mod strip;
#[cfg(feature = "gateway")]
pub mod token;
#[cfg(feature = "gateway")]
mod unverified;
#[cfg(feature = "gateway")]
pub mod user;
#[cfg(feature = "gateway")]
pub mod user_name;

#[cfg(feature = "gateway")]
pub use client_identity::ClientIdentity;
#[cfg(feature = "gateway")]
pub use connection_peer::ConnectionPeer;
#[cfg(feature = "gateway")]
pub use field_value::FieldValue;
#[cfg(feature = "gateway")]
pub use identifier::{
    ADDRESS_KEYS, BufferedBody, CheckCondition, Denial, IdentificationStage, Identifier,
    RequestParts, WantedIdentities,
};
pub use key::Keyer;
#[cfg(feature = "gateway")]
pub use settings::{MeasuredIdentity, Settings};
#[cfg(feature = "gateway")]
pub use unverified::Unverified;
