//! Imports the configuration of envoyproxy/ratelimit: domains with trees of descriptors. Each node with a limit becomes a
//! policy for the descriptors of its path.
//!
//! A limit of ratelimit counts in windows that begin at multiples of the unit since 1970, whatever was refused before
//! (`base_limiter.go`). A month has 30 days there and a year 365 (`utilities.go`).

use std::collections::HashMap;

use super::documents::{InputValue, read_all_documents};
use super::error::ImportError;
use super::files::{InputFile, MAX_ROUTES};
use super::model::{
    AlgorithmDraft, AmountDraft, DescriptorDraft, EntryDraft, ImportDraft, LimitDraft,
    LimitUseDraft, RateDraft, RouteDraft,
};
use super::report::{Concern, ImportReport, Origin};
use crate::identity::ADDRESS_KEYS;
use crate::route::descriptor::MAX_ENTRIES;
use tree::{DescriptorNode, is_set};

mod overlaps;
mod tree;

/// Where the gateway answers questions about descriptors.
const ADDRESS: &str = "127.0.0.1:8081";
/// Maximum length of keys, values and domains in bytes.
const MAX_TEXT_BYTES: usize = 255;
/// Maximum number of comparisons of nodes, and of policies.
const MAX_COMPARISONS: u64 = 2_000_000;
/// Maximum number of keys that limits count by.
const MAX_IDENTITIES: usize = 40;
/// Words that mean something else in the key of a limit.
const RESERVED_WORDS: [&str; 5] = ["everyone", "route", "or", "and", "preflight"];

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is no YAML and no JSON.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let documents = read_all_documents(files)?;
    let mut reader = DomainReader {
        draft,
        report,
        domain: String::new(),
        seen: HashMap::new(),
        by_keys: HashMap::new(),
        comparisons: MAX_COMPARISONS,
        root: 0,
        identities: Vec::new(),
    };
    for document in &documents {
        reader.read_document(document.root());
    }
    draft.decide_grpc = Some(ADDRESS.into());
    report.note(format!(
        "Envoy asks the gateway at {ADDRESS}: name it as the cluster of `rate_limit_service`, with HTTP/2."
    ));
    report.note("The order of the entries of a descriptor does not matter here; ratelimit limits them in the order of its tree only.");
    report.note("Descriptors that no policy matches are admitted, as in ratelimit.");
    report.note("Several gateways count for themselves until `store: redis://HOST:6379` is in the gateway file. Counts of ratelimit are not taken over.");
    Ok(())
}

/// Reads domains.
struct DomainReader<'r> {
    draft: &'r mut ImportDraft,
    report: &'r mut ImportReport,
    domain: String,
    /// Where a descriptor has a policy.
    seen: HashMap<(String, Vec<(String, EntryDraft)>), Origin>,
    /// Policies by their domain and the sorted keys of their entries.
    by_keys: HashMap<(String, Vec<String>), Vec<KeyedPolicy>>,
    /// How many comparisons of nodes and policies are left.
    comparisons: u64,
    /// The number of the document.
    root: usize,
    /// Keys that limits count by.
    identities: Vec<String>,
}

/// A policy, to be compared with others of the same keys.
struct KeyedPolicy {
    /// The keys in the order of the tree, and the root that they stand below.
    order: (usize, Vec<String>),
    /// The entries, sorted by their keys.
    entries: Vec<(String, EntryDraft)>,
    at: Origin,
    text: String,
}

impl DomainReader<'_> {
    fn read_document(&mut self, root: InputValue<'_>) {
        let domain = root.text_of("domain").unwrap_or("");
        if !is_text(domain) {
            let note = "it has no `domain` of 1 to 255 bytes";
            return self
                .report
                .left(root.origin(), Concern::Limits, "document", note);
        }
        domain.clone_into(&mut self.domain);
        self.root += 1;
        for (key, at, value) in root.entries() {
            let text = format!("{key}: {}", value.text().unwrap_or(""));
            match key {
                "domain" => self.report.taken(at, Concern::Routing, &text, ""),
                "descriptors" => self.report.taken(at, Concern::Other, "descriptors", ""),
                _ => self
                    .report
                    .left(at, Concern::Other, &text, "it is not read"),
            }
        }
        let nodes = root
            .get("descriptors")
            .into_iter()
            .flat_map(InputValue::items);
        let nodes: Vec<DescriptorNode<'_>> = nodes.map(DescriptorNode::read).collect();
        self.read_nodes(&nodes, &[]);
    }

    fn read_nodes<'n>(&mut self, nodes: &[DescriptorNode<'n>], above: &[&DescriptorNode<'n>]) {
        self.note_siblings(nodes);
        for node in nodes {
            if self.draft.routes.len() > MAX_ROUTES {
                return;
            }
            let mut path = above.to_vec();
            path.push(node);
            self.read_node(node, &path);
            self.read_nodes(&node.children, &path);
        }
    }

    fn read_node(&mut self, node: &DescriptorNode<'_>, path: &[&DescriptorNode<'_>]) {
        let (at, text) = (node.origin(), node.text());
        self.report.taken(at, Concern::Routing, &text, "");
        for (key, at, value) in node.source.entries() {
            let text = format!("{key}: {}", value.text().unwrap_or(""));
            match key {
                "key" | "value" | "rate_limit" | "descriptors" => {}
                "shadow_mode" => {
                    let limit = node.source.get("rate_limit");
                    let has_limit =
                        limit.is_some_and(|limit| !limit.get("unlimited").is_some_and(is_set));
                    let note = match (is_set(value), has_limit) {
                        (true, true) => "as `mode: shadow`",
                        (true, false) => "without a limit it does nothing, as in ratelimit",
                        (false, _) => "",
                    };
                    self.report.taken(at, Concern::Limits, "shadow_mode", note);
                }
                "share_threshold" if node.shares_threshold => {
                    let note = "all values of the wildcard count together";
                    self.report.taken(at, Concern::Limits, &text, note);
                }
                "share_threshold" if is_set(value) => {
                    let note = "it holds only for a value with `*`";
                    self.report.changed(at, Concern::Limits, &text, note);
                }
                "share_threshold" => self.report.taken(at, Concern::Limits, &text, ""),
                "detailed_metric" | "value_to_metric" => {
                    let note =
                        "counters of each limit, and the keys with most requests, are kept always";
                    self.report.taken(at, Concern::Other, &text, note);
                }
                "quota_mode" if is_set(value) => {
                    let note = "the limit refuses requests, which is stricter";
                    self.report.changed(at, Concern::Limits, &text, note);
                }
                "quota_mode" => self.report.taken(at, Concern::Limits, &text, ""),
                _ => self
                    .report
                    .left(at, Concern::Other, &text, "it is not read"),
            }
        }
        let Some(rate_limit) = node.source.get("rate_limit") else {
            return;
        };
        self.note_fields_of_limit(rate_limit);
        let entries = match entries_of(path) {
            Ok(entries) => entries,
            Err(reason) => return self.report.left(at, Concern::Limits, &text, &reason),
        };
        let mut sorted = entries.clone();
        sorted.sort();
        if let Some(first) = self.seen.get(&(self.domain.clone(), sorted.clone())) {
            let note = format!(
                "{}:{} has the same entries, perhaps in another order",
                self.report.path(*first),
                first.line
            );
            return self.report.left(at, Concern::Limits, &text, &note);
        }
        let limit = match self.read_limit(node, path, rate_limit) {
            Ok(limit) => limit,
            // No policy can name such a key.
            Err(reason)
                if path
                    .iter()
                    .any(|node| node.value == EntryDraft::Any && !is_identity(node.key)) =>
            {
                let note = format!("{reason}; its descriptors are not limited by it");
                return self
                    .report
                    .left(rate_limit.origin(), Concern::Limits, "rate_limit", &note);
            }
            Err(reason) => {
                let note =
                    format!("{reason}: one request of all its descriptors is admitted in 365 days");
                self.report
                    .left(rate_limit.origin(), Concern::Limits, "rate_limit", &note);
                strictest_limit(node, vec!["everyone".into()], rate_limit)
            }
        };
        self.note_overlaps(KeyedPolicy {
            order: (
                self.root,
                path.iter().map(|node| node.key.to_owned()).collect(),
            ),
            entries: sorted.clone(),
            at,
            text: text.clone(),
        });
        self.seen.insert((self.domain.clone(), sorted), at);
        let names = path.iter().map(|node| {
            format!(
                "{} {}",
                node.key,
                node.source.text_of("value").unwrap_or("")
            )
        });
        let name: Vec<String> = names.collect();
        self.draft.routes.push(RouteDraft {
            name: format!("{} {}", self.domain, name.join(" ")),
            origin: at,
            source: text,
            descriptor: Some(DescriptorDraft {
                domain: self.domain.clone(),
                entries,
            }),
            limits: limit.into_iter().map(LimitUseDraft::Own).collect(),
            ..RouteDraft::default()
        });
    }

    /// Reports the fields of `rate_limit` beside those of the rate, whether the limit itself can be taken or not.
    fn note_fields_of_limit(&mut self, rate_limit: InputValue<'_>) {
        for (field, at, value) in rate_limit.entries() {
            let text = format!("{field}: {}", value.text().unwrap_or(""));
            match field {
                "unit" | "requests_per_unit" | "unlimited" | "name" => {}
                "replaces" => {
                    let note = "the limits that it names hold beside it, which is stricter";
                    self.report.changed(at, Concern::Limits, "replaces", note);
                }
                _ => self
                    .report
                    .left(at, Concern::Limits, &text, "it is not read"),
            }
        }
    }

    /// Reads `rate_limit` of a node; `None` if it is unlimited.
    fn read_limit(
        &mut self,
        node: &DescriptorNode<'_>,
        path: &[&DescriptorNode<'_>],
        rate_limit: InputValue<'_>,
    ) -> Result<Option<LimitDraft>, String> {
        let at = rate_limit.origin();
        let is_unlimited = rate_limit.get("unlimited").is_some_and(is_set);
        let units = rate_limit.get("requests_per_unit");
        // ratelimit reads `010` as 8.
        let octal = units.and_then(InputValue::text).and_then(|text| {
            let digits = text
                .trim()
                .strip_prefix('0')
                .filter(|digits| !digits.is_empty())?;
            u64::from_str_radix(digits, 8).ok()
        });
        if let Some(number) = octal {
            let note = format!("its number begins with 0: that is {number} in octal");
            self.report
                .changed(at, Concern::Limits, "requests_per_unit", &note);
        }
        let units = octal.or_else(|| units.and_then(InputValue::number));
        if is_unlimited {
            if units.is_some() {
                return Err("it has `unlimited` beside a number".into());
            }
            self.report
                .taken(at, Concern::Limits, "rate_limit unlimited", "");
            return Ok(None);
        }
        let units = units.ok_or("it has no `requests_per_unit`")?;
        if units == 0 {
            // Without a policy, a broader one would admit these requests by its larger limit.
            let note = "a rate of 0 has no counterpart: one request is admitted in 365 days. Let Envoy refuse these requests";
            self.report.left(at, Concern::Limits, "rate_limit 0", note);
            let key = self.key_of(path)?;
            return Ok(strictest_limit(node, key, rate_limit));
        }
        let unit = rate_limit
            .text_of("unit")
            .unwrap_or("")
            .to_ascii_lowercase();
        let (seconds, is_fixed) = match unit.as_str() {
            "second" => (1, true),
            "minute" => (60, true),
            "hour" => (3_600, true),
            "day" => (86_400, true),
            "week" => (604_800, false),
            "month" => (2_592_000, false),
            "year" => (31_536_000, false),
            _ => return Err("its `unit` is not known".into()),
        };
        let rate = RateDraft::new(units, seconds).ok_or_else(|| {
            format!("{units} in {seconds} s is no rate that tollgate counts; write a `quota`")
        })?;
        let key = self.key_of(path)?;
        let text = format!("rate_limit {units}/{unit}");
        match is_fixed {
            true => self.report.taken(at, Concern::Limits, &text, ""),
            false => {
                let note = "never more in any window of this length; the windows of ratelimit begin at multiples of it since 1970";
                self.report.changed(at, Concern::Limits, &text, note);
            }
        }
        Ok(Some(LimitDraft {
            name: rate_limit.text_of("name").unwrap_or(node.key).to_owned(),
            origins: vec![at],
            key,
            amount: AmountDraft::Rates(vec![rate]),
            algorithm: match is_fixed {
                true => AlgorithmDraft::FixedWindow(true),
                false => AlgorithmDraft::Sliding,
            },
            is_shadow: node.source.get("shadow_mode").is_some_and(is_set),
            ..LimitDraft::default()
        }))
    }

    /// The key of the limit of a descriptor: ratelimit counts each value of an entry that is not exact.
    fn key_of(&mut self, path: &[&DescriptorNode<'_>]) -> Result<Vec<String>, String> {
        let mut key = Vec::new();
        for node in path {
            match &node.value {
                EntryDraft::Exact(_) => {}
                EntryDraft::Any | EntryDraft::Prefix(_) if node.shares_threshold => {}
                EntryDraft::Any | EntryDraft::Prefix(_) => {
                    if !is_identity(node.key) {
                        return Err(format!(
                            "values of `{}` cannot be counted by: a key has letters, digits, `_`, `.` and `-`, and begins with a letter",
                            super::report::printable(node.key, 60)
                        ));
                    }
                    if !self.identities.iter().any(|known| known == node.key) {
                        if self.identities.len() >= MAX_IDENTITIES {
                            return Err(format!("limits count by more than {MAX_IDENTITIES} keys"));
                        }
                        self.identities.push(node.key.to_owned());
                    }
                    key.push(node.key.to_owned());
                }
            }
        }
        match key.is_empty() {
            true => Ok(vec!["everyone".into()]),
            false => Ok(key),
        }
    }
}

/// The limit that admits least, in place of one that cannot be written.
fn strictest_limit(
    node: &DescriptorNode<'_>,
    key: Vec<String>,
    rate_limit: InputValue<'_>,
) -> Option<LimitDraft> {
    let rate = RateDraft::new(1, 31_536_000)?;
    let shadow = node.source.get("shadow_mode");
    Some(LimitDraft {
        name: rate_limit.text_of("name").unwrap_or(node.key).to_owned(),
        origins: vec![rate_limit.origin()],
        key,
        amount: AmountDraft::Rates(vec![rate]),
        algorithm: AlgorithmDraft::Sliding,
        is_shadow: shadow.is_some_and(is_set),
        ..LimitDraft::default()
    })
}

/// The entries of a path of nodes.
///
/// # Errors
///
/// Why they are no entries of a policy, and the nearest way by hand.
fn entries_of(path: &[&DescriptorNode<'_>]) -> Result<Vec<(String, EntryDraft)>, String> {
    if path.len() > MAX_ENTRIES {
        return Err(format!("it has more than {MAX_ENTRIES} entries"));
    }
    let mut entries: Vec<(String, EntryDraft)> = Vec::new();
    for node in path {
        let is_value = match &node.value {
            EntryDraft::Any => true,
            EntryDraft::Prefix(text) => is_text(text),
            EntryDraft::Exact(values) => values.iter().all(|value| is_text(value)),
        };
        if !is_text(node.key) || !is_value {
            return Err("a key or a value has not 1 to 255 bytes, or control characters".into());
        }
        if matches!(&node.value, EntryDraft::Prefix(text) if text.contains('*')) {
            return Err(
                "its value has a `*` before the last one, which no value here can have".into(),
            );
        }
        let is_address = |key: &str| ADDRESS_KEYS.contains(&key);
        let other = entries
            .iter()
            .find(|(key, _)| is_address(key) && key != node.key);
        if let Some((other, _)) = other.filter(|_| is_address(node.key)) {
            return Err(format!(
                "`{other}` and `{}` both name the address of the client here, so leave one of them out",
                node.key
            ));
        }
        let known = entries.iter_mut().find(|(key, _)| key == node.key);
        match (known, &node.value) {
            (None, value) => entries.push((node.key.to_owned(), value.clone())),
            (Some((_, EntryDraft::Exact(values))), EntryDraft::Exact(more)) => {
                values.extend(more.iter().cloned());
                values.sort_unstable();
            }
            (Some(_), _) => {
                return Err(format!(
                    "it has `{}` twice, and not with single values both times",
                    super::report::printable(node.key, 60)
                ));
            }
        }
    }
    Ok(entries)
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Whether limits may count by the values of a key.
fn is_identity(key: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    key.len() <= 64
        && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.bytes().all(is_inner)
        && !RESERVED_WORDS.contains(&key)
}
