//! Policies that match the same descriptors: which one holds may differ from ratelimit.

use super::tree::DescriptorNode;
use super::{DomainReader, KeyedPolicy};
use crate::import::model::EntryDraft;
use crate::import::report::Concern;

/// Maximum number of nodes with several values, below one other, that nodes are compared with.
const MAX_SIBLINGS: usize = 1_000;

impl DomainReader<'_> {
    /// Notes nodes of one key of which ratelimit takes another one than the most specific.
    pub(super) fn note_siblings(&mut self, nodes: &[DescriptorNode<'_>]) {
        let broad: Vec<(usize, &DescriptorNode<'_>)> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !matches!(node.value, EntryDraft::Exact(_)))
            .take(MAX_SIBLINGS)
            .collect();
        for (index, node) in nodes.iter().enumerate() {
            let cost = broad.len() as u64;
            match self.comparisons.checked_sub(cost) {
                Some(rest) => self.comparisons = rest,
                None => {
                    let note = "there are too many nodes to compare, so compare its limit with those of nodes with `*` or without a value";
                    self.report
                        .changed(node.origin(), Concern::Limits, &node.text(), note);
                    continue;
                }
            }
            for (_, other) in broad.iter().filter(|(_, other)| other.key == node.key) {
                let is_narrower = match (&node.value, &other.value) {
                    (EntryDraft::Exact(_) | EntryDraft::Prefix(_), EntryDraft::Any) => true,
                    (EntryDraft::Exact(values), EntryDraft::Prefix(prefix)) => values
                        .iter()
                        .any(|value| value.starts_with(prefix.as_str())),
                    (EntryDraft::Prefix(own), EntryDraft::Prefix(prefix)) => {
                        own != prefix && own.starts_with(prefix.as_str())
                    }
                    _ => false,
                };
                if is_narrower && other.has_values_below {
                    let note = format!(
                        "ratelimit takes this node for its values; here a policy below `{}` with more exact values wins, so compare \
                         both limits",
                        other.text()
                    );
                    self.report
                        .changed(node.origin(), Concern::Limits, &node.text(), &note);
                }
                if is_narrower && node.lacks_limit_of(other, &mut self.comparisons) {
                    let note = format!(
                        "limits of `{}` hold for descriptors of this value too, where it has none; ratelimit does not limit these",
                        other.text()
                    );
                    self.report
                        .changed(node.origin(), Concern::Limits, &node.text(), &note);
                }
            }
            let is_shadowed = |(place, earlier): &&(usize, &DescriptorNode<'_>)| {
                let is_within = match (&node.value, &earlier.value) {
                    (EntryDraft::Prefix(own), EntryDraft::Prefix(prefix)) => {
                        own.starts_with(prefix.as_str())
                    }
                    _ => false,
                };
                *place < index && earlier.key == node.key && is_within
            };
            if let Some((_, earlier)) = broad.iter().find(is_shadowed) {
                let note = format!(
                    "ratelimit takes the earlier `{}` for its values; here the longer prefix wins, so compare both limits",
                    earlier.text()
                );
                self.report
                    .changed(node.origin(), Concern::Limits, &node.text(), &note);
            }
        }
    }

    /// Reports policies of the same keys in another order, or of another file, that match the same descriptors.
    pub(super) fn note_overlaps(&mut self, own: KeyedPolicy) {
        let keys = own.entries.iter().map(|(key, _)| key.clone()).collect();
        let others = self.by_keys.entry((self.domain.clone(), keys)).or_default();
        for other in others.iter().filter(|other| other.order != own.order) {
            let Some(rest) = self.comparisons.checked_sub(1) else {
                let note = "there are too many policies to compare; one with the same keys may win over it";
                self.report
                    .changed(own.at, Concern::Limits, &own.text, note);
                break;
            };
            self.comparisons = rest;
            let mut pairs = own.entries.iter().zip(&other.entries);
            if !pairs.all(|((_, own), (_, other))| has_common_value(own, other)) {
                continue;
            }
            let sides = [(&own, other), (other, &own)];
            for (side, rival) in sides {
                let note = format!(
                    "{}:{} has the same keys and some of the same values, in another order or file; only the policy with more exact values holds, so compare both limits",
                    self.report.path(rival.at),
                    rival.at.line
                );
                self.report
                    .changed(side.at, Concern::Limits, &side.text, &note);
            }
        }
        others.push(own);
    }
}

/// Whether a value is matched by both.
fn has_common_value(own: &EntryDraft, other: &EntryDraft) -> bool {
    match (own, other) {
        (EntryDraft::Any, _) | (_, EntryDraft::Any) => true,
        (EntryDraft::Exact(own), EntryDraft::Exact(other)) => own == other,
        (EntryDraft::Exact(values), EntryDraft::Prefix(prefix))
        | (EntryDraft::Prefix(prefix), EntryDraft::Exact(values)) => {
            values.iter().any(|value| value.starts_with(prefix))
        }
        (EntryDraft::Prefix(own), EntryDraft::Prefix(other)) => {
            own.starts_with(other) || other.starts_with(own)
        }
    }
}
