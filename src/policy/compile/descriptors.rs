//! Compiles policies of descriptors: the table that finds them, and the identities that their entries define.

use super::super::decode::PolicyConfig;
use crate::identity::{Settings, custom};
use crate::limit::CustomIdentity;
use crate::route::{DescriptorTable, Route, RouteAction};

/// The table of the routes of descriptors. `None` if two of them match the same ones, which `check` has reported.
pub(super) fn build_table(routes: &[Route]) -> Option<DescriptorTable> {
    let patterns = routes.iter().filter_map(|route| match &route.action {
        RouteAction::Decide(pattern) => Some((route.index, &**pattern)),
        _ => None,
    });
    DescriptorTable::build(patterns).ok()
}

/// Adds the identities that entries of descriptors define. Those that the gateway file defines too keep their source.
pub(super) fn add_entry_identities(settings: &mut Settings, policies: &[PolicyConfig]) {
    let patterns = policies
        .iter()
        .filter_map(|policy| policy.descriptor_pattern());
    for pattern in patterns {
        for entry in pattern.entries() {
            if !pattern.has_open_entry(&entry.key) {
                continue;
            }
            let Some(identity) = CustomIdentity::find(&entry.key) else {
                continue;
            };
            if settings.custom_source(identity).is_none() {
                settings.custom.push(custom::Settings {
                    identity,
                    source: custom::Source::Entry,
                    forwarded_as: None,
                    is_always_read: false,
                });
            }
        }
    }
}
