//! One order at the directory: an account, a proof for each name, and a certificate for a new key.

use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeHandle, ChallengeType, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::client::DirectoryClient;
use super::error::Error;
use super::settings::{Challenge, Settings};
use super::storage;
use super::tokens::ChallengeTokens;
use crate::net::Issued;

/// How long the directory may take to check proofs, and then to issue.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(120));

/// Orders a certificate; returns a new key and the chain of its certificate, in PEM. Proofs are shown until the directory has
/// checked them.
pub async fn order(
    settings: &Settings,
    issued: &Issued,
    tokens: &ChallengeTokens,
) -> Result<Vec<u8>, Error> {
    // Before the order: the directory counts accounts and certificates, and also those that cannot be saved.
    storage::probe(settings)?;
    let names = settings.names.iter().cloned();
    let names: Vec<Identifier> = names.map(Identifier::Dns).collect();
    let account = account(settings, false).await?;
    let mut order = match account.new_order(&NewOrder::new(&names)).await {
        // Directories for tests forget accounts when they restart.
        Err(instant_acme::Error::Api(problem))
            if problem.r#type.as_deref() == Some(UNKNOWN_ACCOUNT) =>
        {
            let account = self::account(settings, true).await?;
            account.new_order(&NewOrder::new(&names)).await?
        }
        order => order?,
    };
    let mut proofs = Vec::new();
    prove(settings, issued, tokens, &mut order, &mut proofs).await?;
    let polled = order.poll_ready(&POLLING).await;
    drop(proofs);
    match polled {
        Ok(OrderStatus::Ready) => {}
        Ok(status) => {
            let why = unproven(settings, &mut order).await;
            return Err(why.unwrap_or_else(|| Error::Order(format!("{status:?}"))));
        }
        Err(error @ instant_acme::Error::Api(_)) => {
            let why = unproven(settings, &mut order).await;
            return Err(why.unwrap_or(error.into()));
        }
        Err(error) => return Err(error.into()),
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(settings.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLLING).await?;
    Ok([key.serialize_pem(), chain].concat().into_bytes())
}

/// The problem type of an account that the directory does not know: RFC 8555 section 6.7.
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// The stored account, or a new one: always a new one where `new` says so.
async fn account(settings: &Settings, new: bool) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(DirectoryClient(settings.roots.clone())));
    let stored = storage::account(settings)?.filter(|_| !new);
    if let Some(text) = stored {
        let credentials: AccountCredentials =
            serde_json::from_slice(&text).map_err(Error::Account)?;
        return Ok(builder.from_credentials(credentials).await?);
    }
    let contact = settings.contact.as_ref().map(|to| format!("mailto:{to}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let account = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let (account, credentials) = builder
        .create(&account, settings.directory.clone(), None)
        .await?;
    let text = serde_json::to_vec(&credentials).map_err(Error::Account)?;
    storage::save_account(settings, &text)?;
    Ok(account)
}

/// A proof that is shown until it is dropped.
enum ShownProof<'a> {
    Handshake(&'a Issued, String),
    Response(&'a ChallengeTokens, String),
}

impl Drop for ShownProof<'_> {
    fn drop(&mut self) {
        match self {
            ShownProof::Handshake(issued, name) => issued.proven(name),
            ShownProof::Response(tokens, token) => tokens.close(token),
        }
    }
}

/// Shows a proof for each name that needs one, and tells the directory to check it.
async fn prove<'a>(
    settings: &Settings,
    issued: &'a Issued,
    tokens: &'a ChallengeTokens,
    order: &mut Order,
    proofs: &mut Vec<ShownProof<'a>>,
) -> Result<(), Error> {
    let kind = match settings.challenge {
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Challenge::Http01 => ChallengeType::Http01,
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            let why = "the directory does not offer it".into();
            let challenge = settings.challenge.name();
            return Err(Error::Unproven {
                name,
                challenge,
                why,
            });
        };
        proofs.push(match settings.challenge {
            Challenge::TlsAlpn01 => {
                show(&name, &challenge, issued)?;
                ShownProof::Handshake(issued, name.clone())
            }
            Challenge::Http01 => {
                let token = challenge.token.clone();
                tokens.open(&token, challenge.key_authorization().as_str());
                ShownProof::Response(tokens, token)
            }
        });
        // The directory may check the proof before it responds.
        challenge.set_ready().await.map_err(|error| match error {
            instant_acme::Error::Api(problem) => Error::Unproven {
                name,
                challenge: settings.challenge.name(),
                why: problem.to_string(),
            },
            error => error.into(),
        })?;
    }
    Ok(())
}

/// Shows the certificate that proves a name in handshakes: RFC 8737 section 3.
fn show(name: &str, challenge: &ChallengeHandle<'_>, issued: &Issued) -> Result<(), Error> {
    let digest = challenge.key_authorization().digest();
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(issued.prove(name, certificate.der().clone(), &key)?)
}

/// The directory's own reason for the first name that failed; nothing where it gives none.
async fn unproven(settings: &Settings, order: &mut Order) -> Option<Error> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let problems = authorization.challenges.iter();
        let problem = problems
            .filter_map(|challenge| challenge.error.as_ref())
            .next();
        if let Some(problem) = problem {
            return Some(Error::Unproven {
                name: authorization.identifier().to_string(),
                challenge: settings.challenge.name(),
                why: problem.to_string(),
            });
        }
    }
    None
}
