//! Reads the field `for` of a limit: which clients the limit is for. Reading `preflight` defines that identity for the
//! process.

use super::super::super::context::LoadContext;
use super::super::super::section::{FieldReader, LocatedField, section};
use super::super::super::table::{MapFields, ValueShape};
use super::super::super::tree::{Located, Node};
use super::super::field::{ListField, word_fields};
use super::super::scalar::NetworkField;
use crate::base::suggest::nearest_word;
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{ClientCondition, CustomIdentity, Identity, IdentityTest};

section! {
    /// The conditions that a client must meet for a limit to hold.
    pub struct ClientsFields, table CLIENTS_TABLE = "`for`",
        "What a client must have for the limit to hold: `present`, `absent`, a value, or one of a list of values.", check check_conditions,
        others custom: LocatedField<IdentityTestField> where is_custom_identity, suggest custom_names,
        "Of an identity that the gateway file defines: whether the client has it, or one of these values.", "[office, partner]";
    ip: LocatedField<ListField<NetworkField>>, "An address in one of these networks.", "[203.0.113.0/24]";
    user: LocatedField<IdentityTestField>, "Whether the client proves a user, or one of these users.", "absent";
    token: LocatedField<PresenceField>, "Whether the client has a credential.", "absent";
    email: LocatedField<PresenceField>, "Whether the client has an email address.", "present";
    preflight: LocatedField<PresenceField>,
        "Whether the request is the preflight of a browser: `OPTIONS` with `Origin` and `Access-Control-Request-Method`.", "absent";
    plan: LocatedField<IdentityTestField>, "Whether the client has a plan, or one of these plans.", "[free, trial]";
}

word_fields! {
    /// A field that says whether a client has an identity.
    pub struct PresenceField: IdentityTest = "present" => IdentityTest::Present, "absent" => IdentityTest::Absent;
}

/// A field that says whether a client has an identity, or which values. In a list, `present` and `absent` are values. A
/// text that looks like a mistyped one of them is reported.
pub struct IdentityTestField;

impl FieldReader for IdentityTestField {
    type Value = IdentityTest;
    const SHAPE: ValueShape = ValueShape::OneOrList(&ValueShape::Text);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<IdentityTest> {
        match node.scalar() {
            Some("present") => return Some(IdentityTest::Present),
            Some("absent") => return Some(IdentityTest::Absent),
            Some(text) => {
                if let Some(word) = nearest_word(text, ["present", "absent"]) {
                    let message = format!("unknown word `{text}`");
                    let help =
                        format!("did you mean `{word}`? A name like this is written `[{text}]`");
                    cx.error(node.location, message, Some(help));
                    return None;
                }
            }
            None => {}
        }
        let values = cx.read_list(node, |cx, node| {
            cx.read_text(node, "present, absent or a name")
        });
        let values: Vec<String> = values.into_iter().map(|value| value.value).collect();
        (!values.is_empty()).then_some(IdentityTest::OneOf(values))
    }
}

impl ClientsFields {
    /// The conditions: on built-in identities first, then on `preflight`, then on custom identities. That on
    /// `preflight` is missing if no slot for the identity is left, which [`check_conditions`] reports.
    pub fn conditions(&self) -> Vec<Located<ClientCondition>> {
        let networks = self.ip.as_ref().map(|networks| Located {
            value: IdentityTest::InNetwork(networks.value.clone()),
            location: networks.location,
        });
        let tests = [
            (Identity::Ip, networks.as_ref()),
            (Identity::User, self.user.as_ref()),
            (Identity::Token, self.token.as_ref()),
            (Identity::Email, self.email.as_ref()),
            (Identity::Plan, self.plan.as_ref()),
        ];
        let conditions = tests.into_iter().filter_map(|(identity, test)| {
            let test = test?;
            Some(Located {
                value: ClientCondition {
                    identity,
                    test: test.value.clone(),
                },
                location: test.location,
            })
        });
        let preflight = self.preflight.as_ref().and_then(|test| {
            Some(Located {
                value: ClientCondition {
                    identity: Identity::Custom(CustomIdentity::define(PREFLIGHT)?),
                    test: test.value.clone(),
                },
                location: test.location,
            })
        });
        let custom = self.custom.iter().filter_map(|field| {
            let identity = Identity::find(&field.name.value)?;
            let test = field.fields.value.clone();
            Some(Located {
                value: ClientCondition { identity, test },
                location: field.fields.location,
            })
        });
        conditions.chain(preflight).chain(custom).collect()
    }
}

/// Whether some gateway file of this process has defined an identity of this name. `preflight` has a field of its own.
pub fn is_custom_identity(name: &str) -> bool {
    name != PREFLIGHT && CustomIdentity::find(name).is_some()
}

/// The names of the identities that gateway files of this process have defined.
pub fn custom_names() -> Vec<&'static str> {
    CustomIdentity::all().map(CustomIdentity::as_str).collect()
}

/// Reports `preflight` if no slot for its identity is left, and a `for` that names no identity.
fn check_conditions(cx: &mut LoadContext, fields: &MapFields<'_>, written: &ClientsFields) {
    if written.preflight.is_some() && CustomIdentity::define(PREFLIGHT).is_none() {
        let message = "there are too many identities of your own for `preflight`";
        let help = "use fewer; if reloads have renamed some, restart the gateway";
        cx.error(fields.location_of("preflight"), message, Some(help.into()));
    }
    if fields.is_empty() {
        let help = "write for instance `for: { user: absent }`, or remove it";
        cx.error(
            fields.location,
            "`for` names no identity",
            Some(help.into()),
        );
    }
}
