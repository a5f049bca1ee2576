//! Whom the credential of a request proves it to come from, by the one source that the settings name. What does not
//! verify proves nobody, and says why.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;

use super::verified_token::VerifiedToken;
use super::{CredentialCheck, Identifier};
use crate::http::head::Fields;
use crate::identity::FieldValue;
use crate::identity::key::Domain;
use crate::identity::{ClientIdentity, Unverified, api_keys, jwt, plan, token, user, user_name};
use crate::limit::{Fingerprint, Identity};
use crate::net::{PeerAddress, Subject};

/// What the configured source of a user came to.
#[derive(Default)]
pub(super) struct CredentialProof {
    pub(super) user: Option<Arc<str>>,
    pub(super) plan: Option<usize>,
    /// Why what the request carries proves nobody.
    pub(super) unverified: Option<Unverified>,
    /// The credential lies where [`Settings::token`](super::Settings::token) does, so that a token counts only if
    /// it verified, as this fingerprint.
    pub(super) token: Option<Option<Fingerprint>>,
}

impl Identifier {
    /// Looks at the source of the user. `given` is what lies where the settings look for a token.
    pub(super) fn prove(
        &self,
        (peer, subject): (PeerAddress, Option<&Subject>),
        given: &FieldValue<'_>,
        (fields, wall): (&Fields, impl FnOnce() -> Duration),
        check: Option<(&ClientIdentity, &CredentialCheck<'_>)>,
    ) -> CredentialProof {
        match &self.settings.user {
            None => CredentialProof::default(),
            Some(user::Settings::Jwt(jwt)) => self.by_jwt(jwt, fields, wall, check),
            Some(user::Settings::ApiKeys(keys)) => self.by_key(keys, given, fields, check),
            Some(user::Settings::Header { name, .. }) => {
                let given = token::header(fields, name.as_str());
                by_header(&given, || self.user_from.contains(peer))
            }
            Some(user::Settings::ClientCert(named)) => match subject {
                None => CredentialProof::default(),
                Some(subject) => of(named.of(subject).ok_or(Unverified::Certificate)),
            },
        }
    }

    fn by_jwt(
        &self,
        settings: &jwt::Settings,
        fields: &Fields,
        wall: impl FnOnce() -> Duration,
        check: Option<(&ClientIdentity, &CredentialCheck<'_>)>,
    ) -> CredentialProof {
        let judges = self.settings.proves(Identity::Token);
        let nobody = |unverified| CredentialProof {
            unverified,
            token: judges.then_some(None),
            ..CredentialProof::default()
        };
        let text = match bearer(fields) {
            Err(unverified) => return nobody(unverified),
            Ok(text) => text,
        };
        let verified = self.verified(settings, &text, check).and_then(|verified| {
            verified.claims.check(wall())?;
            Ok(verified)
        });
        match verified {
            Err(unverified) => nobody(Some(unverified)),
            Ok(verified) => CredentialProof {
                user: Some(verified.claims.user),
                plan: verified.plan,
                unverified: None,
                token: judges.then(|| Some(self.token_fingerprint(&text))),
            },
        }
    }

    /// What a token says, verified now or before, whether its time is right or not.
    fn verified(
        &self,
        settings: &jwt::Settings,
        text: &[u8],
        check: Option<(&ClientIdentity, &CredentialCheck<'_>)>,
    ) -> Result<VerifiedToken, Unverified> {
        let key = self.keyer.fingerprint(Domain::Verdict, text);
        if let Some(verified) = self.verified.lock().get(key) {
            return Ok(verified.clone());
        }
        if let Some(reason) = self.refused.lock().get(key) {
            return Err(*reason);
        }
        let address = |who| self.key(who, &[Identity::Ip]);
        let from = check.and_then(|(who, check)| Some((address(who)?, check.now)));
        let has_room = || from.is_none_or(|(address, now)| self.failures.has_room(address, now));
        if !may_check(check) || !has_room() {
            return Err(Unverified::Unchecked);
        }
        let claim = match &self.settings.plan.source {
            Some(plan::PlanOrigin::Claim(claim)) => Some(claim.as_str()),
            _ => None,
        };
        match jwt::verify(settings, claim, text) {
            Err(reason) => {
                if let (Unverified::Signature, Some((address, now))) = (reason, from) {
                    self.failures.add(address, now);
                }
                self.refused.lock().put(key, reason);
                Err(reason)
            }
            Ok(mut claims) => {
                let named = claims.plan.take();
                let plan = named.and_then(|plan| self.settings.plan.named(&plan));
                let verified = VerifiedToken { claims, plan };
                self.verified.lock().put(key, verified.clone());
                Ok(verified)
            }
        }
    }

    fn by_key(
        &self,
        keys: &api_keys::ApiKeys,
        given: &FieldValue<'_>,
        fields: &Fields,
        check: Option<(&ClientIdentity, &CredentialCheck<'_>)>,
    ) -> CredentialProof {
        let nobody = |unverified| CredentialProof {
            unverified,
            token: Some(None),
            ..CredentialProof::default()
        };
        let key = match (&self.settings.token, given) {
            (None | Some(token::TokenSource::Bearer), _) => match bearer(fields) {
                Err(unverified) => return nobody(unverified),
                Ok(key) => key,
            },
            (Some(_), FieldValue::Absent) => return nobody(None),
            (Some(_), FieldValue::Ambiguous) => return nobody(Some(Unverified::Ambiguous)),
            (Some(_), FieldValue::One(key)) => Cow::Borrowed(&**key),
        };
        if !may_check(check) {
            return nobody(Some(Unverified::Unchecked));
        }
        match keys.lookup(&key) {
            None => nobody(Some(Unverified::UnknownKey)),
            Some(owner) => CredentialProof {
                user: Some(owner.user.clone()),
                plan: owner.plan,
                unverified: None,
                token: Some(
                    self.settings
                        .proves(Identity::Token)
                        .then(|| self.token_fingerprint(&key)),
                ),
            },
        }
    }
}

fn may_check(check: Option<(&ClientIdentity, &CredentialCheck<'_>)>) -> bool {
    check.is_none_or(|(who, check)| (check.may)(who))
}

fn of(user: Result<Arc<str>, Unverified>) -> CredentialProof {
    CredentialProof {
        unverified: user.as_ref().err().copied(),
        user: user.ok(),
        ..CredentialProof::default()
    }
}

/// The token of `Authorization: Bearer`, or why there is none; no reason where the request has no such field.
fn bearer(fields: &Fields) -> Result<Cow<'_, [u8]>, Option<Unverified>> {
    if token::header(fields, AUTHORIZATION.as_str()) == FieldValue::Absent {
        return Err(None);
    }
    match token::bearer(fields) {
        FieldValue::One(text) => Ok(text),
        FieldValue::Ambiguous => Err(Some(Unverified::Ambiguous)),
        // Many servers take what is behind any word, or the whole value.
        FieldValue::Absent => Err(Some(Unverified::Scheme)),
    }
}

/// `may_set`: whether the peer may name the user.
fn by_header(given: &FieldValue<'_>, may_set: impl FnOnce() -> bool) -> CredentialProof {
    if *given == FieldValue::Absent {
        return CredentialProof::default();
    }
    if !may_set() {
        return of(Err(Unverified::Peer));
    }
    let text = match given {
        FieldValue::One(text) => std::str::from_utf8(text).ok(),
        FieldValue::Absent | FieldValue::Ambiguous => None,
    };
    of(text.and_then(user_name::parse).ok_or(Unverified::Field))
}
