//! Verifies signed tokens (RFC 7519) against configured keys, and reads their claims.
//!
//! Each key has its algorithms, and a token only picks among them by name. So no token can use a public key as a shared
//! secret, or choose no signature. Keys that a token carries or points at (`jwk`, `jku`, `x5c`) are never used, and
//! tokens with `crit` are refused. The caller compares the times of a token with the clock.

mod remote_key_set;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Header, Validation};
use serde_json::{Map, Value};

use super::custom_value::{CustomValue, Names, Reading};
use super::{Unverified, user_name};
use crate::limit::CustomIdentity;

pub use remote_key_set::{RemoteKeySet, has_valid_authority, is_trusted_url};

/// Default leeway for clocks that differ: a token is valid this long before its `nbf` and after its `exp`. Few
/// upstreams allow more, so hardly one accepts a token that has expired here.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(60);

/// Fewest bytes of a shared secret for HS256: RFC 7518 section 3.2.
pub const MIN_SECRET: usize = 32;

/// Most keys that are tried for one token, because each costs a signature check.
const MAX_KEYS_TRIED: usize = 4;

/// Fewest bytes of the modulus of an RSA key: 2048 bits (RFC 7518 section 3.3).
const MIN_RSA_BYTES: usize = 256;

/// Length of an uncompressed point on P-256, in bytes.
const P256_POINT_BYTES: usize = 65;

/// Length of an uncompressed point on P-384, in bytes.
const P384_POINT_BYTES: usize = 97;

/// Length of a public key of Ed25519, in bytes.
const ED25519_KEY_BYTES: usize = 32;

/// The algorithms of an RSA key.
const RSA_ALGORITHMS: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// The keys and claims that a token needs.
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
    /// The values of which `aud` must be or contain one; any or none if the list is empty.
    pub audiences: Vec<String>,
    /// How long a token is valid before its `nbf` and after its `exp`, in whole seconds.
    pub leeway: Duration,
}

/// Keys that verify signatures. Clones share the keys, and debug output hides them.
#[derive(Clone)]
pub struct VerificationKeys(Arc<[VerificationKey]>);

struct VerificationKey {
    id: Option<String>,
    key: DecodingKey,
    /// Holds the key's algorithms. It checks no claim, because this file does.
    validation: Validation,
}

/// Why a key file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationKeysError {
    /// A secret short enough to be found from one token by trying all of them.
    #[error(
        "HS256 needs a secret of at least {MIN_SECRET} bytes (RFC 7518 section 3.2); make one with `openssl rand -hex 32`, for the issuer too"
    )]
    ShortSecret,
    /// A public key in the place of a shared secret: everybody who knows it could sign tokens.
    #[error("this is a PEM file, not a secret; write `key:` instead of `secret:`")]
    PemAsSecret,
    /// A file that is no public key in PEM.
    #[error("not a public key: a PEM file that begins with -----BEGIN PUBLIC KEY-----")]
    Pem,
    /// A private key where a public one belongs.
    #[error("this is a private key; the gateway needs the public one only")]
    PrivateKey,
    /// A kind or length of key that is not supported.
    #[error("only RSA keys of 2048 bits and more, P-256, P-384 and Ed25519 keys are supported")]
    Unsupported,
    /// A file that is no JSON Web Key Set.
    #[error("not a JSON Web Key Set: {{\"keys\": [...]}}")]
    Jwks,
    /// A key set without a usable key.
    #[error(
        "no key of the set can be used: RSA from 2048 bits, P-256, P-384 or Ed25519, for signatures"
    )]
    NoUsableKey,
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

impl VerificationKeys {
    /// No keys, which verify no token.
    pub fn none() -> VerificationKeys {
        VerificationKeys(Arc::default())
    }

    /// A shared secret for HS256, of at least [`MIN_SECRET`] bytes. Every byte counts, also a line end.
    ///
    /// # Errors
    ///
    /// A secret that is too short, or a PEM file in its place.
    pub fn from_secret(secret: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        if is_pem(secret) {
            return Err(VerificationKeysError::PemAsSecret);
        }
        if secret.len() < MIN_SECRET {
            return Err(VerificationKeysError::ShortSecret);
        }
        let key = DecodingKey::from_secret(secret);
        Ok(VerificationKeys::single(key, &[Algorithm::HS256]))
    }

    /// A public key in PEM. RSA verifies RS256 to RS512 and PS256 to PS512, P-256 ES256, P-384 ES384, Ed25519 EdDSA.
    ///
    /// # Errors
    ///
    /// A private key, an unsupported key, or a file that is none.
    pub fn from_pem(bytes: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        if has(b"PRIVATE KEY-----") {
            return Err(VerificationKeysError::PrivateKey);
        }
        if !has(b"-----BEGIN ") {
            return Err(VerificationKeysError::Pem);
        }
        if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
            // The structure around a modulus makes the key longer than the modulus.
            let is_long = key
                .try_get_as_bytes()
                .is_ok_and(|der| der.len() >= MIN_RSA_BYTES);
            return if is_long {
                Ok(VerificationKeys::single(key, RSA_ALGORITHMS))
            } else {
                Err(VerificationKeysError::Unsupported)
            };
        }
        if let Ok(key) = DecodingKey::from_ec_pem(bytes) {
            let algorithm = match key.try_get_as_bytes().map(<[u8]>::len) {
                Ok(P256_POINT_BYTES) => Algorithm::ES256,
                Ok(P384_POINT_BYTES) => Algorithm::ES384,
                _ => return Err(VerificationKeysError::Unsupported),
            };
            return Ok(VerificationKeys::single(key, &[algorithm]));
        }
        match DecodingKey::from_ed_pem(bytes) {
            Ok(key) => Ok(VerificationKeys::single(key, &[Algorithm::EdDSA])),
            Err(_) => Err(VerificationKeysError::Pem),
        }
    }

    /// A JSON Web Key Set (RFC 7517). A key verifies its `alg`; one without `alg` verifies the same as in
    /// [`VerificationKeys::from_pem`]. Keys for encryption, unsupported keys and shared secrets (`oct`) are left out: a
    /// secret does not belong in a set of public keys.
    ///
    /// # Errors
    ///
    /// A file that is no set, or a set without a usable key.
    pub fn from_jwks(bytes: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        let set: Value = serde_json::from_slice(bytes).map_err(|_| VerificationKeysError::Jwks)?;
        let listed = set
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(VerificationKeysError::Jwks)?;
        let keys: Vec<VerificationKey> = listed.iter().filter_map(parse_jwk).collect();
        if keys.is_empty() {
            Err(VerificationKeysError::NoUsableKey)
        } else {
            Ok(VerificationKeys(keys.into()))
        }
    }

    fn single(key: DecodingKey, algorithms: &[Algorithm]) -> VerificationKeys {
        VerificationKeys(
            [VerificationKey {
                id: None,
                key,
                validation: validate_signature_only(algorithms),
            }]
            .into(),
        )
    }

    /// The keys that may have signed a token with this header. A token without a `kid` fits the keys without an id, and
    /// the only key of its algorithm. It fits no others, because a forged token would cost a signature check for each.
    fn candidates<'k>(&'k self, header: &'k Header) -> impl Iterator<Item = &'k VerificationKey> {
        let has_algorithm =
            |key: &&VerificationKey| key.validation.algorithms.contains(&header.alg);
        let is_only_key = self.0.iter().filter(has_algorithm).count() == 1;
        let may_have_signed = move |key: &&VerificationKey| match (&key.id, &header.kid) {
            (Some(id), Some(kid)) => id == kid,
            (Some(_), None) => is_only_key,
            (None, _) => true,
        };
        self.0
            .iter()
            .filter(has_algorithm)
            .filter(may_have_signed)
            .take(MAX_KEYS_TRIED)
    }
}

/// Shows the number of keys and nothing of them.
impl fmt::Debug for VerificationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerificationKeys({} keys)", self.0.len())
    }
}

/// Whether the text begins as a PEM file does.
pub fn is_pem(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"-----BEGIN ")
}

/// A validation that checks the signature by one of `algorithms`, and no claim.
fn validate_signature_only(algorithms: &[Algorithm]) -> Validation {
    // `new` needs some algorithm, which the key's own ones replace.
    let mut validation = Validation::new(Algorithm::HS256);
    validation.algorithms = algorithms.to_vec();
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// Parses one key of a set; none if it cannot verify signatures.
fn parse_jwk(value: &Value) -> Option<VerificationKey> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if !is_for_signatures(&jwk) {
        return None;
    }
    let supported = supported_algorithms(&jwk)?;
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let algorithms = match jwk.common.key_algorithm {
        None => supported.to_vec(),
        Some(algorithm) => {
            let algorithm = Algorithm::try_from(algorithm).ok()?;
            supported.contains(&algorithm).then(|| vec![algorithm])?
        }
    };
    has_supported_length(&key).then(|| VerificationKey {
        id: jwk.common.key_id,
        key,
        validation: validate_signature_only(&algorithms),
    })
}

fn is_for_signatures(jwk: &Jwk) -> bool {
    let has_use = matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let operations = jwk.common.key_operations.as_ref();
    let can_verify =
        operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    has_use && can_verify
}

/// The algorithms that a key of this kind can verify; none if the kind is not supported.
fn supported_algorithms(jwk: &Jwk) -> Option<&'static [Algorithm]> {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Some(RSA_ALGORITHMS),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(&[Algorithm::ES256]),
            EllipticCurve::P384 => Some(&[Algorithm::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(&[Algorithm::EdDSA])
        }
        _ => None,
    }
}

fn has_supported_length(key: &DecodingKey) -> bool {
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            n.iter().skip_while(|byte| **byte == 0).count() >= MIN_RSA_BYTES
        }
        DecodingKeyKind::SecretOrDer(bytes) => matches!(
            bytes.len(),
            ED25519_KEY_BYTES | P256_POINT_BYTES | P384_POINT_BYTES
        ),
    }
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
    let mut reason = match settings.keys.0.is_empty() {
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
            reading: Reading::Names(parse_name(find_claim(claims, claim)?)?),
        })
    });
    Ok(TokenClaims {
        user: user
            .and_then(|text| user_name::parse(&text))
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
        _ => None,
    }
}

/// The names in a claim that is a name or a list of names; none if it has no valid one.
fn parse_name(value: &Value) -> Option<Names> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    let texts = values.iter().filter_map(claim_text);
    let mut names: Names = texts.filter_map(|text| user_name::parse(&text)).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests;
