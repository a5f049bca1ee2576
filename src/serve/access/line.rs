//! The line of a request in the access log.

use std::borrow::Cow;
use std::rc::Rc;

use http::Uri;

use super::collector::WorkerLog;
use super::members::{fraction, number, text, word};
use crate::base::clock::Nanos;
use crate::identity::token;
use crate::limit::LimitStanding;
use crate::serve::http1::repeat::{LoggedRefusal, MOST};
use crate::serve::stack::note::RequestNote;
use crate::serve::stack::outcome::RequestOutcome;

/// Logs a request that is over at `now`.
pub(crate) fn log(log: &WorkerLog, note: &RequestNote, now: Nanos) {
    let notable = note.outcome() != RequestOutcome::Admitted
        || matches!(note.limit.get(), Some((_, LimitStanding::Over)));
    log.add(notable, |out| {
        let took = now.since(note.at);
        log.begin_line(out, note.at);
        write_middle_or_repeat(out, note);
        number(out, ",\"seconds\":", took.0 / 1_000_000_000);
        fraction::<6>(out, (took.0 % 1_000_000_000 / 1_000) as u32);
        out.extend_from_slice(b"}\n");
    });
}

/// Writes the part of a line between the times. For a client that is refused again and again it is copied from the last.
fn write_middle_or_repeat(out: &mut Vec<u8>, note: &RequestNote) {
    let refused = note
        .repeated
        .as_ref()
        .filter(|_| note.outcome() == RequestOutcome::Refused);
    let (Some(repeated), Some(who), Some(head)) = (refused, note.who.get(), &note.head) else {
        return write_middle(out, note);
    };
    let facts = (
        note.status(),
        note.sent(),
        note.limit.get(),
        note.alone.get(),
    );
    let mut last = repeated.logged.borrow_mut();
    if let Some(last) = &*last
        && Rc::ptr_eq(&last.head, head)
        && Rc::ptr_eq(&last.who, who)
        && last.facts == facts
    {
        return out.extend_from_slice(&last.text);
    }
    let start = out.len();
    write_middle(out, note);
    let text = &out[start..];
    *last = (text.len() <= MOST).then(|| LoggedRefusal {
        head: head.clone(),
        who: who.clone(),
        facts,
        text: text.into(),
    });
}

fn write_middle(out: &mut Vec<u8>, note: &RequestNote) {
    let generation = &*note.generation;
    let ruleset = &generation.ruleset;
    match note.address() {
        Some(known) => word(out, ",\"ip\":", known),
        None => word(out, ",\"ip\":", &note.ip().to_string()),
    }
    if let Some(user) = note.user() {
        text(out, ",\"user\":", user);
    }
    if let Some(reason) = note.who.get().and_then(|who| who.credential_fault()) {
        word(out, ",\"credential\":", reason.as_str());
    }
    if let Some(method) = &note.method {
        word(out, ",\"method\":", method.as_str());
    }
    if let Some(head) = &note.head {
        let source = ruleset.identity.token.as_ref();
        text(out, ",\"target\":", &token::mask(source, target(&head.uri)));
    }
    if let Some(path) = &note.path {
        text(out, ",\"target\":", path);
    }
    if let Some(route) = note.route.get() {
        out.extend_from_slice(&generation.routes[route].logged);
    }
    number(out, ",\"status\":", note.status().into());
    word(out, ",\"outcome\":", note.outcome().as_str());
    if let Some((rule, standing)) = note.limit.get() {
        out.extend_from_slice(&generation.rules[rule].logged);
        word(out, ",\"standing\":", standing.as_str());
    }
    if note.alone.get() {
        word(out, ",\"store\":", "away");
    }
    if let Some(reason) = note.reason.get() {
        text(out, ",\"reason\":", reason);
    }
    if let Some(server) = &*note.server.borrow() {
        text(out, ",\"server\":", server);
    }
    let costs = note
        .holdings
        .borrow()
        .as_ref()
        .and_then(|holdings| holdings.costs.clone());
    if let Some((units, unknown)) = costs.and_then(|costs| costs.charged()) {
        number(out, ",\"cost\":", units.into());
        if unknown {
            out.extend_from_slice(b",\"cost_unknown\":true");
        }
    }
    number(out, ",\"bytes\":", note.sent());
}

/// A target as it came.
fn target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(target) if uri.authority().is_none() => Cow::Borrowed(target.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}
