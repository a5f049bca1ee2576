//! The tree of descriptors: each node is an entry, and a path from the root is a descriptor.

use crate::import::documents::InputValue;
use crate::import::model::EntryDraft;
use crate::import::report::Origin;

/// A node of the tree.
#[derive(Debug)]
pub struct DescriptorNode<'n> {
    /// The key of the entry.
    pub key: &'n str,
    /// Its value.
    pub value: EntryDraft,
    /// Whether all values of a wildcard count together.
    pub shares_threshold: bool,
    /// The whole node.
    pub source: InputValue<'n>,
    /// The nodes below.
    pub children: Vec<DescriptorNode<'n>>,
    /// Whether an entry below has a value of its own.
    pub has_values_below: bool,
    /// Whether the node, or one below, has a limit.
    has_any_limit: bool,
}

/// Whether a flag is set, in any spelling of YAML 1.1 that ratelimit reads.
pub fn is_set(value: InputValue<'_>) -> bool {
    matches!(value.text(), Some("true" | "True" | "TRUE"))
}

impl<'n> DescriptorNode<'n> {
    /// Reads a node and those below. The depth is bounded by that of documents.
    pub fn read(source: InputValue<'n>) -> DescriptorNode<'n> {
        let value = match source.text_of("value").unwrap_or("") {
            "" | "*" => EntryDraft::Any,
            text => match text.strip_suffix('*') {
                Some(prefix) => EntryDraft::Prefix(prefix.to_owned()),
                None => EntryDraft::Exact(vec![text.to_owned()]),
            },
        };
        let children = source.get("descriptors").into_iter();
        let children: Vec<DescriptorNode<'n>> = children
            .flat_map(InputValue::items)
            .map(DescriptorNode::read)
            .collect();
        let has_limit = source.get("rate_limit").is_some();
        DescriptorNode {
            key: source.text_of("key").unwrap_or(""),
            value,
            // Only a value with `*` can share; a node without a value counts each.
            shares_threshold: source
                .text_of("value")
                .is_some_and(|value| value.ends_with('*'))
                && source.get("share_threshold").is_some_and(is_set),
            source,
            has_values_below: children
                .iter()
                .any(|child| child.value != EntryDraft::Any || child.has_values_below),
            has_any_limit: has_limit || children.iter().any(|child| child.has_any_limit),
            children,
        }
    }

    /// Where the node stands.
    pub fn origin(&self) -> Origin {
        self.source.origin()
    }

    /// The node in one line.
    pub fn text(&self) -> String {
        match self.source.text_of("value") {
            Some(value) => format!("key {} value {value}", self.key),
            None => format!("key {}", self.key),
        }
    }

    /// Whether a descriptor with one of the paths of keys of `other` leads to a node with a limit there, but to none here.
    ///
    /// `work` bounds the comparisons; without any left the answer is that it does.
    pub fn lacks_limit_of(&self, other: &DescriptorNode<'_>, work: &mut u64) -> bool {
        if !other.has_any_limit {
            return false;
        }
        let cost = 1 + self.children.len() as u64 * other.children.len() as u64;
        match work.checked_sub(cost) {
            Some(rest) => *work = rest,
            None => return true,
        }
        let has_limit = |node: &DescriptorNode<'_>| node.source.get("rate_limit").is_some();
        if has_limit(other) && !has_limit(self) {
            return true;
        }
        other.children.iter().any(|theirs| {
            let mut own = self.children.iter().filter(|own| own.key == theirs.key);
            match own.next() {
                Some(own) => own.lacks_limit_of(theirs, work),
                None => theirs.has_any_limit,
            }
        })
    }
}
