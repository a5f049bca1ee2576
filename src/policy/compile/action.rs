//! Compiles what a policy does with its requests: its upstream, its redirect, or its response, whose body is read here.

use std::path::Path;
use std::sync::Arc;

use http::StatusCode;

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, PolicyConfig, RedirectConfig, ResponseConfig};
use super::super::source::Files;
use super::files::read_body_file;
use crate::route::{FixedResponse, Redirect, RedirectTarget, RouteAction};
use crate::upstream;

/// Compiles the action of a policy. `None` after a mistake, which is reported here or was before.
pub(super) fn compile_action(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    gateway: &GatewayConfig,
    upstreams: &[upstream::Settings],
    policy: &PolicyConfig,
) -> Option<RouteAction> {
    if let Some(pattern) = policy.descriptor_pattern() {
        return Some(RouteAction::Decide(Arc::new(pattern)));
    }
    if let Some(redirect) = &policy.redirect {
        let redirect = compile_redirect(gateway, &redirect.value, policy.strip.is_some())?;
        return Some(RouteAction::Redirect(Arc::new(redirect)));
    }
    if let Some(response) = &policy.respond {
        let response = compile_response(cx, files, base, &response.value)?;
        return Some(RouteAction::Respond(Arc::new(response)));
    }
    let Some(upstream_name) = &policy.upstream else {
        return gateway.is_served_by_others().then_some(RouteAction::Admit);
    };
    let mut upstreams = upstreams.iter();
    upstreams
        .position(|upstream| upstream.name == upstream_name.value)
        .map(RouteAction::Forward)
}

/// The redirect of a listener that sends every request to HTTPS.
pub(super) fn listener_redirect(gateway: &GatewayConfig) -> Redirect {
    Redirect {
        status: StatusCode::PERMANENT_REDIRECT,
        target: RedirectTarget::Https {
            port: https_port(gateway),
        },
    }
}

/// Compiles a redirect. `strips` says that a prefix is taken off the path, and the rest follows the target.
fn compile_redirect(
    gateway: &GatewayConfig,
    redirect: &RedirectConfig,
    strips: bool,
) -> Option<Redirect> {
    let target = match &redirect.to.as_ref()?.value {
        RedirectTarget::Https { .. } => RedirectTarget::Https {
            port: https_port(gateway),
        },
        other => other.clone(),
    };
    Some(Redirect {
        status: redirect.status,
        target: match strips {
            true => target.below()?,
            false => target,
        },
    })
}

/// The port of `redirect: https`: 443 if a TLS listener is there, or else that of the first one at a port. `None` for 443,
/// without such a listener, and if it is any free port.
fn https_port(gateway: &GatewayConfig) -> Option<u16> {
    let tls_listeners = gateway.listen.iter().filter(|listener| listener.is_tls());
    let ports: Vec<u16> = tls_listeners
        .filter_map(|listener| listener.port())
        .collect();
    let has_default = ports.contains(&443);
    ports
        .first()
        .copied()
        .filter(|_| !has_default)
        .filter(|port| ![0, 443].contains(port))
}

fn compile_response(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    response: &ResponseConfig,
) -> Option<FixedResponse> {
    let body = match (&response.body, &response.body_file) {
        (Some(text), _) => text.value.clone().into_bytes(),
        (None, Some(file)) => read_body_file(cx, files, base, file, FixedResponse::MAX_BODY_BYTES)?,
        (None, None) => Vec::new(),
    };
    Some(FixedResponse {
        status: response
            .status
            .as_ref()
            .map_or(StatusCode::OK, |status| status.value),
        content_type: response.content_type.as_str().into(),
        body: body.into(),
    })
}
