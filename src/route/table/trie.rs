//! Stores the patterns of one host in a trie of path segments, and finds the one that takes a path as it is spelled.
//!
//! Searches by other spellings are in [`super::readings`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use http::Method;
use smallvec::SmallVec;

use super::fold::{FoldedSegment, fold_segment, is_index_document};
use crate::route::pattern::{MethodFit, MethodSet, Segment};

/// The segments of a path: the text without the slash at each end. An empty text has no segments.
pub(super) fn segments_of(normal_path: &str) -> &str {
    let path = normal_path.strip_prefix('/').unwrap_or(normal_path);
    path.strip_suffix('/').unwrap_or(path)
}

/// The patterns with one path.
pub(super) type Leaf = SmallVec<[LeafPattern; 1]>;

/// One of the patterns with the same path.
#[derive(Clone, Debug)]
pub(super) struct LeafPattern {
    pub(super) methods: MethodSet,
    /// The index of the pattern's route, as [`super::RouteTable::build`] was given it.
    pub(super) index: usize,
}

/// The index of a node in [`Trie::nodes`].
pub(super) type NodeIndex = u32;

/// The patterns of one host.
#[derive(Clone, Debug)]
pub(super) struct Trie {
    /// All nodes; the first one is the root.
    pub(super) nodes: Vec<TrieNode>,
}

/// The patterns that begin with the same segments.
#[derive(Clone, Debug, Default)]
pub(super) struct TrieNode {
    /// The children by literal segment.
    pub(super) literal_children: HashMap<Box<str>, NodeIndex, BuildHasherDefault<SegmentHasher>>,
    /// The same children as in `literal_children`, by folded segment.
    pub(super) folded_children:
        HashMap<FoldedSegment, SmallVec<[NodeIndex; 1]>, BuildHasherDefault<SegmentHasher>>,
    /// The children of `literal_children` whose segment names a folder's index.
    pub(super) index_documents: SmallVec<[NodeIndex; 1]>,
    /// The child by any one segment.
    pub(super) any_segment: Option<NodeIndex>,
    /// The patterns whose path ends at this node.
    pub(super) end_leaf: Leaf,
    /// The patterns whose path ends at this node with `**`.
    pub(super) rest_leaf: Leaf,
}

/// The factor of rustc's FxHash: 2^64 divided by pi.
const HASH_FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// A short hash, after rustc's FxHash. It needs no secret: only policies put segments into the table, so no client can make
/// them collide.
#[derive(Clone, Copy, Default)]
pub(super) struct SegmentHasher(u64);

impl Hasher for SegmentHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, remainder) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let last_word = remainder
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.write_u64(last_word);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = self.0.rotate_left(5) ^ word;
        self.0 = mixed.wrapping_mul(HASH_FACTOR);
    }

    fn finish(&self) -> u64 {
        // The map uses the low bits, and a product mixes its high bits best.
        self.0.rotate_left(26)
    }
}

impl Default for Trie {
    fn default() -> Trie {
        Trie {
            nodes: vec![TrieNode::default()],
        }
    }
}

/// A search for the pattern that takes a path as it is spelled.
pub(super) struct ExactSearch<'r> {
    pub(super) method: &'r Method,
    /// Whether some pattern takes the path, with this method or another one. The search sets it.
    pub(super) has_path: bool,
}

impl ExactSearch<'_> {
    /// The index of the pattern in `leaf` that takes the method most specifically; `None` if none takes it.
    fn choose_pattern(&mut self, leaf: &Leaf) -> Option<usize> {
        self.has_path |= !leaf.is_empty();
        let fits = leaf
            .iter()
            .filter_map(|pattern| Some((pattern.methods.fit(self.method)?, pattern.index)));
        fits.min_by_key(|(fit, _): &(MethodFit, usize)| *fit)
            .map(|(_, index)| index)
    }
}

impl Trie {
    /// The index of the root.
    pub(super) const ROOT: NodeIndex = 0;

    /// The node with this index.
    pub(super) fn node(&self, index: NodeIndex) -> Option<&TrieNode> {
        self.nodes.get(index as usize)
    }

    /// The leaf of the patterns with these segments. Missing nodes are created.
    pub(super) fn leaf_mut(&mut self, segments: &[Segment]) -> &mut Leaf {
        let mut index = Trie::ROOT as usize;
        let mut ends_with_rest = false;
        for segment in segments {
            let new_index = NodeIndex::try_from(self.nodes.len()).unwrap_or(NodeIndex::MAX);
            let node = &mut self.nodes[index];
            let child = match segment {
                Segment::Literal(text) => *node
                    .literal_children
                    .entry(text.clone())
                    .or_insert(new_index),
                Segment::One(_) => *node.any_segment.get_or_insert(new_index),
                Segment::Rest => {
                    ends_with_rest = true;
                    break;
                }
            };
            if child == new_index {
                if let Segment::Literal(text) = segment {
                    node.add_folded_child(text, child);
                }
                self.nodes.push(TrieNode::default());
            }
            index = child as usize;
        }
        let node = &mut self.nodes[index];
        match ends_with_rest {
            true => &mut node.rest_leaf,
            false => &mut node.end_leaf,
        }
    }

    /// Finds the most specific pattern below a node that takes `path`; `None` if none does. The longest pattern bounds the
    /// depth, and no node is visited twice.
    pub(super) fn find(
        &self,
        index: NodeIndex,
        path: &str,
        search: &mut ExactSearch<'_>,
    ) -> Option<usize> {
        let node = self.node(index)?;
        if path.is_empty() {
            return search
                .choose_pattern(&node.end_leaf)
                .or_else(|| search.choose_pattern(&node.rest_leaf));
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        let literal_route = node
            .literal_children
            .get(segment)
            .and_then(|&child| self.find(child, below, search));
        literal_route
            .or_else(|| {
                let child = node.any_segment?;
                self.find(child, below, search)
            })
            .or_else(|| search.choose_pattern(&node.rest_leaf))
    }

    /// Calls `on_leaf` with all leaves below a node whose patterns take `path` with some method.
    pub(super) fn visit_leaves(
        &self,
        index: NodeIndex,
        path: &str,
        on_leaf: &mut impl FnMut(&Leaf),
    ) {
        let Some(node) = self.node(index) else {
            return;
        };
        on_leaf(&node.rest_leaf);
        if path.is_empty() {
            on_leaf(&node.end_leaf);
            return;
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        for child in node
            .literal_children
            .get(segment)
            .copied()
            .into_iter()
            .chain(node.any_segment)
        {
            self.visit_leaves(child, below, on_leaf);
        }
    }
}

impl TrieNode {
    /// Adds the child of a literal segment to the indexes by other spellings.
    fn add_folded_child(&mut self, literal: &str, child: NodeIndex) {
        let folded = fold_segment(literal);
        if is_index_document(&folded) {
            self.index_documents.push(child);
        }
        self.folded_children.entry(folded).or_default().push(child);
    }
}
