//! The header fields that a policy sets, adds or removes: of requests before they are forwarded, or of responses before
//! the client gets them. This file says what changes; `serve/stack/changed_fields.rs` makes the changes.

use http::HeaderName;

use crate::limit::{Identity, IdentitySet};

/// The changes of one policy to the fields of requests or of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// The names of the fields that are removed first: those that the policy removes or sets.
    pub removed: Vec<HeaderName>,
    /// The fields that are added then: those that the policy sets or adds.
    pub added: Vec<AddedField>,
}

/// A field that a policy sets or adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedField {
    /// The name of the field.
    pub name: HeaderName,
    /// The value. If a part of it is absent, the field is not added.
    pub value: ValueTemplate,
}

/// The value of a field, as a policy writes it: `${plan} of ${tenant}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTemplate {
    /// The parts in order; at least one.
    pub parts: Vec<TemplatePart>,
}

/// A part of the value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Visible ASCII and blanks.
    Text(Box<str>),
    /// What each request has for itself.
    Variable(Variable),
}

/// What stands for a text of the request in the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// An identity of the client, which may be absent.
    Identity(Identity),
    /// The host of the request, in canonical form; absent in requests of HTTP/1.0 without one.
    Host,
    /// The name of the route.
    Route,
    /// The id of the request.
    RequestId,
    /// A fact about the TLS connection of the client; absent without TLS.
    Tls(TlsFact),
}

/// What a value may say of the TLS connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFact {
    /// The version, such as `TLSv1.3`.
    Version,
    /// The host name that the client has sent (SNI), in canonical form; absent if it has sent none.
    Name,
    /// The cipher suite, by its name at IANA.
    Cipher,
    /// The JA4 fingerprint of the handshake.
    Ja4,
    /// The subject of the client's verified certificate; absent if it has sent none.
    Subject,
    /// The alternative name of the subject, as identities by certificate have it; absent if there is none.
    San,
}

impl TlsFact {
    /// All facts.
    pub const ALL: [TlsFact; 6] = [
        TlsFact::Version,
        TlsFact::Name,
        TlsFact::Cipher,
        TlsFact::Ja4,
        TlsFact::Subject,
        TlsFact::San,
    ];

    /// The name in values.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsFact::Version => "tls.version",
            TlsFact::Name => "tls.name",
            TlsFact::Cipher => "tls.cipher",
            TlsFact::Ja4 => "tls.ja4",
            TlsFact::Subject => "tls.subject",
            TlsFact::San => "tls.san",
        }
    }
}

impl FieldChanges {
    /// The identities in the values.
    pub fn identities(&self) -> IdentitySet {
        self.variables()
            .filter_map(|variable| match variable {
                Variable::Identity(identity) => Some(identity),
                Variable::Host | Variable::Route | Variable::RequestId | Variable::Tls(_) => None,
            })
            .collect()
    }

    /// Whether a value has the host of the request.
    pub fn needs_host(&self) -> bool {
        self.variables().any(|variable| variable == Variable::Host)
    }

    /// Whether no two requests get the same fields, because a value has the id of the request.
    pub fn differ_each_time(&self) -> bool {
        let mut variables = self.variables();
        variables.any(|variable| variable == Variable::RequestId)
    }

    fn variables(&self) -> impl Iterator<Item = Variable> {
        let parts = self.added.iter().flat_map(|field| &field.value.parts);
        parts.filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Variable(variable) => Some(*variable),
        })
    }

    /// Whether these changes are those of both combined.
    pub fn covers(&self, other: &FieldChanges) -> bool {
        self == other || {
            let both = self.combined_with(other);
            both.removed.len() == self.removed.len() && both.added == self.added
        }
    }

    /// The changes of two routes that a request may belong to. Fields that either removes are removed. A field that they
    /// set to different values is removed too, so that no value of the client takes its place.
    pub fn combined_with(&self, other: &FieldChanges) -> FieldChanges {
        let mut removed = self.removed.clone();
        let others = other.removed.iter();
        removed.extend(others.filter(|name| !self.removed.contains(name)).cloned());
        let agrees = |field: &&AddedField, changes: &FieldChanges| {
            !changes.removed.contains(&field.name) || changes.added.contains(field)
        };
        let own = self.added.iter().filter(|field| agrees(field, other));
        let others = other.added.iter().filter(|field| agrees(field, self));
        let others = others.filter(|field| !self.added.contains(field));
        FieldChanges {
            added: own.chain(others).cloned().collect(),
            removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(removed: &[&'static str], added: &[(&'static str, &str)]) -> FieldChanges {
        let added = added.iter().map(|(name, text)| AddedField {
            name: HeaderName::from_static(name),
            value: ValueTemplate {
                parts: vec![TemplatePart::Text((*text).into())],
            },
        });
        FieldChanges {
            removed: removed
                .iter()
                .map(|name| HeaderName::from_static(name))
                .collect(),
            added: added.collect(),
        }
    }

    #[test]
    fn combined_changes_never_let_a_field_of_the_client_through() {
        let first = changes(
            &["a", "b", "same"],
            &[("a", "1"), ("same", "s"), ("x", "1")],
        );
        let second = changes(
            &["a", "c", "same"],
            &[("a", "2"), ("same", "s"), ("c", "3")],
        );
        // `a` has two values, and so none.
        let expected = changes(
            &["a", "b", "same", "c"],
            &[("same", "s"), ("x", "1"), ("c", "3")],
        );
        assert_eq!(first.combined_with(&second), expected);
        assert!(expected.covers(&first) && expected.covers(&second) && expected.covers(&expected));
        assert!(!first.covers(&second) && !first.covers(&expected));
        // `add` of one is not kept where the other removes.
        let adds = changes(&[], &[("b", "1")]);
        assert_eq!(
            adds.combined_with(&changes(&["b"], &[])),
            changes(&["b"], &[])
        );
    }
}
