//! Why an order is refused, with messages for operators.

use crate::identity::key_text::KeyError;

/// Why a ban is not ordered or not lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BanError {
    /// The text is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The network has all addresses of its version of IP.
    #[error("this network has every address; write a smaller one")]
    Everyone,
    /// The network is one of tunnels, whose addresses count as the IPv4 address inside them.
    #[error(
        "no client is in `{0}`: addresses of 6to4 and Teredo count as the IPv4 address inside them; ban that"
    )]
    Tunnels(String),
    /// The key, the reason or the name is too long; the number is the most bytes.
    #[error("`{0}` is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// The ban is too short or too long.
    #[error("a ban lasts from 1s to 3650d")]
    Duration,
    /// There are as many bans as the gateway keeps.
    #[error("there are {0} bans already, which is the most; lift some, or ban a network")]
    Full(usize),
    /// A change of the key by another gateway has a time that this gateway's clock does not reach.
    #[error(
        "`{0}` was changed by a gateway whose clock is far ahead, so this order would not count; set the clocks right"
    )]
    Superseded(String),
    /// The key is not banned itself.
    #[error("`{0}` is not banned; `tollgate bans` lists what is")]
    NotBanned(String),
    /// The key is not banned itself, but a network around it is.
    #[error("`{key}` is banned by the ban of `{network}`; lift that one")]
    BannedByNetwork {
        /// The key.
        key: String,
        /// The key of the network.
        network: String,
    },
}

/// Why a grant is not ordered or not taken back, whatever the policies say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantOrderError {
    /// The key, the reason or the name is too long; the number is the most bytes.
    #[error("`{0}` is longer than {1} bytes; shorten it")]
    TooLong(&'static str, usize),
    /// The grant is too short or too long.
    #[error("a grant lasts from 1s to 3650d; write for instance 1d")]
    Duration,
    /// There are as many grants as the gateway keeps.
    #[error(
        "there are {0} grants already, which is the most; revoke some, or write the keys into a file of `overrides`"
    )]
    Full(usize),
    /// A change of the key by another gateway has a time that this gateway's clock does not reach.
    #[error(
        "the grant of `{0}` was changed by a gateway whose clock is far ahead, so this order would not count; set the clocks right"
    )]
    Superseded(String),
    /// The key has no grant.
    #[error("`{key}` has no grant of `{limit}`; `tollgate grants` lists all grants")]
    NotGranted {
        /// The limit.
        limit: String,
        /// The key.
        key: String,
    },
}
