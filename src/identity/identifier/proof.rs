//! Verifies the user of a request by the first source of the settings that proves one.
//!
//! A credential that does not verify proves no user, and gives the reason. Only this file has signatures verified, and
//! their results are cached.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use smallvec::smallvec;

use super::Identifier;
use super::proof_input::ProofInput;
use super::verified_token::VerifiedToken;
use crate::http::head::Fields;
use crate::identity::custom_value::{CustomValue, IdentityValue};
use crate::identity::key::Domain;
use crate::identity::runtime_keys::RuntimeKeyOwner;
use crate::identity::token::TokenSource;
use crate::identity::{
    FieldValue, Unverified, api_keys, custom, jwt, plan, token, user, user_name,
};
use crate::limit::{CustomIdentity, Fingerprint, Identity, UserSources};

/// The result of verifying the credential of a request. The default proves nothing.
#[derive(Default)]
pub(super) struct CredentialProof {
    /// The verified user; `None` if no source proves one.
    pub(super) user: Option<Arc<str>>,
    /// What verified the user; [`UserSources::NONE`] without one.
    pub(super) user_source: UserSources,
    /// Index into [`plan::Settings::plans`]; `None` if the credential names no configured plan.
    pub(super) plan: Option<usize>,
    /// The custom identities that the token, or the entry of the API key, has.
    pub(super) custom: Vec<CustomValue>,
    /// The API key that an operator has added at run time, whether it verifies or not.
    pub(super) runtime_key: Option<Arc<RuntimeKeyOwner>>,
    /// Why the credential did not verify; `None` if it verified, and if the request has no credential.
    pub(super) unverified: Option<Unverified>,
    /// Set if the proof decides about the token of [`Settings::token_sources`](super::Settings::token_sources). The inner
    /// value is then the fingerprint of the token, or `None` for a token that did not verify and must not count.
    pub(super) token: Option<Option<Fingerprint>>,
}

impl Identifier {
    /// Verifies the user of a request by the first source that proves one. If none does, the reason with the strictest
    /// consequence is returned. `wall_clock` returns the time since the Unix epoch.
    pub(super) fn prove_user(
        &self,
        input: &ProofInput<'_>,
        wall_clock: &impl Fn() -> Duration,
    ) -> CredentialProof {
        let mut failed_proof = CredentialProof::default();
        for source in &self.settings.user_sources {
            let mut proof = self.prove_by_source(source, input, wall_clock);
            if proof.user.is_some() {
                // A token that another source would have to prove is unproven.
                proof.token = (proof.token)
                    .or(failed_proof.token)
                    .or(self.unproven_token());
                return proof;
            }
            if severity(proof.unverified) > severity(failed_proof.unverified) {
                failed_proof.unverified = proof.unverified;
            }
            failed_proof.token = failed_proof.token.or(proof.token);
            failed_proof.runtime_key = failed_proof.runtime_key.or(proof.runtime_key);
        }
        failed_proof
    }

    /// The value of [`CredentialProof::token`] where no source has proven the token.
    fn unproven_token(&self) -> Option<Option<Fingerprint>> {
        self.settings.needs_proof(Identity::Token).then_some(None)
    }

    /// Verifies the user by one source.
    fn prove_by_source(
        &self,
        source: &user::Settings,
        input: &ProofInput<'_>,
        wall_clock: &impl Fn() -> Duration,
    ) -> CredentialProof {
        match source {
            user::Settings::Jwt(issuers) => self.prove_by_jwt(issuers, input, wall_clock),
            user::Settings::ApiKeys(keys) => self.prove_by_api_key(keys, input, wall_clock),
            user::Settings::Header { name, .. } => {
                let field = token::single_value(input.fields, name.as_str());
                CredentialProof {
                    user_source: UserSources::HEADER,
                    ..prove_by_field(&field, || self.user_peers.contains(input.connection.peer))
                }
            }
            user::Settings::ClientCert(name) => match input.connection.subject {
                None => CredentialProof::default(),
                Some(subject) => CredentialProof {
                    user_source: UserSources::CLIENT_CERT,
                    ..CredentialProof::new(name.user(subject).ok_or(Unverified::Certificate))
                },
            },
        }
    }

    fn prove_by_jwt(
        &self,
        issuers: &[jwt::Settings],
        input: &ProofInput<'_>,
        wall_clock: &impl Fn() -> Duration,
    ) -> CredentialProof {
        let is_token = self.settings.counts_jwt_as_token();
        let unproven = |unverified| CredentialProof {
            unverified,
            token: is_token.then_some(None),
            ..CredentialProof::default()
        };
        let text = match bearer_text(input.fields) {
            Err(unverified) => return unproven(unverified),
            Ok(text) => text,
        };
        let verified = self
            .verify_token(issuers, &text, input)
            .and_then(|verified| {
                verified.claims.check_times(wall_clock())?;
                Ok(verified)
            });
        match verified {
            Err(unverified) => unproven(Some(unverified)),
            Ok(verified) => CredentialProof {
                user: Some(verified.claims.user),
                user_source: verified.source,
                plan: verified.plan,
                custom: verified.claims.custom,
                runtime_key: None,
                unverified: None,
                token: is_token.then(|| Some(self.token_fingerprint(&text))),
            },
        }
    }

    /// Verifies a token and caches the result, or returns the cached one. Counts a wrong signature against the client's
    /// address. The caller checks the token's times.
    ///
    /// # Errors
    ///
    /// The reason why the token does not verify; [`Unverified::Unchecked`] if it may not be checked now.
    fn verify_token(
        &self,
        issuers: &[jwt::Settings],
        text: &[u8],
        input: &ProofInput<'_>,
    ) -> Result<VerifiedToken, Unverified> {
        let cache_key = self.keyer.fingerprint(Domain::Verdict, text);
        if let Some(verified) = self.verified_tokens.lock().get(cache_key) {
            return Ok(verified.clone());
        }
        if let Some(reason) = self.refused_tokens.lock().get(cache_key) {
            return Err(*reason);
        }
        let address_key = |client| self.single_identity_key(client, Identity::Ip);
        let attempt = (input.check_condition)
            .and_then(|(client, condition)| Some((address_key(client)?, condition.now)));
        let may_fail_again = || {
            attempt
                .is_none_or(|(address, now)| self.signature_failures.may_fail_again(address, now))
        };
        if !input.may_check() || !may_fail_again() {
            return Err(Unverified::Unchecked);
        }
        let verified = jwt::find_issuer(issuers, text).and_then(|(index, settings)| {
            let claims = jwt::verify(settings, &self.other_claims(), text)?;
            Ok((claims, UserSources::issuer(index)))
        });
        match verified {
            Err(reason) => {
                if let (Unverified::Signature, Some((address, now))) = (reason, attempt) {
                    self.signature_failures.add(address, now);
                }
                self.refused_tokens.lock().put(cache_key, reason);
                Err(reason)
            }
            Ok((mut claims, source)) => {
                let plan_name = claims.plan.take();
                let plan = plan_name.and_then(|name| self.settings.plan.index_of(&name));
                let verified = VerifiedToken {
                    claims,
                    plan,
                    source,
                };
                self.verified_tokens.lock().put(cache_key, verified.clone());
                Ok(verified)
            }
        }
    }

    /// The claims of the plan and of custom identities, which are read from a token beside its user.
    fn other_claims(&self) -> jwt::OtherClaims<'_> {
        let custom_claims = self
            .settings
            .custom
            .iter()
            .filter_map(|custom| match &custom.source {
                custom::Source::Claim(claim) => Some((custom.identity, claim.as_str())),
                _ => None,
            });
        jwt::OtherClaims {
            plan: match &self.settings.plan.source {
                Some(plan::PlanSource::Claim(claim)) => Some(claim),
                _ => None,
            },
            custom: custom_claims.collect(),
        }
    }

    fn prove_by_api_key(
        &self,
        keys: &api_keys::ApiKeys,
        input: &ProofInput<'_>,
        wall_clock: &impl Fn() -> Duration,
    ) -> CredentialProof {
        let unproven = |unverified| CredentialProof {
            unverified,
            token: Some(None),
            ..CredentialProof::default()
        };
        let sources = self.settings.token_sources.as_slice();
        let has_several_sources = sources.len() > 1;
        let may_be_bearer = sources.is_empty() || sources.contains(&TokenSource::Bearer);
        // A lone source `Bearer` is read by `bearer_text`: a key there may have characters that no token has.
        let key = match input.credential {
            FieldValue::Single(key) if has_several_sources => Cow::Borrowed(&**key),
            FieldValue::Ambiguous if has_several_sources => {
                return unproven(Some(Unverified::Ambiguous));
            }
            _ if may_be_bearer => match bearer_text(input.fields) {
                Err(unverified) => return unproven(unverified),
                Ok(key) => key,
            },
            FieldValue::Absent => return unproven(None),
            FieldValue::Ambiguous => return unproven(Some(Unverified::Ambiguous)),
            FieldValue::Single(key) => Cow::Borrowed(&**key),
        };
        if !input.may_check() {
            return unproven(Some(Unverified::Unchecked));
        }
        match keys.owner_of(&key) {
            None => self.prove_by_runtime_key(&key, wall_clock),
            Some(owner)
                if owner
                    .expires_at
                    .is_some_and(|expires_at| wall_clock() >= expires_at) =>
            {
                unproven(Some(Unverified::Expired))
            }
            Some(owner) => CredentialProof {
                user: Some(owner.user.clone()),
                user_source: UserSources::API_KEYS,
                plan: owner.plan,
                custom: owner.custom.clone(),
                runtime_key: None,
                unverified: None,
                token: self.proven_api_key(&key),
            },
        }
    }

    /// Looks up a key that no file lists among those that operators have added at run time.
    fn prove_by_runtime_key(
        &self,
        key: &[u8],
        wall_clock: &impl Fn() -> Duration,
    ) -> CredentialProof {
        let keys = self.runtime_keys.as_ref();
        let owner = keys.and_then(|keys| keys.find(key));
        let fault = match &owner {
            None => Some(Unverified::UnknownKey),
            Some(owner) => owner.fault(wall_clock),
        };
        let Some(owner) = owner.clone().filter(|_| fault.is_none()) else {
            return CredentialProof {
                runtime_key: owner,
                unverified: fault,
                token: Some(None),
                ..CredentialProof::default()
            };
        };
        // The settings may have changed since the key was added: another plan and other identities are left out.
        let named_values = owner.custom.iter();
        let custom = named_values.filter_map(|(name, value)| {
            let identity = CustomIdentity::find(name)?;
            let source = self.settings.custom_source(identity);
            matches!(source, Some(custom::Source::ApiKeys)).then(|| CustomValue {
                identity,
                value: IdentityValue::Names(smallvec![value.clone()]),
            })
        });
        let plan_name = owner.plan.as_deref();
        CredentialProof {
            user: Some(owner.user.clone()),
            user_source: UserSources::API_KEYS,
            plan: plan_name.and_then(|name| self.settings.plan.index_of(name)),
            custom: custom.collect(),
            unverified: None,
            token: self.proven_api_key(key),
            runtime_key: Some(owner),
        }
    }

    /// The value of [`CredentialProof::token`] for an API key that has verified.
    fn proven_api_key(&self, key: &[u8]) -> Option<Option<Fingerprint>> {
        let is_token = self.settings.needs_proof(Identity::Token);
        Some(is_token.then(|| self.token_fingerprint(key)))
    }
}

impl CredentialProof {
    /// The proof of a user by a source that gives neither token nor plan.
    fn new(user: Result<Arc<str>, Unverified>) -> CredentialProof {
        CredentialProof {
            unverified: user.as_ref().err().copied(),
            user: user.ok(),
            ..CredentialProof::default()
        }
    }
}

/// Orders the reasons why several sources prove no user: a larger number has a stricter consequence.
fn severity(reason: Option<Unverified>) -> u8 {
    match reason {
        None => 0,
        Some(reason) if !reason.may_reach_upstream() => 1,
        Some(Unverified::Ambiguous | Unverified::Field) => 3,
        Some(Unverified::Unchecked) => 4,
        Some(_) => 2,
    }
}

/// The text after `Authorization: Bearer`.
///
/// # Errors
///
/// Why there is no such text; `None` if the request has no `Authorization`, or an empty one.
fn bearer_text(fields: &Fields) -> Result<Cow<'_, [u8]>, Option<Unverified>> {
    if token::single_value(fields, AUTHORIZATION.as_str()) == FieldValue::Absent {
        return Err(None);
    }
    match token::text_after_bearer(fields) {
        FieldValue::Single(text) => Ok(text),
        FieldValue::Ambiguous => Err(Some(Unverified::Ambiguous)),
        // Another scheme, or none: many servers accept a token after any scheme, or as the whole value.
        FieldValue::Absent => Err(Some(Unverified::Scheme)),
    }
}

/// The user that a peer names in a field; `may_set_user` says whether the peer is trusted to do so.
fn prove_by_field(field: &FieldValue<'_>, may_set_user: impl FnOnce() -> bool) -> CredentialProof {
    if *field == FieldValue::Absent {
        return CredentialProof::default();
    }
    if !may_set_user() {
        return CredentialProof::new(Err(Unverified::Peer));
    }
    let name = match field {
        FieldValue::Single(text) => std::str::from_utf8(text).ok(),
        FieldValue::Absent | FieldValue::Ambiguous => None,
    };
    let user = name.and_then(user_name::parse);
    CredentialProof::new(user.ok_or(Unverified::Field))
}
