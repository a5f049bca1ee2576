//! Which memcached servers are the store.

/// Which servers, and the prefix of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers as `host:port`, in any order; all gateways must write them the same way.
    pub servers: Vec<String>,
    /// The prefix of all keys: at most 64 visible ASCII characters.
    pub prefix: String,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no server.
    #[error("memcached needs a server")]
    Servers,
    /// The prefix cannot be part of a key.
    #[error("`{0}` cannot be a prefix of keys: use at most 64 visible ASCII characters")]
    Prefix(String),
}
