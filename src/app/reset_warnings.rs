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
    let old_rules: HashMap<&str, _> = old_rules.map(|rule| (rule.scope.as_str(), rule)).collect();
    let warnings = new_ruleset.rules.iter().filter_map(|new_rule| {
        let old_rule = old_rules.get(new_rule.scope.as_str())?;
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
    let (before, new) = (old_rule.limit.rate()?, new_rule.limit.rate()?);
    if !old_rule.key.is_same(&new_rule.key) {
        return Some(format!(
            "it counts by {}, no longer by {}",
            new_rule.key, old_rule.key
        ));
    }
    let (old_sharing, new_sharing) = (old_admission.plan(old_rule), new_admission.plan(new_rule));
    // Only a shared store has a plan. Counts in the memory of this gateway are converted.
    if old_sharing.map(|plan| plan.hash) == new_sharing.map(|plan| plan.hash) {
        return None;
    }
    let changed = |what: &str, before: &str, new: &str| {
        (before != new).then(|| format!("{what} is {new}, no longer {before}"))
    };
    let algorithm = || {
        changed(
            "its algorithm",
            before.algorithm.as_str(),
            new.algorithm.as_str(),
        )
    };
    let sharing = || {
        changed(
            "`sharing`",
            old_rule.sharing.as_str(),
            new_rule.sharing.as_str(),
        )
    };
    let windows =
        || String::from("its windows or what it lends are others, and the store counts by them");
    Some(algorithm().or_else(sharing).unwrap_or_else(windows))
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
