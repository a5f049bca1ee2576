//! Places one order at a directory: an account, a proof for each name, and a certificate for a new key.
//!
//! A new account is saved at once. Proofs are shown until the directory has checked them, or the order has failed.
//! Nothing here saves the certificate or retries an order.

use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, ChallengeHandle,
    ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::challenge_tokens::ChallengeTokens;
use super::directory_client::DirectoryClient;
use super::error::Error;
use super::settings::{Challenge, Settings};
use super::storage;
use crate::net::IssuedCertificate;

/// The timing of polls. The timeout applies twice: while the directory checks proofs, and while it issues the
/// certificate. Both together are well below the ten minutes of an order.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(120));

/// The problem type of an account that the directory does not know: RFC 8555 section 6.7.
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Orders a certificate. Returns a new key and the chain of its certificate, in PEM.
///
/// # Errors
///
/// The folder or the account's file cannot be used, or a key cannot be made. The directory refuses, cannot be reached or
/// responds too late, or a name is not proven.
pub async fn order_certificate(
    settings: &Settings,
    issued: &IssuedCertificate,
    tokens: &ChallengeTokens,
) -> Result<Vec<u8>, Error> {
    // The directory counts each account and certificate, also those that could not be saved afterwards.
    storage::check_writable(settings)?;
    let mut order = place_order(settings).await?;
    let mut proofs = Vec::new();
    show_proofs(settings, issued, tokens, &mut order, &mut proofs).await?;
    let poll_result = order.poll_ready(&POLL_POLICY).await;
    drop(proofs);
    match poll_result {
        Ok(OrderStatus::Ready) => {}
        Ok(status) => {
            let reason = find_unproven_name(settings, &mut order).await;
            return Err(reason.unwrap_or_else(|| Error::Order(format!("{status:?}"))));
        }
        Err(error @ instant_acme::Error::Api(_)) => {
            let reason = find_unproven_name(settings, &mut order).await;
            return Err(reason.unwrap_or(error.into()));
        }
        Err(error) => return Err(error.into()),
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(settings.names.clone())?;
    // Directories read only the alternative names.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLL_POLICY).await?;
    Ok([key.serialize_pem(), chain].concat().into_bytes())
}

/// Places an order with the stored account. If none is stored, or if the directory does not have it, a new account is
/// created.
async fn place_order(settings: &Settings) -> Result<Order, Error> {
    let names = settings.names.iter().cloned();
    let identifiers: Vec<Identifier> = names.map(Identifier::Dns).collect();
    let account = match storage::load_account(settings)? {
        Some(json) => {
            let credentials: AccountCredentials =
                serde_json::from_slice(&json).map_err(Error::Account)?;
            account_builder(settings)
                .from_credentials(credentials)
                .await?
        }
        None => create_account(settings).await?,
    };
    match account.new_order(&NewOrder::new(&identifiers)).await {
        // Test directories forget accounts when they restart.
        Err(instant_acme::Error::Api(problem))
            if problem.r#type.as_deref() == Some(UNKNOWN_ACCOUNT) =>
        {
            let account = create_account(settings).await?;
            Ok(account.new_order(&NewOrder::new(&identifiers)).await?)
        }
        order => Ok(order?),
    }
}

fn account_builder(settings: &Settings) -> AccountBuilder {
    Account::builder_with_http(Box::new(DirectoryClient(settings.roots.clone())))
}

/// Creates an account at the directory, and saves it.
async fn create_account(settings: &Settings) -> Result<Account, Error> {
    let contact_url = settings
        .contact_email
        .as_ref()
        .map(|address| format!("mailto:{address}"));
    let contacts: Vec<&str> = contact_url.iter().map(String::as_str).collect();
    let new_account = NewAccount {
        contact: &contacts,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let (account, credentials) = account_builder(settings)
        .create(&new_account, settings.directory_url.clone(), None)
        .await?;
    let json = serde_json::to_vec(&credentials).map_err(Error::Account)?;
    storage::save_account(settings, &json)?;
    Ok(account)
}

/// A proof that is shown until this guard is dropped.
enum ShownProof<'a> {
    /// In handshakes, for this host name.
    Handshake(&'a IssuedCertificate, String),
    /// In responses, for this token.
    Response(&'a ChallengeTokens, String),
}

impl Drop for ShownProof<'_> {
    fn drop(&mut self) {
        match self {
            ShownProof::Handshake(issued, name) => issued.remove_proof(name),
            ShownProof::Response(tokens, token) => tokens.remove(token),
        }
    }
}

/// Shows a proof for each name that is not proven yet, and asks the directory to check it. The proofs are added to
/// `proofs`, also those before a failure.
async fn show_proofs<'a>(
    settings: &Settings,
    issued: &'a IssuedCertificate,
    tokens: &'a ChallengeTokens,
    order: &mut Order,
    proofs: &mut Vec<ShownProof<'a>>,
) -> Result<(), Error> {
    let challenge_type = match settings.challenge {
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
        let Some(mut challenge) = authorization.challenge(challenge_type.clone()) else {
            return Err(Error::Unproven {
                name,
                challenge: settings.challenge.name(),
                reason: "the directory does not offer it".into(),
            });
        };
        proofs.push(match settings.challenge {
            Challenge::TlsAlpn01 => {
                show_in_handshakes(&name, &challenge, issued)?;
                ShownProof::Handshake(issued, name.clone())
            }
            Challenge::Http01 => {
                let token = challenge.token.clone();
                tokens.insert(&token, challenge.key_authorization().as_str());
                ShownProof::Response(tokens, token)
            }
        });
        // The directory may check the proof before it responds.
        challenge.set_ready().await.map_err(|error| match error {
            instant_acme::Error::Api(problem) => Error::Unproven {
                name,
                challenge: settings.challenge.name(),
                reason: problem.to_string(),
            },
            error => error.into(),
        })?;
    }
    Ok(())
}

/// Makes the certificate that proves a name, and shows it in handshakes: RFC 8737 section 3.
fn show_in_handshakes(
    name: &str,
    challenge: &ChallengeHandle<'_>,
    issued: &IssuedCertificate,
) -> Result<(), Error> {
    let digest = challenge.key_authorization().digest();
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(issued.add_proof(name, certificate.der().clone(), &key)?)
}

/// The error about the first name that was not proven, with the directory's reason. Returns `None` if the directory
/// gives no reason or cannot be reached.
async fn find_unproven_name(settings: &Settings, order: &mut Order) -> Option<Error> {
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
                reason: problem.to_string(),
            });
        }
    }
    None
}
