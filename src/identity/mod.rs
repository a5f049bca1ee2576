//! Who asks: ip, user, token, email and plan, each from the source that the configuration names and
//! from no other. What cannot be verified counts as absent.

pub mod api_keys;
pub mod body;
mod canonical;
mod cookie;
pub mod email;
pub mod embedded;
pub mod failures;
mod field_value;
mod fingerprint_cache;
pub mod form;
pub mod identifier;
pub mod ip;
pub mod jwt;
pub mod key;
pub mod mailbox;
pub mod naming;
pub mod plan;
mod query;
pub mod strip;
pub mod token;
mod unverified;
pub mod user;
pub mod user_name;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;

pub use field_value::FieldValue;
pub use identifier::{CredentialCheck, Identifier};
pub use key::Keyer;
pub use unverified::Unverified;

use crate::limit::{Fingerprint, Identity};
use crate::net::{PeerAddress, Subject};

/// How the gateway knows who asks.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The client's address.
    pub ip: ip::Settings,
    /// Who the request proves to be.
    pub user: Option<user::Settings>,
    /// What becomes of a request whose credential does not verify.
    pub unverified: user::OnUnverified,
    /// Where a credential is found.
    pub token: Option<token::TokenSource>,
    /// Where an email address is found.
    pub email: Option<email::Settings>,
    /// Plans and how a request's plan is known.
    pub plan: plan::Settings,
}

impl Settings {
    /// Whether the credential of the user decides this identity, so that without it the request has none.
    pub fn proves(&self, identity: Identity) -> bool {
        match identity {
            Identity::User => self.user.is_some(),
            Identity::Plan => matches!(
                self.plan.source,
                Some(plan::PlanOrigin::Claim(_) | plan::PlanOrigin::ApiKeys)
            ),
            Identity::Token => match (&self.user, &self.token) {
                (Some(user::Settings::ApiKeys(_)), token) => token.is_some(),
                (Some(user::Settings::Jwt(_)), Some(token::TokenSource::Bearer)) => true,
                (Some(user::Settings::Jwt(_)), Some(token::TokenSource::Header(name))) => {
                    name == AUTHORIZATION
                }
                _ => false,
            },
            Identity::Ip | Identity::Email => false,
        }
    }
}

/// What is known of a connection before its first request.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPeer<'a> {
    /// Its other end.
    pub peer: PeerAddress,
    /// Whom the certificate is for that the other end has shown and that was verified.
    pub subject: Option<&'a Subject>,
}

impl From<IpAddr> for ConnectionPeer<'_> {
    fn from(peer: IpAddr) -> Self {
        ConnectionPeer {
            peer: peer.into(),
            subject: None,
        }
    }
}

/// Who one request comes from.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// The client's address behind the trusted proxies, as it is counted: see [`embedded`].
    pub ip: IpAddr,
    /// The address is not the client's own: that of a trusted proxy that names nobody, or loopback for a client of a Unix
    /// socket. No exemption is for it.
    pub ip_unclear: bool,
    /// The verified user as the upstream and the log call it.
    pub user: Option<Arc<str>>,
    /// Why what the request carries proves no user.
    pub unverified: Option<Unverified>,
    /// The credential that [`Settings::token`] names is there twice or can be read in several ways, so that the
    /// upstream may take another one. Where requests are counted by token they are to be refused.
    pub ambiguous_token: bool,
    /// Keyed hash of the credential.
    pub token: Option<Fingerprint>,
    /// Keyed hash of the folded email address, or of the text in its place.
    pub email: Option<Fingerprint>,
    /// Why nobody can say what the email address in the body is. Where requests are counted by it they are to
    /// be refused.
    pub unclear_email: Option<&'static str>,
    /// Index into [`plan::Settings::plans`], when the request's plan is known or has a default.
    pub plan: Option<usize>,
}

impl ClientIdentity {
    /// A request of which nothing but its address is known.
    pub fn new(ip: IpAddr) -> ClientIdentity {
        ClientIdentity {
            ip,
            ip_unclear: false,
            user: None,
            unverified: None,
            ambiguous_token: false,
            token: None,
            email: None,
            unclear_email: None,
            plan: None,
        }
    }

    /// Why a credential proves nobody, for operators.
    pub fn credential_fault(&self) -> Option<Unverified> {
        let ambiguous = self.ambiguous_token && self.user.is_none();
        self.unverified
            .or(ambiguous.then_some(Unverified::Ambiguous))
    }

    /// Whether this identity is known.
    pub fn has(&self, identity: Identity) -> bool {
        match identity {
            Identity::Ip => true,
            Identity::User => self.user.is_some(),
            Identity::Token => self.token.is_some(),
            Identity::Email => self.email.is_some(),
            Identity::Plan => self.plan.is_some(),
        }
    }
}
