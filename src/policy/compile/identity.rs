//! The settings of identities, with the files of keys that they need.

use std::path::Path;
use std::sync::Arc;

use super::super::collect::Cx;
use super::super::model::{GatewayConfig, KeyFile, Located, PlanFrom, TokenConfig, UserConfig};
use super::super::source::Files;
use super::super::tree::{self, MapKey, Node, SourcePlace, SyntaxError, YamlValue};
use super::files::{hidden_text, named_file, secret_of};
use crate::base::suggest::{listed, nearest};
use crate::identity::{self, api_keys, email, jwt, plan, token, user};

/// The settings; what cannot be read or is wrong with a file is on record.
pub fn compile(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> identity::Settings {
    let written = &gateway.identity;
    let plan = plans(gateway);
    let token = written.token.as_ref().map(|token| match &token.value {
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
    });
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
            let keys = jwt_keys(cx, files, base, keys.as_ref()?)?;
            Some(user::Settings::Jwt(jwt::Settings {
                claim: claim.clone(),
                keys,
                issuer: issuer.clone(),
                audience: audience.clone(),
                leeway: leeway.unwrap_or(jwt::LEEWAY),
            }))
        }
        UserConfig::Header { name, from } => Some(user::Settings::Header {
            name: name.clone()?,
            from: from.clone(),
        }),
        UserConfig::ApiKeys(file) => {
            let keys = api_keys(cx, files, base, file, &plan, token.as_ref())?;
            Some(user::Settings::ApiKeys(Arc::new(keys)))
        }
        UserConfig::ClientCert(named) => Some(user::Settings::ClientCert(named.value)),
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

fn plans(gateway: &GatewayConfig) -> plan::Settings {
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
        // The file of API keys says it where it says who the user is.
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

fn jwt_keys(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    keys: &KeyFile,
) -> Option<jwt::VerificationKeys> {
    let (file, what, read) = match keys {
        KeyFile::Jwks(file) => {
            let set = named_file(cx, files, base, file, "the key set")?;
            (file, "the key set", jwt::VerificationKeys::from_jwks(&set))
        }
        KeyFile::Secret(file) => {
            let text = hidden_text(cx, files, base, file, "the secret")?;
            let read = if jwt::is_pem(text.as_bytes()) {
                Err(jwt::VerificationKeysError::PemAsSecret)
            } else {
                let secret = secret_of(cx, base, file, &text)?;
                jwt::VerificationKeys::from_secret(secret.as_bytes())
            };
            (file, "the secret", read)
        }
        KeyFile::Pem(file) => {
            let pem = named_file(cx, files, base, file, "the public key")?;
            (
                file,
                "the public key",
                jwt::VerificationKeys::from_pem(&pem),
            )
        }
    };
    let failed = |error| {
        let message = format!("cannot use {what} `{}`: {error}", file.value);
        cx.error(file.place, message, None);
    };
    read.map_err(failed).ok()
}

/// The file of API keys: `KEY: USER` or `KEY: { user: USER, plan: PLAN }`. No message shows a key or
/// a line of the file.
fn api_keys(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
    plans: &plan::Settings,
    token: Option<&token::TokenSource>,
) -> Option<api_keys::ApiKeys> {
    let text = hidden_text(cx, files, base, file, "API keys")?;
    let number = cx
        .sources
        .add_hidden(&base.join(&file.value).display().to_string());
    let tree = match tree::parse(number, &text) {
        Ok(tree) => tree,
        Err(SyntaxError { place, .. }) => {
            let help = "write `KEY: { user: USER, plan: PLAN }` on each line";
            cx.error(place, "the file of API keys is not YAML", Some(help.into()));
            return None;
        }
    };
    let entries = match &tree.value {
        YamlValue::Map(entries) if !entries.is_empty() => entries,
        _ => {
            let help = "write `KEY: { user: USER, plan: PLAN }` on each line";
            cx.error(
                tree.place,
                "the file of API keys has no keys",
                Some(help.into()),
            );
            return None;
        }
    };
    let owners: Vec<_> = entries
        .iter()
        .filter_map(|entry| owner(cx, plans, entry))
        .collect();
    if owners.len() < entries.len() {
        return None;
    }
    // A key is looked up as it is counted.
    let token = token.unwrap_or(&token::TokenSource::Bearer);
    let normal = owners
        .iter()
        .map(|(key, user, plan)| (token.normal(key), user, *plan));
    match api_keys::ApiKeys::new(normal) {
        Ok(keys) => Some(keys),
        Err(error) => {
            let place = entries
                .get(error.place())
                .map_or(tree.place, |(key, _)| key.place);
            cx.error(place, error.to_string(), None);
            None
        }
    }
}

fn owner(
    cx: &mut Cx,
    plans: &plan::Settings,
    (key, node): &(MapKey, Node),
) -> Option<(String, String, Option<usize>)> {
    let YamlValue::Map(fields) = &node.value else {
        let help = "write `KEY: { user: USER, plan: PLAN }`";
        let Some(user) = node.text() else {
            cx.error(key.place, "this key has no user", Some(help.into()));
            return None;
        };
        return Some((key.text.clone(), user.to_owned(), None));
    };
    let (mut user, mut plan) = (None, None);
    for (name, value) in fields {
        let text = value.text().map(str::to_owned);
        match name.text.as_str() {
            "user" => user = text,
            "plan" => {
                plan = Some(find_plan(
                    cx,
                    plans,
                    &text.unwrap_or_default(),
                    value.place,
                )?)
            }
            _ => {
                let help = "the fields of a key are `user` and `plan`";
                cx.error(name.place, "a key has no such field", Some(help.into()));
                return None;
            }
        }
    }
    if user.is_none() {
        let help = "write `KEY: { user: USER, plan: PLAN }`";
        cx.error(key.place, "this key has no user", Some(help.into()));
    }
    Some((key.text.clone(), user?, plan))
}

fn find_plan(cx: &mut Cx, plans: &plan::Settings, name: &str, place: SourcePlace) -> Option<usize> {
    let found = plans.plans.iter().position(|plan| plan.name == name);
    if found.is_none() {
        let names = plans.plans.iter().map(|plan| plan.name.as_str());
        let help = match nearest(name, names.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the plans are {}", listed(names)),
        };
        cx.error(place, format!("there is no plan `{name}`"), Some(help));
    }
    found
}
