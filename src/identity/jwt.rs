//! Signed tokens (RFC 7519): which keys are believed, and what a token must say.
//!
//! The keys decide which algorithms they verify; the token's own name only picks among them. So no token can have a
//! public key taken for a shared secret, or choose no signature. Keys that a
//! token brings or points at (`jwk`, `jku`, `x5c`) are never looked at, and tokens with `crit` are
//! refused. Time is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Header, Validation};
use serde_json::{Map, Value};

use super::{Unverified, user_name};

/// How far clocks may differ when nothing is said: a token is believed this long before its `nbf` and after its
/// `exp`. It is what most upstreams allow, so that none of them takes a token that is expired here.
pub const LEEWAY: Duration = Duration::from_secs(60);

/// Fewest bytes of a shared secret: RFC 7518 section 3.2.
pub const MIN_SECRET: usize = 32;

/// Most keys that are tried for one token: those with its `kid`, or those without an id.
const MAX_TRIES: usize = 4;

/// What a token must say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The claim that names the user.
    pub claim: String,
    /// Whose signatures are believed.
    pub keys: VerificationKeys,
    /// What `iss` must be.
    pub issuer: Option<String>,
    /// What `aud` must be or contain; any or none when absent.
    pub audience: Option<String>,
    /// How long before its `nbf` and after its `exp` a token is believed; of whole seconds.
    pub leeway: Duration,
}

/// Keys that verify signatures. Cheap to clone; never shown.
#[derive(Clone)]
pub struct VerificationKeys(Arc<[VerificationKey]>);

struct VerificationKey {
    id: Option<String>,
    key: DecodingKey,
    /// Names the key's algorithms and checks no claim: that is done here.
    validation: Validation,
}

/// Why a key file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationKeysError {
    /// Whoever has a token can try all secrets that are so short.
    #[error(
        "HS256 needs a secret of at least {MIN_SECRET} bytes (RFC 7518 section 3.2); make one with `openssl rand -hex 32`, for the issuer too"
    )]
    ShortSecret,
    /// A public key was given as a shared secret: whoever knows it could sign.
    #[error("this is a PEM file, not a secret; write `key:` instead of `secret:`")]
    PemAsSecret,
    /// Not a public key.
    #[error("not a public key: a PEM file that begins with -----BEGIN PUBLIC KEY-----")]
    Pem,
    /// A private key where a public one belongs.
    #[error("this is a private key; the gateway needs the public one only")]
    PrivateKey,
    /// A kind of key that is not supported.
    #[error("only RSA keys of 2048 bits and more, P-256, P-384 and Ed25519 keys are supported")]
    Unsupported,
    /// Not a key set.
    #[error("not a JSON Web Key Set: {{\"keys\": [...]}}")]
    Jwks,
    /// A key set without a usable key.
    #[error(
        "no key of the set can be used: RSA from 2048 bits, P-256, P-384 or Ed25519, for signatures"
    )]
    NoUsableKey,
}

/// What a verified token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    /// The user.
    pub user: Arc<str>,
    /// The text of the plan's claim.
    pub plan: Option<String>,
    /// Seconds since the epoch before which it is not yet believed, leeway included.
    pub not_before: u64,
    /// Seconds since the epoch from which on it is no longer believed, leeway included.
    pub expires: u64,
}

impl TokenClaims {
    /// Whether it is believed at this time since the epoch.
    ///
    /// # Errors
    ///
    /// [`Unverified::NotYet`] or [`Unverified::Expired`].
    pub fn check(&self, wall: Duration) -> Result<(), Unverified> {
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

const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

impl VerificationKeys {
    /// A shared secret for HS256: all bytes, at least [`MIN_SECRET`].
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
        Ok(VerificationKeys::one(
            DecodingKey::from_secret(secret),
            &[Algorithm::HS256],
        ))
    }

    /// A public key. RSA verifies RS256 to RS512 and PS256 to PS512, P-256 ES256, P-384 ES384,
    /// Ed25519 EdDSA.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn from_pem(bytes: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        if has(b"PRIVATE KEY-----") {
            return Err(VerificationKeysError::PrivateKey);
        }
        if !has(b"-----BEGIN ") {
            return Err(VerificationKeysError::Pem);
        }
        if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
            // 2048 bits are 256 bytes of modulus, and the structure around them is longer.
            let long = key.try_get_as_bytes().is_ok_and(|der| der.len() >= 256);
            return if long {
                Ok(VerificationKeys::one(key, RSA))
            } else {
                Err(VerificationKeysError::Unsupported)
            };
        }
        if let Ok(key) = DecodingKey::from_ec_pem(bytes) {
            let algorithm = match key.try_get_as_bytes().map(<[u8]>::len) {
                Ok(65) => Algorithm::ES256,
                Ok(97) => Algorithm::ES384,
                _ => return Err(VerificationKeysError::Unsupported),
            };
            return Ok(VerificationKeys::one(key, &[algorithm]));
        }
        match DecodingKey::from_ed_pem(bytes) {
            Ok(key) => Ok(VerificationKeys::one(key, &[Algorithm::EdDSA])),
            Err(_) => Err(VerificationKeysError::Pem),
        }
    }

    /// A JSON Web Key Set (RFC 7517). A key verifies its `alg`, or without one what
    /// [`VerificationKeys::from_pem`] says of its kind. Left out are keys for encryption, kinds that are not
    /// supported, and shared secrets (`oct`), which do not belong in a set of public keys.
    ///
    /// # Errors
    ///
    /// Not a set, or none of its keys is usable.
    pub fn from_jwks(bytes: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        let set: Value = serde_json::from_slice(bytes).map_err(|_| VerificationKeysError::Jwks)?;
        let listed = set
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(VerificationKeysError::Jwks)?;
        let keys: Vec<VerificationKey> = listed.iter().filter_map(from_jwk).collect();
        if keys.is_empty() {
            Err(VerificationKeysError::NoUsableKey)
        } else {
            Ok(VerificationKeys(keys.into()))
        }
    }

    fn one(key: DecodingKey, algorithms: &[Algorithm]) -> VerificationKeys {
        VerificationKeys(
            [VerificationKey {
                id: None,
                key,
                validation: signature_only(algorithms),
            }]
            .into(),
        )
    }

    /// Keys that may have signed a token with this header. One that names no key fits those without an id, and the only
    /// one of its algorithm: were all tried, a forged token would cost as many signatures.
    fn candidates<'k>(&'k self, header: &'k Header) -> impl Iterator<Item = &'k VerificationKey> {
        let able = |key: &&VerificationKey| key.validation.algorithms.contains(&header.alg);
        let only = self.0.iter().filter(able).count() == 1;
        let fits = move |key: &&VerificationKey| match (&key.id, &header.kid) {
            (Some(id), Some(wanted)) => id == wanted,
            (Some(_), None) => only,
            (None, _) => true,
        };
        self.0.iter().filter(able).filter(fits).take(MAX_TRIES)
    }
}

/// Tells how many keys there are and nothing of them.
impl fmt::Debug for VerificationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerificationKeys({} keys)", self.0.len())
    }
}

/// Whether this is the beginning of a PEM file.
pub fn is_pem(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"-----BEGIN ")
}

fn signature_only(algorithms: &[Algorithm]) -> Validation {
    // `new` wants an algorithm; the key's own ones take its place.
    let mut validation = Validation::new(Algorithm::HS256);
    validation.algorithms = algorithms.to_vec();
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

fn from_jwk(value: &Value) -> Option<VerificationKey> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if !matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    ) {
        return None;
    }
    if jwk
        .common
        .key_operations
        .as_ref()
        .is_some_and(|for_| !for_.contains(&KeyOperations::Verify))
    {
        return None;
    }
    let natural: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        _ => return None,
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let long = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            n.iter().skip_while(|byte| **byte == 0).count() >= 256
        }
        DecodingKeyKind::SecretOrDer(bytes) => matches!(bytes.len(), 32 | 65 | 97),
    };
    let algorithms = match jwk.common.key_algorithm {
        None => natural.to_vec(),
        Some(named) => {
            let named = Algorithm::try_from(named).ok()?;
            natural.contains(&named).then(|| vec![named])?
        }
    };
    let validation = signature_only(&algorithms);
    long.then_some(VerificationKey {
        id: jwk.common.key_id,
        key,
        validation,
    })
}

/// What `token` says; the caller checks its time with [`TokenClaims::check`]. `plan` is the claim that names the plan.
///
/// # Errors
///
/// Why it proves nobody. The signature is checked before the claims.
pub fn verify(
    settings: &Settings,
    plan: Option<&str>,
    token: &[u8],
) -> Result<TokenClaims, Unverified> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| Unverified::Malformed)?;
    if header.crit.is_some() {
        return Err(Unverified::Malformed);
    }
    let mut reason = Unverified::KeyId;
    for key in settings.keys.candidates(&header) {
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &key.validation) {
            Ok(data) => return read(settings, plan, &data.claims),
            Err(error) => {
                reason = match error.kind() {
                    ErrorKind::InvalidSignature => Unverified::Signature,
                    // It was computed, and counts as that.
                    _ if reason == Unverified::Signature => reason,
                    _ => Unverified::Malformed,
                }
            }
        }
    }
    Err(reason)
}

fn read(
    settings: &Settings,
    plan: Option<&str>,
    claims: &Map<String, Value>,
) -> Result<TokenClaims, Unverified> {
    if let Some(issuer) = &settings.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(Unverified::Issuer);
    }
    if let Some(wanted) = &settings.audience {
        let named = |value: &Value| value.as_str() == Some(wanted);
        match claims.get("aud") {
            Some(Value::Array(all)) if all.iter().any(named) => {}
            Some(one) if named(one) => {}
            _ => return Err(Unverified::Audience),
        }
    }
    let leeway = settings.leeway.as_secs();
    let expires = claims.get("exp").and_then(|at| seconds(at, f64::floor));
    let expires = expires.ok_or(Unverified::NoExpiry)?;
    let not_before = match claims.get("nbf") {
        Some(at) => seconds(at, f64::ceil).ok_or(Unverified::Malformed)?,
        None => 0,
    };
    // RFC 7519 section 2: names are compared without a change. A number counts as the text of its digits, as
    // upstreams that use it for a name write it.
    let user = claims.get(&settings.claim).and_then(text);
    Ok(TokenClaims {
        user: user
            .and_then(|text| user_name::parse(&text))
            .ok_or(Unverified::Claim)?,
        plan: plan.and_then(|claim| claims.get(claim)).and_then(text),
        not_before: not_before.saturating_sub(leeway),
        expires: expires.saturating_add(leeway),
    })
}

/// A NumericDate, which may have a fraction.
fn seconds(value: &Value, round: fn(f64) -> f64) -> Option<u64> {
    let whole = value.as_u64();
    // The cast saturates: what is negative is 0, what is too large the end of time.
    whole.or_else(|| {
        value
            .as_f64()
            .filter(|date| date.is_finite())
            .map(|date| round(date) as u64)
    })
}

/// A claim that is a string or a whole number, as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
