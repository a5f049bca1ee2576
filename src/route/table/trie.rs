//! The patterns of one host as a trie of path segments.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use http::Method;
use smallvec::SmallVec;

use super::fold::{Folded, fold, is_index};
use crate::route::pattern::{MethodFit, MethodSet, Segment};

/// The path without the slashes at its ends; empty has no segments.
pub(super) fn segments_of(normal_path: &str) -> &str {
    let path = normal_path.strip_prefix('/').unwrap_or(normal_path);
    path.strip_suffix('/').unwrap_or(path)
}

/// The patterns that end in one place: the methods of each, and its place among all patterns.
pub(super) type Leaf = SmallVec<[(MethodSet, usize); 1]>;

#[derive(Clone, Debug)]
pub(super) struct Trie {
    pub(super) nodes: Vec<TrieNode>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TrieNode {
    pub(super) literals: HashMap<Box<str>, u32, BuildHasherDefault<SegmentHasher>>,
    /// The same by what is left of them when they are folded.
    pub(super) folded: HashMap<Folded, SmallVec<[u32; 1]>, BuildHasherDefault<SegmentHasher>>,
    /// Those of them that stand for their folder.
    pub(super) indexes: SmallVec<[u32; 1]>,
    pub(super) one: Option<u32>,
    /// Patterns that end here.
    pub(super) end: Leaf,
    /// Patterns that end here with `**`.
    pub(super) rest: Leaf,
}

/// A short hash, after rustc's. No secret is needed: only policies put segments into the table, so
/// nobody outside can make them collide.
#[derive(Clone, Copy, Default)]
pub(super) struct SegmentHasher(u64);

impl Hasher for SegmentHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let last = rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.write_u64(last);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = self.0.rotate_left(5) ^ word;
        self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        // The map takes its place from the low bits, the product is best in the high ones.
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

pub(super) struct ExactSearch<'r> {
    pub(super) method: &'r Method,
    /// Some pattern takes the path, be it with another method.
    pub(super) path_known: bool,
}

impl ExactSearch<'_> {
    fn pick(&mut self, leaf: &Leaf) -> Option<usize> {
        self.path_known |= !leaf.is_empty();
        let fits = leaf
            .iter()
            .filter_map(|(set, place)| Some((set.fit(self.method)?, *place)));
        fits.min_by_key(|(fit, _): &(MethodFit, usize)| *fit)
            .map(|(_, place)| place)
    }
}

impl Trie {
    pub(super) const ROOT: u32 = 0;

    pub(super) fn node(&self, at: u32) -> Option<&TrieNode> {
        self.nodes.get(at as usize)
    }

    /// Where patterns with these segments are kept.
    pub(super) fn leaf(&mut self, segments: &[Segment]) -> &mut Leaf {
        let mut at = Trie::ROOT as usize;
        let mut rest = false;
        for segment in segments {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let node = &mut self.nodes[at];
            let child = match segment {
                Segment::Literal(text) => *node.literals.entry(text.clone()).or_insert(next),
                Segment::One(_) => *node.one.get_or_insert(next),
                Segment::Rest => {
                    rest = true;
                    break;
                }
            };
            if child == next {
                if let Segment::Literal(text) = segment {
                    node.add_folded(text, child);
                }
                self.nodes.push(TrieNode::default());
            }
            at = child as usize;
        }
        let node = &mut self.nodes[at];
        if rest { &mut node.rest } else { &mut node.end }
    }

    /// Depth is bounded by the longest pattern, and no node is visited twice.
    pub(super) fn find(&self, at: u32, path: &str, search: &mut ExactSearch<'_>) -> Option<usize> {
        let node = self.nodes.get(at as usize)?;
        if path.is_empty() {
            return search.pick(&node.end).or_else(|| search.pick(&node.rest));
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        let literal = node
            .literals
            .get(segment)
            .and_then(|&child| self.find(child, below, search));
        literal
            .or_else(|| node.one.and_then(|child| self.find(child, below, search)))
            .or_else(|| search.pick(&node.rest))
    }

    pub(super) fn each_leaf(&self, at: u32, path: &str, see: &mut impl FnMut(&Leaf)) {
        let Some(node) = self.nodes.get(at as usize) else {
            return;
        };
        see(&node.rest);
        if path.is_empty() {
            see(&node.end);
            return;
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        for child in node
            .literals
            .get(segment)
            .copied()
            .into_iter()
            .chain(node.one)
        {
            self.each_leaf(child, below, see);
        }
    }
}

impl TrieNode {
    /// Adds a literal segment to what other spellings are looked up in.
    fn add_folded(&mut self, literal: &str, child: u32) {
        let folded = fold(literal);
        if is_index(&folded) {
            self.indexes.push(child);
        }
        self.folded.entry(folded).or_default().push(child);
    }
}
