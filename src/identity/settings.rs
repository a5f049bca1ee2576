//! The settings of all identities: which source each one comes from.

use http::header::AUTHORIZATION;

use super::{email, ip, plan, token, user};
use crate::limit::Identity;

/// Where each identity of a client comes from.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The client's address.
    pub ip: ip::Settings,
    /// What proves the user.
    pub user: Option<user::Settings>,
    /// What happens to a request whose credential does not verify.
    pub unverified: user::OnUnverified,
    /// Which part of a request holds the credential.
    pub token: Option<token::TokenSource>,
    /// Which field of a body holds the email address.
    pub email: Option<email::Settings>,
    /// The plans, and where a request's plan comes from.
    pub plan: plan::Settings,
}

impl Settings {
    /// Whether the user's credential proves this identity too: a request without that credential lacks it.
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
