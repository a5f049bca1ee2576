//! Takes out of a draft what the gateway refuses, such as a redirect that leads back to itself. Each part that goes is
//! reported with the message of the check.

use super::model::{ActionDraft, ImportDraft, RouteDraft};
use super::report::{Concern, ImportReport};
use crate::policy::Diagnostic;

/// What the notes about refused parts begin with.
pub const REFUSED: &str = "the gateway refuses it: ";

/// Whether a policy limits or denies anybody.
fn has_rules(route: &RouteDraft) -> bool {
    !route.limits.is_empty()
        || !route.deny.is_empty()
        || !route.allow.is_empty()
        || !route.require.is_empty()
}

/// Takes out what the mistakes are in: first what the policies do, so that clients get 503, then whom they limit and deny.
/// Only a policy whose requests cannot be told goes as a whole. False if no mistake is in a policy.
pub fn drop_refused(
    draft: &mut ImportDraft,
    mistakes: &[Diagnostic],
    report: &mut ImportReport,
) -> bool {
    let mut has_changed = false;
    let stub = ActionDraft::not_imported("the gateway refuses it");
    for mistake in mistakes {
        let name = mistake.file.strip_prefix("policies/");
        let name = name.and_then(|name| name.strip_suffix(".yaml"));
        let Some(index) = draft
            .routes
            .iter()
            .position(|route| Some(&*route.name) == name)
        else {
            continue;
        };
        let Some(route) = draft.routes.get_mut(index) else {
            continue;
        };
        has_changed = true;
        let note = format!("{REFUSED}{}", mistake.message);
        let (at, source) = (route.origin, route.source.clone());
        if route.action != stub {
            route.action = stub.clone();
            route.strip = None;
            route.prefix = None;
            route.max_body = None;
            route.fields.clear();
            report.left(
                at,
                Concern::Routing,
                &source,
                &format!("{note}. Clients get 503"),
            );
        } else if has_rules(route) {
            route.limits.clear();
            route.deny.clear();
            route.allow.clear();
            route.require.clear();
            report.left(at, Concern::Limits, &source, &note);
        } else {
            draft.routes.remove(index);
            report.left(at, Concern::Limits, &source, &note);
        }
    }
    has_changed
}
