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
    /// Whether all values of a prefix count together.
    pub shares_threshold: bool,
    /// The whole node.
    pub source: InputValue<'n>,
    /// The nodes below.
    pub children: Vec<DescriptorNode<'n>>,
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
        DescriptorNode {
            key: source.text_of("key").unwrap_or(""),
            value,
            shares_threshold: source
                .get("share_threshold")
                .is_some_and(InputValue::is_true),
            source,
            children: children
                .flat_map(InputValue::items)
                .map(DescriptorNode::read)
                .collect(),
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
    pub fn lacks_limit_of(&self, other: &DescriptorNode<'_>) -> bool {
        let has_limit = |node: &DescriptorNode<'_>| node.source.get("rate_limit").is_some();
        if has_limit(other) && !has_limit(self) {
            return true;
        }
        other.children.iter().any(|theirs| {
            let mut own = self.children.iter().filter(|own| own.key == theirs.key);
            match own.next() {
                Some(own) => own.lacks_limit_of(theirs),
                None => theirs.has_any_limit(),
            }
        })
    }

    /// Whether an entry below has a value of its own.
    pub fn has_values_below(&self) -> bool {
        self.children
            .iter()
            .any(|child| child.value != EntryDraft::Any || child.has_values_below())
    }

    fn has_any_limit(&self) -> bool {
        self.source.get("rate_limit").is_some()
            || self.children.iter().any(DescriptorNode::has_any_limit)
    }
}
