//! Reads `request` and `response` of a policy: the header fields that it sets, adds and removes. Fields that the gateway
//! needs are refused here, and so are names that a value cannot have.

use http::HeaderName;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, Section, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Located, Node, SourceLocation};
use super::field::ListField;
use super::scalar::{HeaderNameField, parse_header_name};
use super::{ValueError, parse_text, unknown_word};
use crate::identity::strip::is_alike;
use crate::limit::Identity;
use crate::limit::custom_identity::PREFLIGHT;
use crate::route::{TemplatePart, TlsFact, ValueTemplate, Variable};

/// Maximum number of fields that `request` or `response` changes.
const MAX_CHANGED_FIELDS: usize = 32;

/// Maximum bytes of a value, as the file has it.
const MAX_VALUE_BYTES: usize = 1024;

section! {
    /// The header fields that a policy changes, of requests or of responses.
    pub struct FieldChangesConfig, table FIELD_CHANGES_TABLE = "the changes of header fields",
        "Header fields that are changed on the way. In values `${user}`, `${plan}`, `${ip}` and identities of your own stand for those of the client. `${host}` is the host of the request, `${route}` the name of the policy, and `$$` a dollar sign. `${request_id}` is the id of the request, and `${tls.version}`, `${tls.cipher}`, `${tls.name}`, `${tls.ja4}`, `${tls.subject}` and `${tls.san}` are facts of the client's TLS connection.", check check_names;
    set: ChangedFieldsField = Vec::new(),
        "Fields that are set, in place of all fields of these names. One whose value has something absent is removed only.", "{ x-user: \"${user}\" }";
    add: ChangedFieldsField = Vec::new(),
        "Fields that are added beside those of the same name. One whose value has something absent is not added.", "{ via-route: \"${route}\" }";
    remove: ListField<LocatedField<HeaderNameField>> = Vec::new(), "Fields that are removed.", "[cookie]";
}

/// A field that a policy sets or adds.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedField {
    /// The name of the field, with its location.
    pub name: Located<HeaderName>,
    /// The value, with its location.
    pub value: Located<ValueTemplate>,
}

impl FieldChangesConfig {
    /// The names of all fields that change, in the order of `set`, `add` and `remove`.
    pub fn names(&self) -> impl Iterator<Item = &Located<HeaderName>> {
        let added = self.set.iter().chain(&self.add).map(|field| &field.name);
        added.chain(&self.remove)
    }

    /// The identities in the values, each with the location of the value.
    pub fn identities(&self) -> impl Iterator<Item = Located<Identity>> {
        self.variables()
            .filter_map(|variable| match variable.value {
                Variable::Identity(identity) => Some(variable.map(|_| identity)),
                _ => None,
            })
    }

    /// The names in the values, each with the location of the value.
    pub fn variables(&self) -> impl Iterator<Item = Located<Variable>> {
        let fields = self.set.iter().chain(&self.add);
        fields.flat_map(|field| {
            let parts = field.value.value.parts.iter();
            parts.filter_map(|part| match part {
                TemplatePart::Variable(variable) => Some(Located {
                    value: *variable,
                    location: field.value.location,
                }),
                TemplatePart::Text(_) => None,
            })
        })
    }
}

/// A field with the changes of requests, or with those of responses.
pub struct ChangesField<const IS_RESPONSE: bool>;

/// A field with the changes of requests.
pub type RequestChangesField = ChangesField<false>;

/// A field with the changes of responses.
pub type ResponseChangesField = ChangesField<true>;

impl<const IS_RESPONSE: bool> FieldReader for ChangesField<IS_RESPONSE> {
    type Value = FieldChangesConfig;
    const SHAPE: ValueShape = ValueShape::Table(&FIELD_CHANGES_TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<FieldChangesConfig> {
        let changes = FieldChangesConfig::read(cx, node)?;
        for name in changes.names() {
            let help = match IS_RESPONSE {
                true => help_for_owned_response_field(name.value.as_str()),
                false => help_for_owned_request_field(name.value.as_str()),
            };
            if let Some(help) = help {
                let message = format!("`{}` belongs to the gateway", name.value);
                cx.error(name.location, message, Some(help.into()));
            }
        }
        Some(changes)
    }
}

/// A field with a map from names of header fields to their values.
pub struct ChangedFieldsField;

impl FieldReader for ChangedFieldsField {
    type Value = Vec<ChangedField>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ValueShape::Text);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<ChangedField>> {
        let mut fields = Vec::new();
        for (key, node) in cx.named_entries(node, "values") {
            let name = match parse_header_name(&key.text) {
                Ok(name) => Some(name),
                Err(message) => {
                    cx.error(key.location, message, None);
                    None
                }
            };
            let value = cx.read_scalar(node, "the value of a header", parse_template);
            if let Some((name, value)) = name.zip(value) {
                fields.push(ChangedField {
                    name: Located {
                        value: name,
                        location: key.location,
                    },
                    value: Located {
                        value,
                        location: node.location,
                    },
                });
            }
        }
        Some(fields)
    }
}

/// Reports fields that are changed twice, in any spelling that servers take for the same, and too many fields.
fn check_names(cx: &mut LoadContext, fields: &MapFields<'_>, changes: &mut FieldChangesConfig) {
    let names: Vec<(&str, SourceLocation)> = changes
        .names()
        .map(|name| (name.value.as_str(), name.location))
        .collect();
    if names.len() > MAX_CHANGED_FIELDS {
        let message = format!("at most {MAX_CHANGED_FIELDS} fields can be changed");
        cx.error(fields.location, message, Some("change less of them".into()));
        return;
    }
    for (index, (name, location)) in names.iter().enumerate() {
        let mut earlier = names[..index].iter();
        if let Some((other, earlier)) = earlier.find(|(other, _)| is_alike(name.as_bytes(), other))
        {
            let message = match name == other {
                true => format!("`{name}` is changed twice"),
                false => format!("`{name}` and `{other}` are one field to many servers"),
            };
            let help = format!("it is already on line {}; keep one of them", earlier.line);
            cx.error(*location, message, Some(help));
        }
    }
}

/// Parses a value: visible ASCII, blanks, and names in `${…}`.
fn parse_template(text: &str) -> Result<ValueTemplate, ValueError> {
    parse_text(text, "the value of a header")?;
    if text.len() > MAX_VALUE_BYTES {
        let message = format!("this value is longer than {MAX_VALUE_BYTES} bytes");
        return Err(ValueError::new(message, "write a shorter one"));
    }
    if text.trim() != text {
        let message = "this value begins or ends with a blank, which no header can have";
        return Err(ValueError::new(message, "leave the blank out"));
    }
    if let Some((offset, character)) = text.char_indices().find(|(_, c)| !c.is_ascii()) {
        return Err(ValueError {
            message: format!("`{character}` is not ASCII"),
            help: Some("write it in percent-encoding".into()),
            offset: Some(offset),
        });
    }
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        let offset = text.len() - after.len() - 1;
        if let Some(after_dollar) = after.strip_prefix('$') {
            literal.push('$');
            rest = after_dollar;
            continue;
        }
        let name = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let Some((name, after_name)) = name else {
            return Err(ValueError {
                message: "`$` is followed by no name in braces".into(),
                help: Some("write `$$` for a dollar sign, or a name such as `${user}`".into()),
                offset: Some(offset),
            });
        };
        let variable = parse_variable(name).map_err(|error| ValueError {
            offset: Some(offset),
            ..error
        })?;
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(std::mem::take(&mut literal).into()));
        }
        parts.push(TemplatePart::Variable(variable));
        rest = after_name;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(TemplatePart::Text(literal.into()));
    }
    Ok(ValueTemplate { parts })
}

/// Parses a name in `${…}`.
fn parse_variable(name: &str) -> Result<Variable, ValueError> {
    match name {
        "host" => return Ok(Variable::Host),
        "route" => return Ok(Variable::Route),
        "request_id" => return Ok(Variable::RequestId),
        "token" | "email" => {
            let message = format!("`{name}` is kept as a hash only, so no header can show it");
            return Err(ValueError::new(message, "write for instance `${user}`"));
        }
        _ if name.contains(':') => {
            let message = format!("`${{{name}}}` is no name of a request");
            let help = "write the value itself: references to the environment and to files stand in the gateway file only";
            return Err(ValueError::new(message, help));
        }
        _ => {}
    }
    let has_text = |identity: &Identity| {
        !matches!(identity, Identity::Token | Identity::Email) && identity.as_str() != PREFLIGHT
    };
    let mut identities = Identity::all().filter(has_text);
    if let Some(identity) = identities.find(|identity| identity.as_str() == name) {
        return Ok(Variable::Identity(identity));
    }
    let mut facts = TlsFact::ALL.into_iter();
    if let Some(fact) = facts.find(|fact| fact.as_str() == name) {
        return Ok(Variable::Tls(fact));
    }
    let names = Identity::all().filter(has_text).map(Identity::as_str);
    let others = ["host", "route", "request_id"].into_iter();
    let others = others.chain(TlsFact::ALL.map(TlsFact::as_str));
    Err(unknown_word(name, names.chain(others)))
}

/// The help for a request field that belongs to the gateway; `None` for any other field.
fn help_for_owned_request_field(name: &str) -> Option<&'static str> {
    let is_any = |names: &[&str]| names.iter().any(|other| is_alike(name.as_bytes(), other));
    let begins = |prefix: &str| {
        let start = name.as_bytes().get(..prefix.len());
        start.is_some_and(|start| is_alike(start, prefix))
    };
    if is_any(&["host"]) {
        Some("an upstream's `host` says which host its servers get")
    } else if is_any(&[
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ]) {
        Some(
            "it tells servers where the request comes from; choose another name, such as `x-real-ip`",
        )
    } else if begins("tollgate-") {
        Some("it tells servers what the gateway knows of the client; choose another name")
    } else if is_any(&["expect"]) || is_framing_field(name) || begins("proxy-") {
        Some("it is about the connection or the length of the body; leave it out")
    } else {
        None
    }
}

/// The help for a response field that belongs to the gateway; `None` for any other field.
fn help_for_owned_response_field(name: &str) -> Option<&'static str> {
    match name {
        "ratelimit" | "ratelimit-policy" => {
            Some("`headers` says which rate-limit fields there are")
        }
        _ if name.starts_with("x-ratelimit-") => {
            Some("`headers` says which rate-limit fields there are")
        }
        "retry-after" => Some("it tells clients when to try again; leave it out"),
        "date" => Some("every response has it; leave it out"),
        _ if name.starts_with("tollgate-") => {
            Some("it tells clients about the gateway; choose another name")
        }
        _ if is_framing_field(name) || name.starts_with("proxy-") => {
            Some("it is about the connection or the length of the body; leave it out")
        }
        _ => None,
    }
}

/// Whether a field is about the connection or the length of the body, in any spelling.
fn is_framing_field(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.iter().any(|other| is_alike(name.as_bytes(), other))
}
