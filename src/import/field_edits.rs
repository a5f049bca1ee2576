//! Changes of header fields that an import writes under `request` or `response`, without those that the gateway refuses.

use super::yaml_text::{flow_list, quoted, scalar};

/// Maximum number of fields that are changed.
const MAX_FIELDS: usize = 30;
/// Maximum length of a value in bytes.
const MAX_VALUE_BYTES: usize = 1_000;

/// Whether the fields of requests or those of responses are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditedHead {
    /// What the upstream gets.
    Request,
    /// What the client gets.
    Response,
}

/// The changes of one policy; `None` as a value removes the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    edits: Vec<(String, Option<String>)>,
}

impl FieldEdits {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether a field is changed. `name` has small letters, and hyphens for underscores.
    pub fn has(&self, name: &str) -> bool {
        self.edits
            .iter()
            .any(|(other, _)| is_same_name(other, name))
    }

    /// Sets a field, or removes it. A later change of a field takes the place of an earlier one.
    ///
    /// # Errors
    ///
    /// Why the gateway would refuse this.
    pub fn edit(
        &mut self,
        head: EditedHead,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), String> {
        let name = http::HeaderName::try_from(name)
            .map_err(|_| "it is no name of a header".to_owned())?
            .as_str()
            .to_owned();
        if is_owned(head, &name.replace('_', "-")) {
            return Err("the gateway writes this header itself".into());
        }
        if let Some(value) = value {
            let is_text = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            if !is_text
                || value.trim() != value
                || value.is_empty()
                || value.len() > MAX_VALUE_BYTES
            {
                return Err("its value is not plain text".into());
            }
        }
        let is_same = |(other, _): &&mut (String, Option<String>)| is_same_name(other, &name);
        let value = value.map(str::to_owned);
        if let Some(edit) = self.edits.iter_mut().find(is_same) {
            *edit = (name, value);
        } else if self.edits.len() >= MAX_FIELDS {
            return Err(format!("a policy changes at most {MAX_FIELDS} headers"));
        } else {
            self.edits.push((name, value));
        }
        Ok(())
    }

    /// The value of `request` or `response` in flow YAML.
    pub fn text(&self) -> String {
        let set: Vec<String> = self
            .edits
            .iter()
            .filter_map(|(name, value)| {
                let value = quoted(&value.as_ref()?.replace('$', "$$"));
                Some(format!("{}: {value}", scalar(name)))
            })
            .collect();
        let removed = self.edits.iter().filter(|(_, value)| value.is_none());
        let removed: Vec<String> = removed.map(|(name, _)| name.clone()).collect();
        let mut parts = Vec::new();
        if !set.is_empty() {
            parts.push(format!("set: {{ {} }}", set.join(", ")));
        }
        if !removed.is_empty() {
            parts.push(format!("remove: {}", flow_list(&removed)));
        }
        format!("{{ {} }}", parts.join(", "))
    }
}

/// Whether two names are the same if hyphens and underscores are one.
fn is_same_name(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Whether the gateway writes this field itself. `name` has small letters, and hyphens for underscores.
fn is_owned(head: EditedHead, name: &str) -> bool {
    let of_connection = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let of_requests = [
        "host",
        "forwarded",
        "via",
        "expect",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];
    let of_responses = ["ratelimit", "ratelimit-policy", "retry-after", "date"];
    name.starts_with("tollgate-")
        || name.starts_with("proxy-")
        || of_connection.contains(&name)
        || match head {
            EditedHead::Request => of_requests.contains(&name),
            EditedHead::Response => {
                of_responses.contains(&name) || name.starts_with("x-ratelimit-")
            }
        }
}
