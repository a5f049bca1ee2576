//! The settings of all identities: the sources that each of them comes from.

use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;

use super::api_keys::ApiKeys;
use super::{custom, email, ip, plan, token, user};
use crate::limit::{CustomIdentity, Identity, UserSources};
use crate::net::PeerNetwork;

/// The source of each identity. An identity other than ip is absent from every request if it has no source.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How the client's address is found and grouped.
    pub ip: ip::Settings,
    /// The sources that prove the user, each of another kind; all issuers of tokens are one source. The first one whose
    /// proof verifies decides.
    pub user_sources: Vec<user::Settings>,
    /// The treatment of requests whose credential does not verify, on routes that count by what it would prove.
    pub on_unverified: user::OnUnverified,
    /// The parts of a request that may hold the credential. The first part that a request has counts.
    pub token_sources: Vec<token::TokenSource>,
    /// The field of a body, a query or a cookie that holds the email address.
    pub email: Option<email::Settings>,
    /// All plans, and the source of a request's plan.
    pub plan: plan::Settings,
    /// The identities that the gateway file defines.
    pub custom: Vec<custom::Settings>,
    /// The header field of the request's id, which no client sets; `None` if requests have none.
    pub request_id_field: Option<HeaderName>,
    /// The identities whose values label a metric.
    pub measured: Vec<MeasuredIdentity>,
}

/// An identity whose values label a metric.
#[derive(Clone, Debug)]
pub struct MeasuredIdentity {
    /// The identity, whose values the operator writes.
    pub identity: Identity,
    /// The values with series of their own, each once. All others share one.
    pub values: Vec<Arc<str>>,
}

impl Settings {
    /// Whether a request lacks this identity, or has the default plan, if its credential does not verify. For
    /// [`Identity::User`] this is true for any source, also for certificates and for header fields of trusted peers.
    pub fn needs_proof(&self, identity: Identity) -> bool {
        match identity {
            Identity::User => !self.user_sources.is_empty(),
            Identity::Plan => matches!(
                self.plan.source,
                Some(plan::PlanSource::Claim(_) | plan::PlanSource::ApiKeys)
            ),
            Identity::Token => {
                // API keys verify the credential of every token source.
                (self.api_keys().is_some() && !self.token_sources.is_empty())
                    || self.counts_jwt_as_token()
            }
            Identity::Custom(custom_identity) => matches!(
                self.custom_source(custom_identity),
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
            Identity::Custom(custom_identity) => !matches!(
                self.custom_source(custom_identity),
                Some(
                    custom::Source::Field(_)
                        | custom::Source::Ja4
                        | custom::Source::Query(_)
                        | custom::Source::Body(_)
                        | custom::Source::PathPart(_)
                )
            ),
        }
    }

    /// Whether many clients have the same value of this identity, so that it does not tell who one is.
    pub fn is_of_many_clients(&self, identity: Identity) -> bool {
        match identity {
            Identity::Plan => true,
            Identity::Custom(custom_identity) => matches!(
                self.custom_source(custom_identity),
                Some(custom::Source::Networks(_) | custom::Source::Ja4 | custom::Source::Preflight)
            ),
            Identity::Ip | Identity::User | Identity::Token | Identity::Email => false,
        }
    }

    /// Whether requests may have this identity in their bodies, so that their heads do not show it for certain.
    pub fn is_in_body(&self, identity: Identity) -> bool {
        match identity {
            Identity::Email => true,
            Identity::Custom(custom_identity) => matches!(
                self.custom_source(custom_identity),
                Some(custom::Source::Query(_) | custom::Source::Body(_))
            ),
            Identity::Ip | Identity::User | Identity::Token | Identity::Plan => false,
        }
    }

    /// Whether this identity is a part of the path, as the pattern of a route names it.
    pub fn is_in_path(&self, identity: Identity) -> bool {
        let Identity::Custom(custom_identity) = identity else {
            return false;
        };
        let source = self.custom_source(custom_identity);
        matches!(source, Some(custom::Source::PathPart(_)))
    }

    /// Whether an identity comes from the JA4 fingerprint of TLS handshakes.
    pub fn needs_ja4(&self) -> bool {
        let mut sources = self.custom.iter().map(|custom| &custom.source);
        sources.any(|source| matches!(source, custom::Source::Ja4))
    }

    /// The names of these sources of users, in the order in which they are tried.
    pub fn user_source_names(&self, sources: UserSources) -> Vec<&str> {
        let user_sources = self.user_sources.iter();
        user_sources
            .flat_map(|source| source.names(sources))
            .collect()
    }

    /// The names of the sources of users that a route requires; `None` if it accepts all.
    pub fn required_source_names(&self, sources: UserSources) -> Option<Vec<&str>> {
        (sources != UserSources::ALL).then(|| self.user_source_names(sources))
    }

    /// Describes in some words where the identity comes from, for operators; empty for an identity without a source.
    pub fn describe_source(&self, identity: Identity) -> String {
        match identity {
            Identity::Ip if self.ip.trusted_proxies.is_empty() => {
                "address of the connection".into()
            }
            Identity::Ip => "address behind the trusted proxies".into(),
            Identity::User => {
                let sources = self.user_sources.iter().map(user::Settings::describe);
                sources.collect::<Vec<_>>().join(" or ")
            }
            Identity::Token => {
                let sources = self.token_sources.iter().map(token::TokenSource::describe);
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
                Some(plan::PlanSource::ApiKeys) => {
                    format!("{}, or the default", self.describe_api_keys())
                }
                None => "the default".into(),
            },
            Identity::Custom(custom_identity) => match self.custom_source(custom_identity) {
                Some(custom::Source::ApiKeys) => self.describe_api_keys().into(),
                source => source.map(custom::Source::describe).unwrap_or_default(),
            },
        }
    }

    /// The API keys that prove users; `None` if none do.
    pub fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        self.user_sources.iter().find_map(|user| match user {
            user::Settings::ApiKeys(keys) => Some(keys),
            _ => None,
        })
    }

    /// Describes where API keys are, for operators.
    fn describe_api_keys(&self) -> &'static str {
        self.api_keys()
            .map_or("file of API keys", |keys| keys.describe())
    }

    /// Whether API keys that operators add at run time verify.
    pub fn accepts_runtime_keys(&self) -> bool {
        self.api_keys()
            .is_some_and(|keys| keys.accepts_runtime_keys())
    }

    /// Whether the credential may be a parameter of the query. Many frameworks then read it from the fields of a form too.
    pub fn has_token_in_query(&self) -> bool {
        let is_query = |source: &token::TokenSource| matches!(source, token::TokenSource::Query(_));
        self.token_sources.iter().any(is_query)
    }

    /// The header field that names the user, and the peers that may set it; `None` if no field does.
    pub fn user_field(&self) -> Option<(&HeaderName, &[PeerNetwork])> {
        self.user_sources.iter().find_map(|user| match user {
            user::Settings::Header {
                name,
                allowed_peers,
            } => Some((name, allowed_peers.as_slice())),
            _ => None,
        })
    }

    /// Whether the signed token that proves the user is also what [`Identity::Token`] counts: the only token source is
    /// `Authorization`, with any scheme or with `Bearer`.
    pub fn counts_jwt_as_token(&self) -> bool {
        let is_jwt = |user: &user::Settings| matches!(user, user::Settings::Jwt(_));
        self.user_sources.iter().any(is_jwt)
            && match self.token_sources.as_slice() {
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
            .find(|settings| settings.identity == identity)?;
        Some(&settings.source)
    }
}
