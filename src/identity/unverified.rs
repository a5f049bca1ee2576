//! The reasons why a credential does not verify: a closed list for the log, metrics and explanations. A reason holds
//! nothing of the credential itself.

use std::fmt;

/// Why a credential of a request did not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unverified {
    /// The token's `exp` is past, even with the leeway, or the API key has expired.
    Expired,
    /// The token's `nbf` is in the future, even with the leeway.
    NotYet,
    /// The token has no `exp`, or one that is no date.
    NoExpiry,
    /// The token names another issuer, or none.
    Issuer,
    /// The token is for another audience, or names none.
    Audience,
    /// No key has the token's key id (`kid`) and algorithm.
    KeyId,
    /// The key set is at a URL and has not been fetched.
    NoKeySet,
    /// The signature is wrong.
    Signature,
    /// The credential is no signed token, its header needs an unsupported feature, or its `nbf` is no date.
    Malformed,
    /// The signed token names no user: its claim is missing, or is not a name.
    Claim,
    /// `Authorization` has another scheme than `Bearer`, or none.
    Scheme,
    /// No API key is the credential.
    UnknownKey,
    /// An operator has revoked the API key.
    Revoked,
    /// The request has two credentials, one that upstreams may read in another way, or one that is too long.
    Ambiguous,
    /// The client certificate names no user.
    Certificate,
    /// The user field of a trusted peer is not one valid name.
    Field,
    /// A peer that may not set the user field has set it. The gateway removes the field.
    Peer,
    /// The credential was not checked: a limit refuses the client's address, or too many signatures from it failed.
    Unchecked,
}

impl Unverified {
    /// All reasons, in the order of the enum.
    pub const ALL: [Unverified; 18] = [
        Unverified::Expired,
        Unverified::NotYet,
        Unverified::NoExpiry,
        Unverified::Issuer,
        Unverified::Audience,
        Unverified::KeyId,
        Unverified::NoKeySet,
        Unverified::Signature,
        Unverified::Malformed,
        Unverified::Claim,
        Unverified::Scheme,
        Unverified::UnknownKey,
        Unverified::Revoked,
        Unverified::Ambiguous,
        Unverified::Certificate,
        Unverified::Field,
        Unverified::Peer,
        Unverified::Unchecked,
    ];

    /// The word for this reason in the log, in metrics and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Unverified::Expired => "expired",
            Unverified::NotYet => "not_yet",
            Unverified::NoExpiry => "no_expiry",
            Unverified::Issuer => "issuer",
            Unverified::Audience => "audience",
            Unverified::KeyId => "key_id",
            Unverified::NoKeySet => "no_key_set",
            Unverified::Signature => "signature",
            Unverified::Malformed => "malformed",
            Unverified::Claim => "claim",
            Unverified::Scheme => "scheme",
            Unverified::UnknownKey => "unknown_key",
            Unverified::Revoked => "revoked",
            Unverified::Ambiguous => "ambiguous",
            Unverified::Certificate => "certificate",
            Unverified::Field => "field",
            Unverified::Peer => "peer",
            Unverified::Unchecked => "unchecked",
        }
    }

    /// Whether the upstream sees the credential, and so might accept it. The gateway removes only the field of an
    /// untrusted peer.
    pub fn may_reach_upstream(self) -> bool {
        self != Unverified::Peer
    }
}

/// Describes the credential for operators; the text fits after "a request with".
impl fmt::Display for Unverified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unverified::Expired => "a credential that has expired",
            Unverified::NotYet => "a token that is not valid yet",
            Unverified::NoExpiry => "a token without an expiry (`exp`)",
            Unverified::Issuer => "a token of another issuer (`iss`)",
            Unverified::Audience => "a token for another audience (`aud`)",
            Unverified::KeyId => "a token for which there is no key with its id and algorithm",
            Unverified::NoKeySet => "a token whose key set has not been fetched",
            Unverified::Signature => "a token whose signature is wrong",
            Unverified::Malformed => "a credential that is no signed token",
            Unverified::Claim => "a token that names no user",
            Unverified::Scheme => "a credential of another scheme",
            Unverified::UnknownKey => "an unknown API key",
            Unverified::Revoked => "an API key that was revoked",
            Unverified::Ambiguous => "a credential that can be read in several ways",
            Unverified::Certificate => "a certificate that names no user",
            Unverified::Field => "a user field that is not one name",
            Unverified::Peer => "a user field from a peer that may not set it",
            Unverified::Unchecked => {
                "a credential that is not checked, for its address is refused or too many of it failed"
            }
        })
    }
}
