//! The settings of a memcached store, and why they cannot be used. They are checked when the client is made.

/// The servers of a store, and the prefix of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers as `host:port`, in any order. All gateways must write them the same way, because the name decides which
    /// counters a server holds.
    pub servers: Vec<String>,
    /// The prefix of all keys: at most 64 visible ASCII characters.
    pub prefix: String,
}

/// Why a client cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings name no server.
    #[error("memcached needs a server")]
    Servers,
    /// The prefix is too long, or has spaces, control characters or characters beyond ASCII.
    #[error("`{0}` cannot be a prefix of keys: use at most 64 visible ASCII characters")]
    Prefix(String),
}
