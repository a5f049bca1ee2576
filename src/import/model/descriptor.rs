//! Policies for descriptors of Envoy's rate limit service.

use std::fmt::Write;

use crate::import::yaml_text::{flow_list, quoted, scalar};

/// The descriptors that a policy is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorDraft {
    /// The domain of the requests.
    pub domain: String,
    /// The entries, by key.
    pub entries: Vec<(String, EntryDraft)>,
}

/// The values of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryDraft {
    /// Any value.
    Any,
    /// Values that begin with this.
    Prefix(String),
    /// This value, or each of these if the key is there several times.
    Exact(Vec<String>),
}

impl DescriptorDraft {
    /// The fields of the policy, one a line.
    pub fn text(&self) -> String {
        let mut out = format!("domain: {}\nentries:\n", scalar(&self.domain));
        for (key, value) in &self.entries {
            let value = match value {
                EntryDraft::Any => "any".to_owned(),
                EntryDraft::Prefix(prefix) => quoted(&format!("{prefix}*")),
                EntryDraft::Exact(values) => match values.as_slice() {
                    [one] if one != "any" && !one.contains('*') => scalar(one),
                    several => flow_list(several),
                },
            };
            let _ = writeln!(out, "  {}: {value}", scalar(key));
        }
        out
    }
}
