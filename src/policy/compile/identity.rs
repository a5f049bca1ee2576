//! Compiles the settings of identities, with the keys in the files that the gateway file names. No message shows a key.

use std::path::Path;
use std::sync::Arc;

use super::super::context::LoadContext;
use super::super::model::{
    GatewayConfig, KeyFormat, KeySource, Located, PlanFrom, TokenConfig, UserConfig,
};
use super::super::source::Files;
use super::super::tree::{self, MapKey, Node, SourceLocation, SyntaxError, YamlValue};
use super::files::{read_named_file, read_secret_text, trim_named_secret};
use super::tls::{load_system_roots, read_named_roots};
use crate::base::suggest::{list_words, nearest_word};
use crate::identity::{self, api_keys, email, jwt, plan, token, user};

/// Compiles the section `identity`. Mistakes in files are reported to `cx`.
pub fn compile_identity(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> identity::Settings {
    let written = &gateway.identity;
    let plan = compile_plans(gateway);
    let token = written
        .token
        .as_ref()
        .map(|token| token_source(&token.value));
    let email = written.email.as_ref().map(|email| email::Settings {
        field: email.value.field.as_str().into(),
        max_body: email.value.max,
        fold: email.value.fold,
    });
    let user = written.user.as_ref().and_then(|user| match &user.value {
        UserConfig::Jwt {
            claim,
            keys,
            issuer,
            audience,
            leeway,
        } => {
            let (keys, remote) = match keys.as_ref()? {
                KeySource::Url { url, roots } => {
                    let roots = match roots {
                        Some(file) => read_named_roots(cx, files, base, file)?,
                        None => {
                            let help = "install `ca-certificates`, or name a file: `roots: ca.pem`";
                            load_system_roots(cx, url.location, help)?
                        }
                    };
                    let remote = jwt::RemoteKeySet::new(url.value.clone(), roots, issuer.clone());
                    (jwt::VerificationKeys::none(), Some(remote))
                }
                KeySource::File(format, file) => {
                    (read_jwt_keys(cx, files, base, *format, file)?, None)
                }
            };
            Some(user::Settings::Jwt(jwt::Settings {
                claim: claim.clone(),
                keys,
                remote,
                issuer: issuer.clone(),
                audiences: audience.clone().unwrap_or_default(),
                leeway: leeway.unwrap_or(jwt::LEEWAY),
            }))
        }
        UserConfig::Header { name, from } => Some(user::Settings::Header {
            name: name.clone()?,
            from: from.clone(),
        }),
        UserConfig::ApiKeys(file) => {
            let keys = read_api_keys(cx, files, base, file, &plan, token.as_ref())?;
            Some(user::Settings::ApiKeys(Arc::new(keys)))
        }
        UserConfig::ClientCert(name) => Some(user::Settings::ClientCert(name.value)),
    });
    identity::Settings {
        ip: written.ip.clone(),
        user,
        unverified: written.unverified,
        token,
        email,
        plan,
    }
}

/// The part of a request that holds the credential. The scheme `Bearer` has a source of its own, whichever way it is
/// written.
fn token_source(written: &TokenConfig) -> token::TokenSource {
    match written {
        TokenConfig::Header(name) => token::TokenSource::Header(name.clone()),
        TokenConfig::Bearer => token::TokenSource::Bearer,
        TokenConfig::Scheme(name, scheme)
            if *name == http::header::AUTHORIZATION && scheme.eq_ignore_ascii_case("bearer") =>
        {
            token::TokenSource::Bearer
        }
        TokenConfig::Scheme(header, scheme) => token::TokenSource::Scheme {
            header: header.clone(),
            scheme: scheme.as_str().into(),
        },
        TokenConfig::Query(name) => token::TokenSource::Query(name.as_str().into()),
        TokenConfig::Cookie(name) => token::TokenSource::Cookie(name.as_str().into()),
    }
}

fn compile_plans(gateway: &GatewayConfig) -> plan::Settings {
    let plans: Vec<plan::Plan> = gateway
        .plans
        .iter()
        .map(|plan| plan::Plan {
            name: plan.value.name.clone(),
            multiply: plan.value.multiply,
            priority: plan.value.priority,
        })
        .collect();
    let written = gateway.identity.plan.as_ref().map(|plan| &plan.value);
    let default = written.and_then(|plan| plan.default.as_ref());
    let default = default.and_then(|name| plans.iter().position(|plan| plan.name == name.value));
    let source = match written.and_then(|plan| plan.from.as_ref()) {
        Some(PlanFrom::Claim(claim)) => Some(plan::PlanOrigin::Claim(claim.value.clone())),
        Some(PlanFrom::Header { name, from }) => Some(plan::PlanOrigin::Header {
            name: name.clone(),
            from: from.clone(),
        }),
        Some(PlanFrom::ApiKeys(_)) => Some(plan::PlanOrigin::ApiKeys),
        // A file of API keys that names users may name their plans too.
        None => match gateway.identity.user.as_ref().map(|user| &user.value) {
            Some(UserConfig::ApiKeys(_)) => Some(plan::PlanOrigin::ApiKeys),
            _ => None,
        },
    };
    plan::Settings {
        plans,
        source,
        default,
    }
}

/// Reads the keys that verify signed tokens.
fn read_jwt_keys(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    format: KeyFormat,
    file: &Located<String>,
) -> Option<jwt::VerificationKeys> {
    let (what, result) = match format {
        KeyFormat::Jwks => {
            let set = read_named_file(cx, files, base, file, "the key set")?;
            ("the key set", jwt::VerificationKeys::from_jwks(&set))
        }
        KeyFormat::Secret => {
            let text = read_secret_text(cx, files, base, file, "the secret")?;
            let result = if jwt::is_pem(text.as_bytes()) {
                Err(jwt::VerificationKeysError::PemAsSecret)
            } else {
                let secret = trim_named_secret(cx, base, file, &text)?;
                jwt::VerificationKeys::from_secret(secret.as_bytes())
            };
            ("the secret", result)
        }
        KeyFormat::Pem => {
            let pem = read_named_file(cx, files, base, file, "the public key")?;
            ("the public key", jwt::VerificationKeys::from_pem(&pem))
        }
    };
    let report_error = |error| {
        let message = format!("cannot use {what} `{}`: {error}", file.value);
        cx.error(file.location, message, None);
    };
    result.map_err(report_error).ok()
}

/// Reads the file of API keys, with entries `KEY: USER` or `KEY: { user: USER, plan: PLAN }`. No message shows a key or
/// a line of the file.
fn read_api_keys(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
    plans: &plan::Settings,
    token: Option<&token::TokenSource>,
) -> Option<api_keys::ApiKeys> {
    let text = read_secret_text(cx, files, base, file, "API keys")?;
    let file_number = cx
        .sources
        .add_secret(&base.join(&file.value).display().to_string());
    let help = "write `KEY: { user: USER, plan: PLAN }` on each line";
    let root = match tree::parse(file_number, &text) {
        Ok(root) => root,
        Err(SyntaxError { location, .. }) => {
            let message = "the file of API keys is not YAML";
            cx.error(location, message, Some(help.into()));
            return None;
        }
    };
    let entries = match &root.value {
        YamlValue::Map(entries) if !entries.is_empty() => entries,
        _ => {
            let message = "the file of API keys has no keys";
            cx.error(root.location, message, Some(help.into()));
            return None;
        }
    };
    let owners: Vec<KeyEntry<'_>> = entries
        .iter()
        .filter_map(|(key, value)| read_owner(cx, plans, key, value))
        .collect();
    if owners.len() < entries.len() {
        return None;
    }
    // Keys are looked up in the normal form in which they are counted.
    let token = token.unwrap_or(&token::TokenSource::Bearer);
    let normal_keys = owners
        .iter()
        .map(|owner| (token.normalise(owner.key), &owner.user, owner.plan));
    match api_keys::ApiKeys::new(normal_keys) {
        Ok(keys) => Some(keys),
        Err(error) => {
            let location = entries
                .get(error.index())
                .map_or(root.location, |(key, _)| key.location);
            cx.error(location, error.to_string(), None);
            None
        }
    }
}

/// An entry of the file of API keys.
struct KeyEntry<'n> {
    key: &'n str,
    user: String,
    /// The index of the plan among the plans of the gateway file.
    plan: Option<usize>,
}

/// Reads one entry of the file of API keys.
fn read_owner<'n>(
    cx: &mut LoadContext,
    plans: &plan::Settings,
    key: &'n MapKey,
    value: &Node,
) -> Option<KeyEntry<'n>> {
    let (mut user, mut plan) = (None, None);
    if let YamlValue::Map(fields) = &value.value {
        for (name, field) in fields {
            let text = field.scalar().map(str::to_owned);
            match name.text.as_str() {
                "user" => user = text,
                "plan" => {
                    let name = text.unwrap_or_default();
                    plan = Some(find_plan(cx, plans, &name, field.location)?);
                }
                _ => {
                    let help = "the fields of a key are `user` and `plan`";
                    cx.error(name.location, "a key has no such field", Some(help.into()));
                    return None;
                }
            }
        }
    } else {
        user = value.scalar().map(str::to_owned);
    }
    if user.is_none() {
        let help = "write `KEY: { user: USER, plan: PLAN }`";
        cx.error(key.location, "this key has no user", Some(help.into()));
    }
    Some(KeyEntry {
        key: &key.text,
        user: user?,
        plan,
    })
}

/// Finds the index of a plan by its name, or reports that there is none.
fn find_plan(
    cx: &mut LoadContext,
    plans: &plan::Settings,
    name: &str,
    location: SourceLocation,
) -> Option<usize> {
    let index = plans.plans.iter().position(|plan| plan.name == name);
    if index.is_none() {
        let names = plans.plans.iter().map(|plan| plan.name.as_str());
        let help = match nearest_word(name, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the plans are {}", list_words(names)),
        };
        cx.error(location, format!("there is no plan `{name}`"), Some(help));
    }
    index
}
