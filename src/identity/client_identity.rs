//! The identities of the client that sent one request. The [`Identifier`](super::Identifier) determines them, and
//! limits count by them.

use std::net::IpAddr;
use std::sync::Arc;

use super::Unverified;
use super::custom_value::{CustomValue, IdentityValue};
use super::runtime_keys::RuntimeKeyOwner;
use crate::limit::{CustomIdentity, Fingerprint, Identity, UserSources};

/// The identities of one request's client. An identity is absent if it did not come with the request, or did not
/// verify. A custom identity is absent too if it was not looked for.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// The client's address behind the trusted proxies, in the form that is counted: see [`super::embedded_ipv4`].
    pub ip: IpAddr,
    /// Whether the address may not be the client's own: the fields of trusted proxies cannot be read or contradict each
    /// other, or the client came over a Unix socket. Exemptions by address never apply then.
    pub is_ip_unclear: bool,
    /// Whether the address is unclear by the fields of a trusted proxy, which the client may have contrived. A request
    /// with it is refused where lists of `deny` and `allow` name networks.
    pub is_ip_disputed: bool,
    /// The verified user, spelled as the upstream and the log get it.
    pub user: Option<Arc<str>>,
    /// What verified the user; [`UserSources::NONE`] without one.
    pub user_source: UserSources,
    /// The API key of the request that an operator has added at run time, whether it verifies or not.
    pub runtime_key: Option<Arc<RuntimeKeyOwner>>,
    /// Why a credential of the request did not verify, or cannot be read in one way only; `None` if none failed.
    pub unverified: Option<Unverified>,
    /// Whether the credential in [`Settings::token_sources`](super::Settings::token_sources) occurs twice or has
    /// several readings, so that the upstream may use another one. A route that counts by token must refuse the
    /// request.
    pub is_token_ambiguous: bool,
    /// Keyed hash of the credential; `None` without a credential, and for one that had to verify and did not.
    pub token: Option<Fingerprint>,
    /// Keyed hash of the folded email address, or of a name that came in the field of the address. `None` without
    /// either.
    pub email: Option<Fingerprint>,
    /// Why the email address in the body is unclear, as a message for the client. A route that counts by email must
    /// refuse the request.
    pub unclear_email_reason: Option<&'static str>,
    /// Index into [`Settings::plans`](super::plan::Settings::plans). `None` if the request has no plan and there is no
    /// default one.
    pub plan: Option<usize>,
    /// The custom identities that the request has, as far as they were looked for.
    pub custom: Vec<CustomValue>,
}

impl ClientIdentity {
    /// A client without any identity but its address.
    pub fn new(ip: IpAddr) -> ClientIdentity {
        ClientIdentity {
            ip,
            is_ip_unclear: false,
            is_ip_disputed: false,
            user: None,
            user_source: UserSources::NONE,
            runtime_key: None,
            unverified: None,
            is_token_ambiguous: false,
            token: None,
            email: None,
            unclear_email_reason: None,
            plan: None,
            custom: Vec::new(),
        }
    }

    /// Why the request's credential proves no user, for operators. In contrast to `unverified`, a reason is given also
    /// for an ambiguous credential that need not prove a user.
    pub fn credential_fault(&self) -> Option<Unverified> {
        let is_ambiguous = self.is_token_ambiguous && self.user.is_none();
        self.unverified
            .or(is_ambiguous.then_some(Unverified::Ambiguous))
    }

    /// Whether the client has this identity. An ambiguous value of a custom identity does not count.
    pub fn has(&self, identity: Identity) -> bool {
        match identity {
            Identity::Ip => true,
            Identity::User => self.user.is_some(),
            Identity::Token => self.token.is_some(),
            Identity::Email => self.email.is_some(),
            Identity::Plan => self.plan.is_some(),
            Identity::Custom(custom) => {
                (self.custom_value(custom)).is_some_and(|value| *value != IdentityValue::Ambiguous)
            }
        }
    }

    /// The value of a custom identity; `None` if the client does not have it.
    pub fn custom_value(&self, identity: CustomIdentity) -> Option<&IdentityValue> {
        let custom = self
            .custom
            .iter()
            .find(|custom| custom.identity == identity)?;
        Some(&custom.value)
    }
}
