//! Writes the line of a request in the access log: as JSON here, in Apache's format in `combined.rs`.
//! `serve/stack/observe.rs` calls it when a request ends.
//!
//! The line begins and ends with times. The text between the times is copied where a connection repeats a request that
//! is refused or whose client is banned.

use std::rc::Rc;

use super::combined;
use super::listed_members;
use super::logged_target::logged_target;
use super::members::{push_fraction, push_number, push_plain_text, push_text};
use super::worker_log::{NANOS_PER_SECOND, WorkerLog};
use crate::base::clock::Nanos;
use crate::limit::LimitStanding;
use crate::policy::settings::LogFormat;
use crate::serve::http1::repeat_cache::{LoggedFacts, LoggedRefusal, MAX_CACHED_BYTES};
use crate::serve::stack::request_context::RequestContext;
use crate::serve::stack::request_outcome::RequestOutcome;

/// Nanoseconds in a microsecond, the precision of durations in the log.
const NANOS_PER_MICRO: u64 = 1_000;

/// Logs a request that ended at `now`, if the settings of the log select it.
pub(crate) fn log_request(log: &WorkerLog, context: &RequestContext, now: Nanos) {
    let is_served = matches!(
        context.outcome(),
        RequestOutcome::Admitted | RequestOutcome::Usage
    );
    let is_notable =
        !is_served || matches!(context.deciding_limit.get(), Some((_, LimitStanding::Over)));
    log.add_line(is_notable, |out| {
        if log.format() == LogFormat::Combined {
            return combined::write_line(out, log, context);
        }
        let duration = now.since(context.arrived_at);
        log.begin_line(out, context.arrived_at);
        write_or_copy_middle(out, context);
        if let Some(request_id) = context.request_id() {
            push_plain_text(out, ",\"request_id\":", request_id.as_str());
        }
        if let Some(traced) = context.traced_request() {
            let trace_id = u128::from_be_bytes(traced.id.trace_id);
            push_plain_text(out, ",\"trace_id\":", &format!("{trace_id:032x}"));
        }
        if !log.fields().is_empty() {
            listed_members::write(out, log.fields(), context);
        }
        push_number(out, ",\"seconds\":", duration.0 / NANOS_PER_SECOND);
        let micros = duration.0 % NANOS_PER_SECOND / NANOS_PER_MICRO;
        push_fraction::<6>(out, micros as u32);
        out.extend_from_slice(b"}\n");
    });
}

/// Writes the part of a line between the times, or copies it from the last refusal on the connection if nothing
/// differs. What is written for a refusal is kept for the next one, up to [`MAX_CACHED_BYTES`].
fn write_or_copy_middle(out: &mut Vec<u8>, context: &RequestContext) {
    let refused_fields = context.repeated_fields.as_ref().filter(|_| {
        let outcome = context.outcome();
        matches!(outcome, RequestOutcome::Refused | RequestOutcome::Banned)
    });
    let (Some(repeated_fields), Some(client), Some(head)) =
        (refused_fields, context.client.get(), &context.head)
    else {
        return write_middle(out, context);
    };
    let facts = LoggedFacts {
        outcome: context.outcome(),
        status: context.status(),
        sent_bytes: context.sent_bytes(),
        deciding_limit: context.deciding_limit.get(),
        is_without_store: context.is_without_store.get(),
    };
    let mut logged_refusal = repeated_fields.logged_refusal.borrow_mut();
    if let Some(last_refusal) = &*logged_refusal
        && Rc::ptr_eq(&last_refusal.head, head)
        && Rc::ptr_eq(&last_refusal.client, client)
        && last_refusal.facts == facts
    {
        return out.extend_from_slice(&last_refusal.text);
    }
    let middle_start = out.len();
    write_middle(out, context);
    let text = &out[middle_start..];
    *logged_refusal = (text.len() <= MAX_CACHED_BYTES).then(|| LoggedRefusal {
        head: head.clone(),
        client: client.clone(),
        facts,
        text: text.into(),
    });
}

/// Writes the part of a line between the times.
fn write_middle(out: &mut Vec<u8>, context: &RequestContext) {
    let generation = &*context.generation;
    match context.connection_address() {
        Some(address) => push_plain_text(out, ",\"ip\":", address),
        None => push_plain_text(out, ",\"ip\":", &context.ip().to_string()),
    }
    if let Some(user) = context.user() {
        push_text(out, ",\"user\":", user);
    }
    if let Some(reason) = context
        .client
        .get()
        .and_then(|client| client.credential_fault())
    {
        push_plain_text(out, ",\"credential\":", reason.as_str());
    }
    if let Some(method) = &context.method {
        push_plain_text(out, ",\"method\":", method.as_str());
    }
    if let Some(target) = logged_target(context) {
        push_text(out, ",\"target\":", &target);
    }
    if let Some(route_index) = context.route_index.get() {
        out.extend_from_slice(&generation.counters_by_route[route_index].log_members);
    }
    push_number(out, ",\"status\":", context.status().into());
    push_plain_text(out, ",\"outcome\":", context.outcome().as_str());
    if let Some((rule_index, standing)) = context.deciding_limit.get() {
        out.extend_from_slice(&generation.counters_by_rule[rule_index].log_members);
        push_plain_text(out, ",\"standing\":", standing.as_str());
    }
    if context.is_without_store.get() {
        push_plain_text(out, ",\"store\":", "away");
    }
    if let Some(reason) = context.reason.get() {
        push_text(out, ",\"reason\":", reason);
    }
    if let Some(server_name) = context.server_name.take() {
        push_text(out, ",\"server\":", &server_name);
    }
    let costs = context
        .holdings
        .borrow()
        .as_ref()
        .and_then(|holdings| holdings.costs.clone());
    if let Some(charged_cost) = costs.and_then(|costs| costs.charged()) {
        push_number(out, ",\"cost\":", charged_cost.units.into());
        if charged_cost.is_estimate {
            out.extend_from_slice(b",\"cost_unknown\":true");
        }
    }
    push_number(out, ",\"bytes\":", context.sent_bytes());
}
