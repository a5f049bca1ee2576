//! Which memcached servers are the store.

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers as `host:port`; all gateways name them alike, in any order.
    pub servers: Vec<String>,
    /// What all keys begin with, at most 64 visible ASCII characters.
    pub prefix: String,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no server.
    #[error("memcached needs a server")]
    Servers,
    /// The prefix cannot be part of a key.
    #[error("`{0}` is no prefix of keys: at most 64 visible ASCII characters")]
    Prefix(String),
}
