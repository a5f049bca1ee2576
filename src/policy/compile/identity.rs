//! Compiles the settings of identities, with the keys in the files that the gateway file names. No message shows a key.

use std::path::Path;
use std::sync::Arc;

use http::Uri;

use super::super::context::LoadContext;
use super::super::decode::{
    ApiKeySource, GatewayConfig, ISSUER_SEPARATOR, IpConfig, KeySet, PlanSourceConfig, UserConfig,
};
use super::super::source::Files;
use super::super::tree::Located;
use super::files::{read_named_file, read_secret_text, trim_named_secret};
use super::tls::{load_system_roots, read_named_roots};
use crate::identity::api_keys::ApiKeys;
use crate::identity::{self, ip, jwt, plan, user};

mod api_keys;
mod custom;
mod measured;
pub(super) mod network_list;
mod table;

/// Compiles the section `identity`. Mistakes in files are reported to `cx`, and a source with one is left out.
pub fn compile_identity(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
) -> identity::Settings {
    let written = &gateway.identity;
    let plan = compile_plans(gateway);
    let mut user_sources: Vec<user::Settings> = Vec::new();
    for user in &written.users {
        let compiled = compile_user(cx, files, base, gateway, &user.value, &plan);
        let issuers = user_sources.iter_mut().find_map(|source| match source {
            user::Settings::Jwt(issuers) => Some(issuers),
            _ => None,
        });
        // All issuers of tokens are one source, in the position of the first.
        match (compiled, issuers) {
            (Some(user::Settings::Jwt(issuer)), Some(issuers)) => issuers.extend(issuer),
            (compiled, _) => user_sources.extend(compiled),
        }
    }
    let mut compiled = identity::Settings {
        user_sources,
        ip: compile_ip(&written.ip),
        on_unverified: written.unverified(),
        token_sources: written.tokens.clone(),
        email: written.email.clone(),
        plan,
        custom: custom::compile_custom(
            cx,
            files,
            base,
            &written.custom,
            &written.ip.nat64,
            &gateway.access_log.fields,
        ),
        request_id_field: gateway.request_id.as_ref().map(|field| field.value.clone()),
        measured: Vec::new(),
    };
    compiled.measured = measured::compile_measured(cx, gateway, &compiled);
    compiled
}

fn compile_ip(written: &IpConfig) -> ip::Settings {
    ip::Settings {
        trusted_proxies: written.trusted_proxies.clone(),
        ipv4_prefix_length: written.group.ipv4,
        ipv6_prefix_length: written.group.ipv6,
        has_parent_budgets: written.parents,
        nat64_prefixes: written.nat64.clone(),
    }
}

/// Compiles one source of users. `None` for a mistake in its files, which is reported.
fn compile_user(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    written: &UserConfig,
    plans: &plan::Settings,
) -> Option<user::Settings> {
    if let Some(claim) = &written.jwt {
        let (keys, remote) = compile_token_keys(cx, files, base, written)?;
        let issuer = written.issuer.as_ref().map(|issuer| issuer.value.clone());
        return Some(user::Settings::Jwt(vec![jwt::Settings {
            claim: claim.clone(),
            keys,
            remote,
            name_prefix: name_prefix(gateway, issuer.as_deref()),
            issuer,
            audiences: written.audience.clone(),
            leeway: written.leeway,
        }]));
    }
    if let Some(name) = &written.header {
        return Some(user::Settings::Header {
            name: name.clone(),
            allowed_peers: written.from.clone(),
        });
    }
    if written.has_api_keys() {
        let mut keys = ApiKeys::default();
        let mut accepts_runtime_keys = false;
        for source in &written.api_keys {
            match source {
                ApiKeySource::Runtime(_) => accepts_runtime_keys = true,
                ApiKeySource::File(file) => {
                    keys = api_keys::read_api_keys(cx, files, base, file, gateway, plans)?;
                }
            }
        }
        let keys = keys.with_runtime_keys(accepts_runtime_keys);
        return Some(user::Settings::ApiKeys(Arc::new(keys)));
    }
    let name = written.client_cert.as_ref()?;
    Some(user::Settings::ClientCert(name.value))
}

/// The prefix of names from the tokens of one of several issuers, so that no issuer can give another's names. Empty if
/// the gateway file does not separate issuers.
fn name_prefix(gateway: &GatewayConfig, issuer: Option<&str>) -> String {
    match issuer {
        Some(issuer) if gateway.identity.separates_issuers() => {
            format!("{issuer}{ISSUER_SEPARATOR}")
        }
        _ => String::new(),
    }
}

/// Compiles all plans, and the source of a request's plan.
fn compile_plans(gateway: &GatewayConfig) -> plan::Settings {
    let plans: Vec<plan::Plan> = gateway
        .plans
        .iter()
        .map(|plan| plan::Plan {
            name: plan.name.value.clone(),
            plan_factor: plan.plan_factor,
            priority: plan.priority,
        })
        .collect();
    let written = gateway.identity.plan.as_ref().map(|plan| &plan.value);
    let default_name = written.and_then(|plan| plan.default.as_ref());
    let default_index =
        default_name.and_then(|name| plans.iter().position(|plan| plan.name == name.value));
    // API keys that name users may name their plans too.
    let has_keys = gateway.identity.has_user(UserConfig::has_api_keys);
    let source = written.and_then(compile_plan_source);
    plan::Settings {
        plans,
        source: source.or(has_keys.then_some(plan::PlanSource::ApiKeys)),
        default_index,
    }
}

/// The source of a request's plan; `None` if the section `plan` names only a default.
fn compile_plan_source(written: &PlanSourceConfig) -> Option<plan::PlanSource> {
    if let Some(claim) = &written.jwt {
        return Some(plan::PlanSource::Claim(claim.value.clone()));
    }
    if let Some(name) = &written.header {
        return Some(plan::PlanSource::Header {
            name: name.clone(),
            allowed_peers: written.from.clone(),
        });
    }
    written.api_keys.map(|_| plan::PlanSource::ApiKeys)
}

/// Reads the keys that verify signed tokens. A key set at a URL is fetched later: then there are no keys yet, and the
/// second element describes the set. `None` for a mistake, which is reported.
fn compile_token_keys(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    written: &UserConfig,
) -> Option<(jwt::VerificationKeys, Option<jwt::RemoteKeySet>)> {
    let (what, file, result) = match (&written.jwks, &written.secret) {
        (Some(KeySet::Url(url)), _) => {
            let remote = compile_remote_keys(cx, files, base, url, written)?;
            return Some((jwt::VerificationKeys::none(), Some(remote)));
        }
        (Some(KeySet::File(file)), _) => {
            let set = read_named_file(cx, files, base, file, "the key set")?;
            let keys = jwt::VerificationKeys::from_jwks(&set);
            ("the key set", file, keys)
        }
        (None, Some(file)) => {
            let text = read_secret_text(cx, files, base, file, "the secret")?;
            let keys = if jwt::is_pem(text.as_bytes()) {
                Err(jwt::VerificationKeysError::PemAsSecret)
            } else {
                let secret = trim_named_secret(cx, base, file, &text)?;
                jwt::VerificationKeys::from_secret(secret.as_bytes())
            };
            ("the secret", file, keys)
        }
        (None, None) => {
            let file = written.key.as_ref()?;
            let pem = read_named_file(cx, files, base, file, "the public key")?;
            let keys = jwt::VerificationKeys::from_pem(&pem);
            ("the public key", file, keys)
        }
    };
    let report_error = |error| {
        let message = format!("cannot use {what} `{}`: {error}", file.value);
        cx.error(file.location, message, None);
    };
    Some((result.map_err(report_error).ok()?, None))
}

/// The key set at a URL. `None` if the authorities that verify its server cannot be loaded, which is reported.
fn compile_remote_keys(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    url: &Located<Uri>,
    written: &UserConfig,
) -> Option<jwt::RemoteKeySet> {
    let roots = match &written.roots {
        Some(file) => read_named_roots(cx, files, base, file)?,
        None => {
            let help = "install `ca-certificates`, or name a file: `roots: ca.pem`";
            load_system_roots(cx, url.location, help)?
        }
    };
    let issuer = written.issuer.as_ref().map(|issuer| issuer.value.clone());
    Some(jwt::RemoteKeySet::new(url.value.clone(), roots, issuer))
}
