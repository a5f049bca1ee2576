//! One order: an account at the directory, a proof for each name, a certificate for a key of its own.

use std::io;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeHandle, ChallengeType, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::client::Client;
use super::{Challenge, Settings, Tokens, storage};
use crate::net::Issued;
use crate::net::tls::certificate;

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the directory says, or why it cannot be asked.
    #[error(transparent)]
    Directory(#[from] instant_acme::Error),
    /// A name could not be proven to be the gateway's.
    #[error("{name} could not be proven by {way}: {why}")]
    Unproven {
        /// The name.
        name: String,
        /// The kind of challenge.
        way: &'static str,
        /// In the directory's words.
        why: String,
    },
    /// The directory does not say why.
    #[error("the directory says no more of the order than {0}")]
    Order(String),
    /// It took too long.
    #[error("the order was not done in time")]
    Late,
    /// What came is no certificate.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] certificate::Error),
    /// What came or was stored is for somebody else.
    #[error("the certificate is for other names")]
    OtherNames,
    /// What came or was stored has had its time.
    #[error("the certificate has had its time: is the clock right?")]
    Old,
    /// The folder cannot be used.
    #[error("the folder for certificates: {0}")]
    Folder(#[from] io::Error),
    /// The account's file is none.
    #[error("the account's file cannot be read: {0}")]
    Account(serde_json::Error),
    /// A key or a request cannot be made.
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
    /// The proof cannot be shown.
    #[error("cannot show the proof: {0}")]
    Proof(#[from] rustls::Error),
}

impl Error {
    /// The directory has been asked and has said no; it does not like to be asked often.
    pub fn is_refusal(&self) -> bool {
        match self {
            Error::Directory(error) => matches!(error, instant_acme::Error::Api(_)),
            Error::Late | Error::Folder(_) | Error::Account(_) => false,
            _ => true,
        }
    }
}

/// How long the directory may take to look at proofs, and then to issue.
const LOOK: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(120));

/// A new key and the chain of its certificate, in PEM. The proofs are shown while the directory looks.
pub async fn order(
    settings: &Settings,
    issued: &Issued,
    tokens: &Tokens,
) -> Result<Vec<u8>, Error> {
    // First, for the directory counts accounts and certificates, also those that are lost.
    storage::probe(settings)?;
    let names = settings.names.iter().cloned();
    let names: Vec<Identifier> = names.map(Identifier::Dns).collect();
    let account = account(settings, false).await?;
    let mut order = match account.new_order(&NewOrder::new(&names)).await {
        // The directory may have forgotten it, as those for tests do.
        Err(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(FORGOTTEN) => {
            let account = self::account(settings, true).await?;
            account.new_order(&NewOrder::new(&names)).await?
        }
        order => order?,
    };
    let mut proofs = Vec::new();
    prove(settings, issued, tokens, &mut order, &mut proofs).await?;
    let looked = order.poll_ready(&LOOK).await;
    drop(proofs);
    match looked {
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
    let chain = order.poll_certificate(&LOOK).await?;
    Ok([key.serialize_pem(), chain].concat().into_bytes())
}

const FORGOTTEN: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// The account of before, or a new one.
async fn account(settings: &Settings, new: bool) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(Client(settings.roots.clone())));
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
enum Proof<'a> {
    Handshake(&'a Issued, String),
    Answer(&'a Tokens, String),
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        match self {
            Proof::Handshake(issued, name) => issued.proven(name),
            Proof::Answer(tokens, token) => tokens.close(token),
        }
    }
}

/// Shows a proof for each name that needs one and tells the directory to look.
async fn prove<'a>(
    settings: &Settings,
    issued: &'a Issued,
    tokens: &'a Tokens,
    order: &mut Order,
    proofs: &mut Vec<Proof<'a>>,
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
            let way = settings.challenge.name();
            return Err(Error::Unproven { name, way, why });
        };
        proofs.push(match settings.challenge {
            Challenge::TlsAlpn01 => {
                show(&name, &challenge, issued)?;
                Proof::Handshake(issued, name.clone())
            }
            Challenge::Http01 => {
                let token = challenge.token.clone();
                tokens.open(&token, challenge.key_authorization().as_str());
                Proof::Answer(tokens, token)
            }
        });
        // The directory may have looked before it answers.
        challenge.set_ready().await.map_err(|error| match error {
            instant_acme::Error::Api(problem) => Error::Unproven {
                name,
                way: settings.challenge.name(),
                why: problem.to_string(),
            },
            error => error.into(),
        })?;
    }
    Ok(())
}

/// RFC 8737 section 3.
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

/// Why the directory does not take the order, by its own words about the first name that failed.
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
                way: settings.challenge.name(),
                why: problem.to_string(),
            });
        }
    }
    None
}
