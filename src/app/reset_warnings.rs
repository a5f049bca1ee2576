//! Warns of limits that a reload keeps while their counts begin anew, because the store cannot find the counts under
//! the new settings.

use std::collections::HashMap;

use crate::limit::Rule;
use crate::policy::{Diagnostic, Ruleset, Severity};
use crate::throttle::admission::Admission;

/// The help text of every warning.
const RESET_HELP: &str = "clients may use all of it once more, and gateways with the policy before count apart; \
    give all gateways the same policy at once";

/// Creates a warning for each limit that both configurations have under the same scope and whose counts begin anew. New
/// limits, and renamed ones, get no warning.
pub(super) fn reset_warnings(
    (old_ruleset, old_admission): (&Ruleset, &Admission),
    (new_ruleset, new_admission): (&Ruleset, &Admission),
) -> Vec<Diagnostic> {
    let old_rules = old_ruleset.rules.iter();
    let old_rules_by_scope: HashMap<&str, _> =
        old_rules.map(|rule| (rule.scope.as_str(), rule)).collect();
    let warnings = new_ruleset.rules.iter().filter_map(|new_rule| {
        let old_rule = old_rules_by_scope.get(new_rule.scope.as_str())?;
        let cause = reset_cause((old_rule, old_admission), (new_rule, new_admission))?;
        Some(reset_warning(new_rule, &cause))
    });
    warnings.collect()
}

/// Says why the store cannot find the counts of a limit. `None` if it can, and if the limit is or was one on open
/// requests.
fn reset_cause(
    (old_rule, old_admission): (&Rule, &Admission),
    (new_rule, new_admission): (&Rule, &Admission),
) -> Option<String> {
    let old_limit = old_rule.limit.rate()?;
    let new_limit = new_rule.limit.rate()?;
    if !old_rule.key.is_same(&new_rule.key) {
        return Some(format!(
            "it counts by {}, no longer by {}",
            new_rule.key, old_rule.key
        ));
    }
    let (old_sharing, new_sharing) = (old_admission.plan(old_rule), new_admission.plan(new_rule));
    // A shared store finds counts by the hash of the sharing plan. Without such a store there is no plan: counts in the
    // memory of this gateway are converted to the new settings.
    if old_sharing.map(|sharing| sharing.hash) == new_sharing.map(|sharing| sharing.hash) {
        return None;
    }
    let cause_if_changed = |setting: &str, old: &str, new: &str| {
        (old != new).then(|| format!("{setting} is {new}, no longer {old}"))
    };
    let algorithm_cause = || {
        cause_if_changed(
            "its algorithm",
            old_limit.algorithm.as_str(),
            new_limit.algorithm.as_str(),
        )
    };
    let sharing_cause = || {
        cause_if_changed(
            "`sharing`",
            old_rule.sharing.as_str(),
            new_rule.sharing.as_str(),
        )
    };
    let other_cause =
        || String::from("its windows or what it lends are others, and the store counts by them");
    Some(
        algorithm_cause()
            .or_else(sharing_cause)
            .unwrap_or_else(other_cause),
    )
}

/// Creates the warning, at the line of the file where the limit is written.
fn reset_warning(rule: &Rule, cause: &str) -> Diagnostic {
    let origin = rule.origin.rsplit_once(':');
    let (file, line) = origin.unwrap_or((&rule.origin, ""));
    Diagnostic {
        severity: Severity::Warning,
        file: file.into(),
        line: line.parse().unwrap_or(1),
        column: 1,
        message: format!("counts of `{}` begin anew: {cause}", rule.name.as_str()),
        help: Some(RESET_HELP.to_owned()),
        excerpt: None,
    }
}
