//! Gives refusals the bodies that operators have written for them: a page for clients that prefer HTML, JSON for all others.
//! Without a file for its status a refusal stays a problem document, and gRPC refusals stay as they are.
//!
//! A page is made from the problem document each time. So no cache of refusals knows of pages, and none can repeat what
//! another request had in its page, or what its `Accept` has chosen.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;

use super::accepted_media::prefers_html;
use super::request_context::RequestContext;
use super::request_outcome::RequestOutcome;
use super::routing::read_host;
use super::vary;
use crate::http::head::{Head, Response, ResponseHead};
use crate::route::{ErrorPage, PageTemplate, PageVariable};
use crate::throttle::reject::PROBLEM_JSON;

/// The problem document of a refusal, as far as pages have it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
    #[serde(rename = "type")]
    problem_type: String,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
}

/// Replaces the body of a refusal if the gateway file or the policy has one for its status.
#[cold]
pub(super) fn replace_body(context: &RequestContext, response: &mut Response<Bytes>) {
    let Some(page) = find_page(context, response.head.status) else {
        return;
    };
    if response.head.fields.first("content-type") != Some(PROBLEM_JSON) {
        return;
    }
    let head = context.head.as_deref();
    let fields = &mut response.head.fields;
    let Some((template, content_type)) = choose_template(page, head) else {
        return;
    };
    fields.set("content-type", content_type);
    // A refusal from the cache states the length of its problem document.
    fields.remove("content-length");
    if template.is_personal() && !fields.contains("cache-control") {
        fields.add("cache-control", b"no-store");
    }
    response.body = render(template, context, response);
}

/// Says in `Vary` that a refusal depends on `Accept`, if it does. It comes after the changes of policies, so that none takes
/// that out.
pub(super) fn set_vary(context: &RequestContext, head: &mut ResponseHead) {
    let is_refusal = context.outcome() != RequestOutcome::Admitted;
    if is_refusal && find_page(context, head.status).is_some_and(|page| page.html.is_some()) {
        vary::add_name(&mut head.fields, "accept");
    }
}

/// What the gateway file or the policy has for refusals with this status.
fn find_page(context: &RequestContext, status: StatusCode) -> Option<&ErrorPage> {
    let ruleset = &context.generation.ruleset;
    let route = context.route_index.get();
    ruleset.error_page(route.map(|index| &*ruleset.routes[index]), status.as_u16())
}

/// The template for the client with this head, and its content type; `None` if the client gets the problem document. A
/// request whose head cannot be read asks for nothing.
pub(super) fn choose_template<'p>(
    page: &'p ErrorPage,
    head: Option<&Head>,
) -> Option<(&'p Arc<PageTemplate>, &'static [u8])> {
    let prefers_html = page.html.is_some() && head.is_some_and(|head| prefers_html(&head.fields));
    let content_type: &[u8] = match prefers_html {
        true => b"text/html; charset=utf-8",
        false => b"application/json",
    };
    Some((page.template(prefers_html)?, content_type))
}

fn render(template: &PageTemplate, context: &RequestContext, response: &Response<Bytes>) -> Bytes {
    // The gateway has written the document, so that it can be read.
    let problem: Problem = serde_json::from_slice(&response.body).unwrap_or_default();
    let head = context.head.as_deref();
    let limits = problem.violated_policies.join(", ");
    let host = head.and_then(|head| read_host(head).ok().flatten());
    let client = context.client.get();
    let ip = context.ip().to_string();
    template.render(|variable| match variable {
        PageVariable::Status => Some(response.head.status.as_str()),
        PageVariable::Title => Some(&problem.title),
        PageVariable::Detail => Some(&problem.detail),
        PageVariable::Type => Some(&problem.problem_type),
        PageVariable::Limit => Some(&*limits).filter(|limits| !limits.is_empty()),
        PageVariable::RetryAfter => response.head.fields.text("retry-after"),
        PageVariable::RequestId => Some(context.request_id()?.as_str()),
        PageVariable::Host => host.as_deref(),
        PageVariable::Path => Some(head?.uri.path()),
        PageVariable::Ip => {
            let is_unclear = client.is_some_and(|client| client.is_ip_unclear);
            (!is_unclear).then_some(&*ip)
        }
    })
}
