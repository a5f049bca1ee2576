//! The keys that verify signatures of tokens: a shared secret, a public key in PEM, or a JSON Web Key Set (RFC 7517).

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Header, Validation};
use serde_json::Value;

/// Fewest bytes of a shared secret for HS256: RFC 7518 section 3.2.
pub const MIN_SECRET: usize = 32;

/// Most keys that are tried for one token, because each costs a signature check.
pub(super) const MAX_KEYS_TRIED: usize = 4;

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

/// Keys that verify signatures. Clones share the keys, and debug output hides them.
#[derive(Clone)]
pub struct VerificationKeys(pub(super) Arc<[VerificationKey]>);

/// A key, with the algorithms by which it verifies.
pub(super) struct VerificationKey {
    /// The key's `kid` in its set; `None` for a key without one, and for a key that is no part of a set.
    pub(super) id: Option<String>,
    pub(super) key: DecodingKey,
    /// Holds the key's algorithms. It checks no claim, because `jwt.rs` does.
    pub(super) validation: Validation,
}

/// Why a key file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationKeysError {
    /// A secret so short that a search through all secrets finds it with one token.
    #[error(
        "HS256 needs a secret of at least {MIN_SECRET} bytes (RFC 7518 section 3.2); make one with `openssl rand -hex 32`, for the issuer too"
    )]
    ShortSecret,
    /// A public key in place of a shared secret. Everybody who has the public key could sign tokens.
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

impl VerificationKeys {
    /// No keys, which verify no token.
    pub fn none() -> VerificationKeys {
        VerificationKeys(Arc::default())
    }

    /// A shared secret for HS256, of at least [`MIN_SECRET`] bytes. Every byte counts, also a line end.
    ///
    /// # Errors
    ///
    /// The secret is too short, or is a PEM file.
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
    /// The file is a private key, a key of another kind or length, or no PEM. Keys of some other kinds are reported as no
    /// PEM.
    pub fn from_pem(bytes: &[u8]) -> Result<VerificationKeys, VerificationKeysError> {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        if has(b"PRIVATE KEY-----") {
            return Err(VerificationKeysError::PrivateKey);
        }
        if !has(b"-----BEGIN ") {
            return Err(VerificationKeysError::Pem);
        }
        if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
            // The structure around the modulus takes some bytes, so a modulus a little below 2048 bits passes too.
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
    /// The file is no set, or the set has no usable key.
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

    /// One key without an id, which verifies these algorithms.
    pub(super) fn single(key: DecodingKey, algorithms: &[Algorithm]) -> VerificationKeys {
        VerificationKeys(
            [VerificationKey {
                id: None,
                key,
                validation: validate_signature_only(algorithms),
            }]
            .into(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed a token with this header, at most [`MAX_KEYS_TRIED`]. They have its algorithm. A key
    /// without an id fits every token, and another key fits tokens with its id as `kid`.
    ///
    /// A token without a `kid` also fits a key with an id that is the only one of its algorithm. If such a token fitted
    /// more keys, a forged one would cost a signature check for each.
    pub(super) fn candidates<'k>(
        &'k self,
        header: &'k Header,
    ) -> impl Iterator<Item = &'k VerificationKey> {
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
pub(super) fn validate_signature_only(algorithms: &[Algorithm]) -> Validation {
    // `new` needs some algorithm, which the key's own ones replace.
    let mut validation = Validation::new(Algorithm::HS256);
    validation.algorithms = algorithms.to_vec();
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// Parses one key of a set; `None` if it cannot verify signatures by a supported algorithm.
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

/// Whether `use` and `key_ops` of the key, as far as it has them, allow to verify signatures.
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

/// The algorithms that a key of this kind can verify; `None` if the kind is not supported.
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

/// Whether the key has at least [`MIN_RSA_BYTES`], or the length of a supported curve's key.
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
