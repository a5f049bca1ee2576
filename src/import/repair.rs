//! Takes out of a draft what the gateway refuses, such as a redirect that leads back to itself. Each part that goes is
//! reported with the message of the check.

use std::collections::HashSet;

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

/// Takes one step for each policy with mistakes: first clients get 503, then the limits and lists go, and at last the policy.
/// A policy of descriptors has no responses, so it goes at once. False if no mistake is in a policy.
pub fn drop_refused(
    draft: &mut ImportDraft,
    mistakes: &[Diagnostic],
    report: &mut ImportReport,
) -> bool {
    let mut touched = HashSet::new();
    let stub = ActionDraft::not_imported("the gateway refuses it");
    for mistake in mistakes {
        let name = mistake.file.strip_prefix("policies/");
        let name = name.and_then(|name| name.strip_suffix(".yaml"));
        let mut routes = draft.routes.iter();
        let Some(index) = routes.position(|route| Some(&*route.name) == name) else {
            continue;
        };
        // Further mistakes of it may be gone with the first one.
        if !touched.insert(mistake.file.clone()) {
            continue;
        }
        let Some(route) = draft.routes.get_mut(index) else {
            continue;
        };
        let note = format!("{REFUSED}{}", mistake.message);
        let (at, source) = (route.origin, route.source.clone());
        if route.descriptor.is_some() {
            draft.routes.remove(index);
            let note = format!("{note}. These descriptors are not limited");
            report.left(at, Concern::Limits, &source, &note);
        } else if route.action != stub {
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
    !touched.is_empty()
}
