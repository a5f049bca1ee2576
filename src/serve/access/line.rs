//! Writes the line of a request in the access log, as JSON.
//!
//! The line begins and ends with times. The text between them is copied for a client that is refused again and again.

use std::borrow::Cow;
use std::rc::Rc;

use http::Uri;

use super::collector::WorkerLog;
use super::members::{push_fraction, push_number, push_plain, push_text};
use crate::base::clock::Nanos;
use crate::identity::token;
use crate::limit::LimitStanding;
use crate::serve::http1::repeat::{LoggedRefusal, MAX_CACHED_BYTES};
use crate::serve::stack::context::RequestContext;
use crate::serve::stack::outcome::RequestOutcome;

/// Logs a request that ended at `now`.
pub(crate) fn log_request(log: &WorkerLog, note: &RequestContext, now: Nanos) {
    let is_notable = note.outcome() != RequestOutcome::Admitted
        || matches!(note.deciding_limit.get(), Some((_, LimitStanding::Over)));
    log.add_line(is_notable, |out| {
        let duration = now.since(note.arrived_at);
        log.begin_line(out, note.arrived_at);
        write_middle_or_repeat(out, note);
        push_number(out, ",\"seconds\":", duration.0 / 1_000_000_000);
        push_fraction::<6>(out, (duration.0 % 1_000_000_000 / 1_000) as u32);
        out.extend_from_slice(b"}\n");
    });
}

/// Writes the part of a line between the times, or copies it from the client's last refusal if nothing differs.
fn write_middle_or_repeat(out: &mut Vec<u8>, note: &RequestContext) {
    let refused = note
        .repeated
        .as_ref()
        .filter(|_| note.outcome() == RequestOutcome::Refused);
    let (Some(repeated), Some(client), Some(head)) = (refused, note.client.get(), &note.head)
    else {
        return write_middle(out, note);
    };
    let facts = (
        note.status(),
        note.sent_bytes(),
        note.deciding_limit.get(),
        note.without_store.get(),
    );
    let mut last = repeated.logged.borrow_mut();
    if let Some(last) = &*last
        && Rc::ptr_eq(&last.head, head)
        && Rc::ptr_eq(&last.client, client)
        && last.facts == facts
    {
        return out.extend_from_slice(&last.text);
    }
    let start = out.len();
    write_middle(out, note);
    let text = &out[start..];
    *last = (text.len() <= MAX_CACHED_BYTES).then(|| LoggedRefusal {
        head: head.clone(),
        client: client.clone(),
        facts,
        text: text.into(),
    });
}

fn write_middle(out: &mut Vec<u8>, note: &RequestContext) {
    let generation = &*note.generation;
    let ruleset = &generation.ruleset;
    match note.connection_address() {
        Some(address) => push_plain(out, ",\"ip\":", address),
        None => push_plain(out, ",\"ip\":", &note.ip().to_string()),
    }
    if let Some(user) = note.user() {
        push_text(out, ",\"user\":", user);
    }
    if let Some(reason) = note
        .client
        .get()
        .and_then(|client| client.credential_fault())
    {
        push_plain(out, ",\"credential\":", reason.as_str());
    }
    if let Some(method) = &note.method {
        push_plain(out, ",\"method\":", method.as_str());
    }
    if let Some(head) = &note.head {
        let source = ruleset.identity.token.as_ref();
        let target = token::mask_credential(source, received_target(&head.uri));
        push_text(out, ",\"target\":", &target);
    }
    if let Some(path) = &note.path {
        push_text(out, ",\"target\":", path);
    }
    if let Some(route) = note.route.get() {
        out.extend_from_slice(&generation.routes[route].log_members);
    }
    push_number(out, ",\"status\":", note.status().into());
    push_plain(out, ",\"outcome\":", note.outcome().as_str());
    if let Some((rule, standing)) = note.deciding_limit.get() {
        out.extend_from_slice(&generation.rules[rule].log_members);
        push_plain(out, ",\"standing\":", standing.as_str());
    }
    if note.without_store.get() {
        push_plain(out, ",\"store\":", "away");
    }
    if let Some(reason) = note.reason.get() {
        push_text(out, ",\"reason\":", reason);
    }
    if let Some(server) = &*note.server.borrow() {
        push_text(out, ",\"server\":", server);
    }
    let costs = note
        .holdings
        .borrow()
        .as_ref()
        .and_then(|holdings| holdings.costs.clone());
    if let Some(charged) = costs.and_then(|costs| costs.charged()) {
        push_number(out, ",\"cost\":", charged.units.into());
        if charged.is_estimate {
            out.extend_from_slice(b",\"cost_unknown\":true");
        }
    }
    push_number(out, ",\"bytes\":", note.sent_bytes());
}

/// The request target as the client sent it.
fn received_target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(target) if uri.authority().is_none() => Cow::Borrowed(target.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}
