//! The mistakes in the text of a key, with messages for operators.

use ipnet::IpNet;

/// A mistake in the text of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A part without `=`.
    #[error("`{0}` is not written NAME=VALUE, like ip=203.0.113.9")]
    MissingEquals(String),
    /// A part of an identity that the limit does not count by.
    #[error("this limit counts by {counted}, not by `{written}`")]
    UncountedIdentity {
        /// The names of the identities that the limit counts by.
        counted: String,
        /// The name that was written.
        written: String,
    },
    /// A part of an identity that this gateway does not have.
    #[error(
        "there is no identity `{0}`; write ip, user, token, email, plan, or one that the gateway file defines"
    )]
    UnknownIdentity(String),
    /// Two parts of the same identity.
    #[error("`{0}` is there twice; a comma in a value is written ~2C")]
    RepeatedIdentity(&'static str),
    /// A value of `ip` that is neither an address nor a network.
    #[error("`{0}` is not an address")]
    InvalidAddress(String),
    /// A network that is not one client.
    #[error("`{written}` is not one client: addresses are grouped as `{client_network}`")]
    NotOneClient {
        /// The network that was written.
        written: IpNet,
        /// The network of one client at the same address.
        client_network: IpNet,
    },
    /// A value of `email` that is no email address.
    #[error("`{0}` is not an email address")]
    InvalidEmail(String),
    /// A user or a custom value that begins with `#`, such as the shortened hash of an email address.
    #[error(
        "`{0}` is the hash of an email address, which no key can be found by: write the address"
    )]
    EmailHash(String),
    /// A value of `plan` that is no configured plan.
    #[error("there is no plan `{0}`")]
    UnknownPlan(String),
    /// A text that is not a valid value of the identity.
    #[error("`{text}` is not a value of `{identity}`")]
    InvalidValue {
        /// The name of the identity.
        identity: &'static str,
        /// The text.
        text: String,
    },
    /// A key without an address, for a limit that would count a client with the other parts by ip.
    #[error("this limit counts by ip: write ip=ADDRESS too")]
    MissingAddress,
    /// A key with none of the identities that the limit counts by.
    #[error("the key names nobody that this limit counts by")]
    NoCountedIdentity,
}
