//! The spans of a traced request that has ended, by the semantic conventions of OpenTelemetry, and its exemplar.
//!
//! Texts of clients are cut. No span has a query, because queries may have credentials and personal data. Source:
//! <https://opentelemetry.io/docs/specs/semconv/http/http-spans/>.

use std::borrow::Cow;

use http::{StatusCode, Version};

use super::request_context::RequestContext;
use super::request_outcome::RequestOutcome;
use super::traced_request::{TracedExchange, TracedRequest};
use super::unreadable_request::MAX_METHOD_BYTES;
use crate::base::clock::Nanos;
use crate::base::proto_message::ProtoMessage;
use crate::base::telemetry::Exemplar;
use crate::net::address::UNIX_PREFIX;
use crate::route::{canonical_host, is_standard_method};
use crate::trace::{Span, SpanKind};

/// Longest text of a client in a span, in bytes. A longer one is cut.
const MAX_TEXT_BYTES: usize = 256;

/// Hands over the spans of a request that ended at `now`, and keeps the request as an exemplar of its duration.
#[cold]
pub(super) fn record_spans(context: &RequestContext, traced: &TracedRequest, now: Nanos) {
    let Some(tracer) = &context.peer.worker.tracer else {
        return;
    };
    let times = SpanTimes {
        now,
        wall_now: Nanos::from(context.generation.clock.wall()).0,
    };
    let exchanges = traced.exchanges.borrow();
    let mut encoded = server_span(context, traced, &times).append_to(ProtoMessage::default());
    for (resend_count, exchange) in exchanges.iter().enumerate() {
        let span = client_span(context, traced, (exchange, resend_count), &times);
        encoded = span.append_to(encoded);
    }
    let span_count = 1 + exchanges.len() as u64;
    tracer.push(&encoded.into_bytes(), span_count);
    let duration = now.since(context.arrived_at);
    let counters = context.generation.route_counters(context.route_index.get());
    let exemplar = Exemplar {
        trace_id: u128::from_be_bytes(traced.id.trace_id),
        span_id: u64::from_be_bytes(traced.id.span_id),
        seconds: duration.0 as f64 / 1e9,
        at: std::time::Duration::from_nanos(times.wall_now),
    };
    counters.request_duration.set_exemplar(duration, exemplar);
}

/// Converts times of the clock to those of spans.
struct SpanTimes {
    now: Nanos,
    /// The wall clock at `now`, in nanoseconds since 1970.
    wall_now: u64,
}

impl SpanTimes {
    /// Nanoseconds since 1970.
    fn at(&self, time: Nanos) -> u64 {
        self.wall_now.saturating_sub(self.now.since(time).0)
    }
}

/// The span of the request, as the client sees it.
fn server_span(context: &RequestContext, traced: &TracedRequest, times: &SpanTimes) -> Span {
    let ruleset = &context.generation.ruleset;
    let route = context
        .route_index
        .get()
        .map(|index| &ruleset.routes[index]);
    let http_route = route.map(|route| route.pattern.path_text());
    let method = method_word(context);
    let name_of_method = method.unwrap_or("HTTP");
    let name = match &http_route {
        Some(path) => Cow::Owned(format!("{name_of_method} {path}")),
        None => Cow::Borrowed(name_of_method),
    };
    let ids = (&traced.id, traced.parent_id);
    let lifetime = times.at(context.arrived_at)..times.wall_now;
    let mut span = Span::new(SpanKind::Server, ids, &name, lifetime)
        .with_text("url.scheme", context.peer.scheme())
        .with_text("client.address", &context.ip().to_string())
        .with_text("tollgate.outcome", context.outcome().as_str());
    if let Some(trace_state) = &traced.trace_state {
        span = span.with_trace_state(trace_state);
    }
    span = with_method(span, context, method);
    span = with_target(span, context);
    if let Some((route, http_route)) = route.zip(http_route) {
        span = span
            .with_text("http.route", &http_route)
            .with_text("tollgate.route", &route.name);
    }
    if let Some((rule_index, standing)) = context.deciding_limit.get() {
        span = span
            .with_text("tollgate.limit", ruleset.rules[rule_index].name.as_str())
            .with_text("tollgate.standing", standing.as_str());
        if let Some(remaining) = traced.remaining.get() {
            span = span.with_number("tollgate.remaining", remaining);
        }
    }
    if let Some(reason) = context.reason.get() {
        span = span.with_text("tollgate.reason", reason);
    }
    if let Some(request_id) = context.request_id() {
        span = span.with_text("tollgate.request_id", request_id.as_str());
    }
    let status = context.status();
    if status != 0 {
        span = span.with_number("http.response.status_code", status.into());
    }
    let is_server_error = status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16();
    match is_server_error || context.outcome() == RequestOutcome::Failed {
        true => span.with_error(&error_type(context.reason.get(), status)),
        false => span,
    }
}

/// The span of an exchange with a server.
fn client_span(
    context: &RequestContext,
    traced: &TracedRequest,
    (exchange, resend_count): (&TracedExchange, usize),
    times: &SpanTimes,
) -> Span {
    let ruleset = &context.generation.ruleset;
    let method = method_word(context);
    let id = traced.id.with_span(exchange.span_id, true);
    let ids = (&id, Some(traced.id.span_id));
    let ended_at = exchange
        .failure
        .map_or(times.now, |(failed_at, _)| failed_at);
    let lifetime = times.at(exchange.started_at)..times.at(ended_at);
    let name = method.unwrap_or("HTTP");
    let mut span = Span::new(SpanKind::Client, ids, name, lifetime);
    if let Some(trace_state) = &traced.trace_state {
        span = span.with_trace_state(trace_state);
    }
    span = with_method(span, context, method);
    if let Some(server_name) = &exchange.server_name {
        span = match server_name.strip_prefix(UNIX_PREFIX) {
            Some(path) => span.with_text("server.address", path),
            None => with_host(span, server_name),
        };
    }
    let route = context
        .route_index
        .get()
        .map(|index| &ruleset.routes[index]);
    if let Some(upstream) = route.and_then(|route| ruleset.upstream_name(route)) {
        span = span.with_text("tollgate.upstream", upstream);
    }
    if resend_count > 0 {
        span = span.with_number("http.request.resend_count", resend_count as u64);
    }
    if exchange.status != 0 {
        span = span.with_number("http.response.status_code", exchange.status.into());
    }
    let failure = exchange.failure.map(|(_, reason)| reason).or_else(|| {
        // The head has come, and the body broke off.
        let has_failed = context.outcome() == RequestOutcome::Failed;
        has_failed.then(|| context.reason.get()).flatten()
    });
    let is_error = exchange.status >= StatusCode::BAD_REQUEST.as_u16();
    match is_error || failure.is_some() {
        true => span.with_error(&error_type(failure, exchange.status)),
        false => span,
    }
}

/// The kind of an error: the gateway's reason, or else the status.
fn error_type(reason: Option<&'static str>, status: u16) -> Cow<'static, str> {
    match reason {
        Some(reason) => Cow::Borrowed(reason),
        None => Cow::Owned(status.to_string()),
    }
}

/// The method, if RFC 9110 or RFC 5789 defines it. Spans name no other, so that no client makes up names of spans.
fn method_word(context: &RequestContext) -> Option<&str> {
    let method = context.method.as_ref()?;
    is_standard_method(method).then(|| method.as_str())
}

/// Adds the method, and an unknown one beside `_OTHER`.
fn with_method(span: Span, context: &RequestContext, known: Option<&str>) -> Span {
    let span = span.with_text("http.request.method", known.unwrap_or("_OTHER"));
    match &context.method {
        Some(method) if known.is_none() => {
            let method = cut(method.as_str(), MAX_METHOD_BYTES);
            span.with_text("http.request.method_original", method)
        }
        _ => span,
    }
}

/// Adds what the client asks for: host, path, version of HTTP and its own name.
fn with_target(mut span: Span, context: &RequestContext) -> Span {
    let Some(head) = &context.head else {
        return match &context.unreadable_path {
            Some(path) => span.with_text("url.path", cut(path, MAX_TEXT_BYTES)),
            None => span,
        };
    };
    let version = match head.version {
        Version::HTTP_3 => "3",
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    span = span
        .with_text("network.protocol.version", version)
        .with_text("url.path", cut(head.uri.path(), MAX_TEXT_BYTES));
    let authority = head.uri.authority().map(|authority| authority.as_str());
    if let Some(host) = authority.or_else(|| head.fields.text("host")) {
        span = with_host(
            span,
            cut(canonical_host::without_user(host), MAX_TEXT_BYTES),
        );
    }
    if let Some(user_agent) = head.fields.first("user-agent") {
        let user_agent = &user_agent[..user_agent.len().min(MAX_TEXT_BYTES)];
        // Each byte that is no UTF-8 becomes three.
        let user_agent = String::from_utf8_lossy(user_agent);
        span = span.with_text("user_agent.original", cut(&user_agent, MAX_TEXT_BYTES));
    }
    span
}

/// Adds the host of an authority without a user, and its port if it has one.
fn with_host(span: Span, authority: &str) -> Span {
    let (host, port) = canonical_host::split_port(authority);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let span = span.with_text("server.address", host);
    match port {
        Some(port) => span.with_number("server.port", port.into()),
        None => span,
    }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let long = format!("/{}", "\u{e9}".repeat(MAX_TEXT_BYTES));
        assert_eq!(cut(&long, MAX_TEXT_BYTES).len(), MAX_TEXT_BYTES - 1);
        assert_eq!(cut("/a", MAX_TEXT_BYTES), "/a");
    }
}
