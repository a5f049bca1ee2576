//! Finds limits whose counts a reload resets, because the store does not find them under the new policy.

use std::collections::HashMap;

use crate::limit::{Identity, Rule};
use crate::policy::{Diagnostic, Ruleset, Severity};
use crate::throttle::admission::Admission;

const HELP: &str = "clients may use all of it once more, and gateways with the policy before count apart; \
    give all gateways the same policy at once";

/// A warning for each limit whose counts start again.
pub(super) fn warnings(
    (before, old): (&Ruleset, &Admission),
    (after, new): (&Ruleset, &Admission),
) -> Vec<Diagnostic> {
    let previous = before.rules.iter().map(|rule| (rule.scope.as_str(), rule));
    let previous: HashMap<&str, _> = previous.collect();
    let each = after.rules.iter().filter_map(|rule| {
        let was = previous.get(rule.scope.as_str())?;
        let cause = cause((was, old), (rule, new))?;
        Some(warning(rule, &cause))
    });
    each.collect()
}

/// Why the counts are not found; `None` if they are.
fn cause((was, old): (&Rule, &Admission), (is, new): (&Rule, &Admission)) -> Option<String> {
    let (before, after) = (was.limit.rate()?, is.limit.rate()?);
    if was.key != is.key {
        return Some(format!(
            "it counts by {}, no longer by {}",
            identities(&is.key),
            identities(&was.key)
        ));
    }
    let (shared, shares) = (old.plan(was), new.plan(is));
    // Counts of this gateway alone are converted.
    if shared.map(|plan| plan.hash) == shares.map(|plan| plan.hash) {
        return None;
    }
    let changed = |what: &str, before: &str, after: &str| {
        (before != after).then(|| format!("{what} is {after}, no longer {before}"))
    };
    let algorithm = || {
        changed(
            "its algorithm",
            before.algorithm.as_str(),
            after.algorithm.as_str(),
        )
    };
    let sharing = || changed("`sharing`", was.sharing.as_str(), is.sharing.as_str());
    let windows =
        || String::from("its windows or what it lends are others, and the store counts by them");
    Some(algorithm().or_else(sharing).unwrap_or_else(windows))
}

fn identities(key: &[Identity]) -> String {
    let each: Vec<&str> = key.iter().map(|part| part.as_str()).collect();
    each.join(" and ")
}

fn warning(rule: &Rule, cause: &str) -> Diagnostic {
    let place = rule.origin.rsplit_once(':');
    let (file, line) = place.unwrap_or((&rule.origin, ""));
    Diagnostic {
        severity: Severity::Warning,
        file: file.into(),
        line: line.parse().unwrap_or(1),
        column: 1,
        message: format!("counts of `{}` begin anew: {cause}", rule.name.as_str()),
        help: Some(HELP.to_owned()),
        excerpt: None,
    }
}
