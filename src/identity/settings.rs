//! The settings of all identities: the sources that each of them comes from.

use http::HeaderName;
use http::header::AUTHORIZATION;

use super::{custom, email, ip, plan, token, user};
use crate::limit::{CustomIdentity, Identity, IdentitySet};
use crate::net::PeerNetwork;

/// The source of each identity. An identity other than ip is absent from every request if it has no source.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How the client's address is found and grouped.
    pub ip: ip::Settings,
    /// The sources that prove the user, each of another kind. The first that verifies says who the user is.
    pub users: Vec<user::Settings>,
    /// The treatment of requests whose credential does not verify.
    pub unverified: user::OnUnverified,
    /// The parts of a request that may hold the credential, of which the first that is there counts.
    pub tokens: Vec<token::TokenSource>,
    /// The field of a body that holds the email address.
    pub email: Option<email::Settings>,
    /// All plans, and the source of a request's plan.
    pub plan: plan::Settings,
    /// The identities that the gateway file defines.
    pub custom: Vec<custom::Settings>,
}

impl Settings {
    /// Whether a request lacks this identity, or has the default plan, if its credential does not verify. For
    /// [`Identity::User`] this is true for any source, also for certificates and for header fields of trusted peers.
    pub fn needs_proof(&self, identity: Identity) -> bool {
        match identity {
            Identity::User => !self.users.is_empty(),
            Identity::Plan => matches!(
                self.plan.source,
                Some(plan::PlanSource::Claim(_) | plan::PlanSource::ApiKeys)
            ),
            Identity::Token => {
                let has_api_keys =
                    (self.users.iter()).any(|user| matches!(user, user::Settings::ApiKeys(_)));
                (has_api_keys && !self.tokens.is_empty()) || self.counts_jwt_as_token()
            }
            Identity::Custom(custom) => matches!(
                self.custom_source(custom),
                Some(custom::Source::Claim(_) | custom::Source::ApiKeys)
            ),
            Identity::Ip | Identity::Email => false,
        }
    }

    /// Whether a client cannot choose the value of this identity freely. Unlike [`Settings::needs_proof`], this includes
    /// addresses, and identities that come from a trusted peer or a certificate. A client can choose its JA4 fingerprint.
    pub fn is_unforgeable(&self, identity: Identity) -> bool {
        match identity {
            Identity::Ip | Identity::User | Identity::Plan => true,
            Identity::Token => self.needs_proof(identity),
            Identity::Email => false,
            Identity::Custom(custom) => !matches!(
                self.custom_source(custom),
                Some(
                    custom::Source::Field(_)
                        | custom::Source::Query(_)
                        | custom::Source::Body(_)
                        | custom::Source::PathPart(_)
                )
            ),
        }
    }

    /// Describes in some words where the identity comes from, for operators.
    pub fn describe_source(&self, identity: Identity) -> String {
        match identity {
            Identity::Ip if self.ip.trusted_proxies.is_empty() => {
                "address of the connection".into()
            }
            Identity::Ip => "address behind the trusted proxies".into(),
            Identity::User => {
                let sources = self.users.iter().map(user::Settings::describe);
                sources.collect::<Vec<_>>().join(" or ")
            }
            Identity::Token => {
                let sources = self.tokens.iter().map(token::TokenSource::describe);
                sources.collect::<Vec<_>>().join(" or ")
            }
            Identity::Email => {
                let email = self.email.as_ref();
                email.map_or_else(String::new, |email| {
                    format!("field {} of the body", email.field.name().as_str())
                })
            }
            Identity::Plan => match &self.plan.source {
                Some(plan::PlanSource::Claim(claim)) => {
                    format!("claim {claim} of the token, or the default")
                }
                Some(plan::PlanSource::Header { name, .. }) => {
                    format!("header {name} of a trusted peer, or the default")
                }
                Some(plan::PlanSource::ApiKeys) => "file of API keys, or the default".into(),
                None => "the default".into(),
            },
            Identity::Custom(custom) => self
                .custom_source(custom)
                .map(custom::Source::describe)
                .unwrap_or_default(),
        }
    }

    /// Whether the credential may be a parameter of the query. Many frameworks then read it from the fields of a form too.
    pub fn has_token_in_query(&self) -> bool {
        let is_query = |source: &token::TokenSource| matches!(source, token::TokenSource::Query(_));
        self.tokens.iter().any(is_query)
    }

    /// The header field that names the user, and the peers that may set it; `None` if no field does.
    pub fn user_field(&self) -> Option<(&HeaderName, &[PeerNetwork])> {
        self.users.iter().find_map(|user| match user {
            user::Settings::Header { name, from } => Some((name, from.as_slice())),
            _ => None,
        })
    }

    /// The sources of these custom identities.
    pub fn sources(&self, identities: IdentitySet) -> impl Iterator<Item = &custom::Source> {
        let is_in_set = move |custom: &&custom::Settings| {
            identities.contains(Identity::Custom(custom.identity))
        };
        self.custom
            .iter()
            .filter(is_in_set)
            .map(|custom| &custom.source)
    }

    /// Whether the signed token that proves the user is also what [`Identity::Token`] counts: the only token source is
    /// `Authorization`, with any scheme or with `Bearer`.
    pub fn counts_jwt_as_token(&self) -> bool {
        let is_jwt = |user: &user::Settings| matches!(user, user::Settings::Jwt(_));
        self.users.iter().any(is_jwt)
            && match self.tokens.as_slice() {
                [token::TokenSource::Bearer] => true,
                [token::TokenSource::Header(name)] => name == AUTHORIZATION,
                _ => false,
            }
    }

    /// The source of a custom identity; `None` if the gateway file does not define it.
    pub fn custom_source(&self, identity: CustomIdentity) -> Option<&custom::Source> {
        let settings = self
            .custom
            .iter()
            .find(|custom| custom.identity == identity)?;
        Some(&settings.source)
    }
}
