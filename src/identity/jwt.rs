//! Verifies signed tokens (RFC 7519) against configured keys, and reads their claims.
//!
//! Each key has its algorithms, and a token only picks among them by name. So no token can use a public key as a shared
//! secret, or choose no signature. Keys that a token carries or points at (`jwk`, `jku`, `x5c`) are never used, and
//! tokens with `crit` are refused. The caller compares the times of a token with the clock.

mod remote_key_set;
mod verification_keys;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use serde_json::{Map, Value};

use super::custom_value::{CustomValue, IdentityValue, Names};
use super::{Unverified, user_name};
use crate::limit::CustomIdentity;

pub use remote_key_set::{RemoteKeySet, has_valid_authority, is_trusted_url};
pub use verification_keys::{MIN_SECRET, VerificationKeys, VerificationKeysError, is_pem};

/// Default leeway for clocks that differ: a token is valid this long before its `nbf` and after its `exp`. Few
/// upstreams allow more, so hardly one accepts a token that has expired here.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(60);

/// The number 2^53. Every whole number below it has an `f64` of its own; above it, different numbers share one.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// The settings for one issuer: the keys and claims that a token needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The claim that names the user. Dots lead into nested claims.
    pub claim: String,
    /// Keys that may have signed a token; none until a remote set is fetched.
    pub keys: VerificationKeys,
    /// The set at a URL that `keys` came from, or will come from; `None` if they came from a file.
    pub remote: Option<RemoteKeySet>,
    /// The value that `iss` must have. With `None` a token may have any issuer, or no `iss`.
    pub issuer: Option<String>,
    /// The prefix of users and custom identities from the token's claims. It keeps apart users of several issuers who
    /// have the same name; empty with a single issuer.
    pub name_prefix: String,
    /// The values of which `aud` must be or contain one. With an empty list a token may have any audience, or no `aud`.
    pub audiences: Vec<String>,
    /// How long a token is valid before its `nbf` and after its `exp`, in whole seconds.
    pub leeway: Duration,
}

/// The claims that are read beside that of the user.
#[derive(Clone, Debug, Default)]
pub struct OtherClaims<'s> {
    /// The claim that names the plan; `None` if plans do not come from claims.
    pub plan: Option<&'s str>,
    /// The custom identities that come from claims, each with the name of its claim.
    pub custom: Vec<(CustomIdentity, &'s str)>,
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    /// The user, in the claim that [`Settings::claim`] names.
    pub user: Arc<str>,
    /// The text of the claim that names the plan, which may be no configured plan. `None` if the token lacks the claim.
    pub plan: Option<String>,
    /// The custom identities that the token has, also ambiguous ones.
    pub custom: Vec<CustomValue>,
    /// Seconds since the epoch from which on the token is valid, leeway included; 0 without `nbf`.
    pub not_before: u64,
    /// Seconds since the epoch from which on the token is no longer valid, leeway included.
    pub expires: u64,
}

impl TokenClaims {
    /// Checks the token's times at `wall`, a time since the epoch.
    ///
    /// # Errors
    ///
    /// [`Unverified::NotYet`] before `not_before`, and [`Unverified::Expired`] from `expires` on.
    pub fn check_times(&self, wall: Duration) -> Result<(), Unverified> {
        let now = wall.as_secs();
        if now < self.not_before {
            Err(Unverified::NotYet)
        } else if now >= self.expires {
            Err(Unverified::Expired)
        } else {
            Ok(())
        }
    }
}

/// The index and the settings of the issuer that the `iss` of an unverified token names. If there is only one issuer, its settings
/// are returned for every token.
///
/// # Errors
///
/// Only with several issuers: [`Unverified::Issuer`] if the token names none of them, and [`Unverified::Malformed`] if
/// it has no payload that is a JSON object.
pub fn find_issuer<'s>(
    issuers: &'s [Settings],
    token: &[u8],
) -> Result<(usize, &'s Settings), Unverified> {
    if let [only] = issuers {
        return Ok((0, only));
    }
    let payload = token.split(|byte| *byte == b'.').nth(1);
    let payload = payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    let claims = payload
        .and_then(|payload| serde_json::from_slice::<Map<String, Value>>(&payload).ok())
        .ok_or(Unverified::Malformed)?;
    let claimed_issuer = claims.get("iss").and_then(Value::as_str);
    let claimed_issuer = claimed_issuer.ok_or(Unverified::Issuer)?;
    let mut issuers = issuers.iter().enumerate();
    issuers
        .find(|(_, settings)| settings.issuer.as_deref() == Some(claimed_issuer))
        .ok_or(Unverified::Issuer)
}

/// Verifies the signature of `token` and then its claims, but does not compare its times with the clock: the caller
/// does that with [`TokenClaims::check_times`]. If a remote key set lacks the key of the token, that is reported to its
/// fetcher.
///
/// # Errors
///
/// [`Unverified::Malformed`], `NoKeySet`, `KeyId` or `Signature`; `Issuer`, `Audience`, `NoExpiry` or `Claim` for a claim.
pub fn verify(
    settings: &Settings,
    others: &OtherClaims<'_>,
    token: &[u8],
) -> Result<TokenClaims, Unverified> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| Unverified::Malformed)?;
    if header.crit.is_some() {
        return Err(Unverified::Malformed);
    }
    let mut reason = match settings.keys.is_empty() {
        true => Unverified::NoKeySet,
        false => Unverified::KeyId,
    };
    for key in settings.keys.candidates(&header) {
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &key.validation) {
            Ok(data) => return check_claims(settings, others, &data.claims),
            Err(error) => {
                reason = match error.kind() {
                    ErrorKind::InvalidSignature => Unverified::Signature,
                    // An earlier key cost a signature check, so the token counts as a failed signature.
                    _ if reason == Unverified::Signature => reason,
                    _ => Unverified::Malformed,
                }
            }
        }
    }
    if let (Unverified::KeyId, Some(remote)) = (reason, &settings.remote) {
        remote.report_unknown_key();
    }
    Err(reason)
}

/// Checks issuer and audience, and reads the other claims.
///
/// # Errors
///
/// The reason for the first claim that is missing or wrong, in the order issuer, audience, `exp`, `nbf`, user. Wrong
/// plans and custom identities are no errors.
fn check_claims(
    settings: &Settings,
    others: &OtherClaims<'_>,
    claims: &Map<String, Value>,
) -> Result<TokenClaims, Unverified> {
    if let Some(issuer) = &settings.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(Unverified::Issuer);
    }
    if !settings.audiences.is_empty() {
        let is_audience = |value: &Value| {
            let mut audiences = settings.audiences.iter();
            audiences.any(|audience| value.as_str() == Some(audience))
        };
        match claims.get("aud") {
            Some(Value::Array(values)) if values.iter().any(is_audience) => {}
            Some(value) if is_audience(value) => {}
            _ => return Err(Unverified::Audience),
        }
    }
    let leeway = settings.leeway.as_secs();
    let expires = claims
        .get("exp")
        .and_then(|date| parse_date(date, f64::floor))
        .ok_or(Unverified::NoExpiry)?;
    let not_before = match claims.get("nbf") {
        Some(date) => parse_date(date, f64::ceil).ok_or(Unverified::Malformed)?,
        None => 0,
    };
    // Names are compared unchanged (RFC 7519 section 2). A number counts as its digits, because upstreams write a
    // numeric name in this way.
    let user = find_claim(claims, &settings.claim).and_then(claim_text);
    let plan = others.plan.and_then(|claim| find_claim(claims, claim));
    let custom = others.custom.iter().filter_map(|(identity, claim)| {
        Some(CustomValue {
            identity: *identity,
            value: parse_names(&settings.name_prefix, find_claim(claims, claim)?)?,
        })
    });
    Ok(TokenClaims {
        user: user
            .and_then(|text| parse_name(&settings.name_prefix, &text))
            .ok_or(Unverified::Claim)?,
        plan: plan.and_then(claim_text),
        custom: custom.collect(),
        not_before: not_before.saturating_sub(leeway),
        expires: expires.saturating_add(leeway),
    })
}

/// Finds the claim of this name, or the claim inside others to which `name` leads, such as `app_metadata.plan`. A claim
/// of the whole name is preferred, and then the longest outer name, because names of claims may be URLs with dots.
fn find_claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    claims.get(name).or_else(|| {
        let mut dots = name.rmatch_indices('.');
        dots.find_map(|(dot, _)| {
            let inner = claims.get(&name[..dot])?.as_object()?;
            find_claim(inner, &name[dot + 1..])
        })
    })
}

/// Parses a NumericDate (RFC 7519 section 2), in seconds since the epoch. `round` rounds its fraction. `None` if the
/// claim is no number.
fn parse_date(value: &Value, round: fn(f64) -> f64) -> Option<u64> {
    let whole_seconds = value.as_u64();
    // The cast saturates: a negative date becomes 0, a too large one `u64::MAX`.
    whole_seconds.or_else(|| {
        value
            .as_f64()
            .filter(|date| date.is_finite())
            .map(|date| round(date) as u64)
    })
}

/// The text of a claim that is a string or a whole number. A float counts as a whole number if it has no fraction and
/// is below [`MAX_EXACT_FLOAT`]. `None` for any other claim.
fn claim_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        // JavaScript and Go read `7.0` as they read `7`.
        Value::Number(number) => number
            .as_f64()
            .filter(|number| number.fract() == 0.0 && number.abs() < MAX_EXACT_FLOAT)
            .map(|number| (number as i64).to_string()),
        _ => None,
    }
}

/// Parses a name, and puts `prefix` before it. `None` if the name is not valid, alone or with the prefix.
fn parse_name(prefix: &str, text: &str) -> Option<Arc<str>> {
    let name = user_name::parse(text)?;
    match prefix {
        "" => Some(name),
        prefix => user_name::parse(&format!("{prefix}{name}")),
    }
}

/// Parses a claim that is a name or a list of names, and puts `prefix` before each; `None` if the claim has no name. It
/// is ambiguous if an upstream may read a name in it that is not valid here: one with blanks around it, or one in a list
/// within the list. So are booleans, and numbers that are not whole or too large to be exact.
fn parse_names(prefix: &str, value: &Value) -> Option<IdentityValue> {
    let elements = match value {
        Value::Array(elements) => elements.as_slice(),
        single => std::slice::from_ref(single),
    };
    let mut names = Names::new();
    for element in elements {
        let text = claim_text(element).filter(|text| !text.is_empty());
        match text.as_deref().map(|text| parse_name(prefix, text)) {
            Some(Some(name)) => names.push(name),
            Some(None) => return Some(IdentityValue::Ambiguous),
            None if element.is_array() || element.is_number() || element.is_boolean() => {
                return Some(IdentityValue::Ambiguous);
            }
            None => {}
        }
    }
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then_some(IdentityValue::Names(names))
}

#[cfg(test)]
mod tests;
