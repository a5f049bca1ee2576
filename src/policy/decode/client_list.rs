//! Reads `deny` and `allow`: the clients that they name by any identity. The values are those of `for` in a limit, and
//! for the address also files of networks.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, SectionField, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Located, Node};
use super::field::{BoolField, ListField};
use super::identity::NetworksItemField;
use super::limit::{IdentityTestField, PresenceField, custom_names, is_custom_identity};
use crate::limit::{ClientCondition, Identity};

section! {
    /// The clients that `deny` or `allow` names.
    pub struct ClientListFields, table CLIENT_LIST_TABLE = "`deny` or `allow`",
        "The clients that are refused or admitted: under each identity `present`, `absent`, a value, or a list of values.", check check_entries,
        others custom: LocatedField<IdentityTestField> where is_custom_identity, suggest custom_names,
        "Of an identity that the gateway file defines: whether the client has it, or one of these values.", "[XX]";
    networks("ip"): LocatedField<ListField<NetworksItemField>>,
        "An address in one of these networks, or in those of a file with one network in each line.", "[203.0.113.0/24, blocked.txt]";
    user: LocatedField<IdentityTestField>, "Whether the client proves a user, or one of these users.", "[mallory]";
    token: LocatedField<PresenceField>, "Whether the client has a credential.", "absent";
    email: LocatedField<PresenceField>, "Whether the client has an email address.", "present";
    plan: LocatedField<IdentityTestField>, "Whether the client has a plan, or one of these plans.", "[trial]";
    is_silent("silent"): BoolField = false,
        "Whether a client that is refused gets no response: its connection is closed, over HTTP/2 its stream is reset.", "true";
}

/// A `deny` or an `allow`, located at its value.
pub type ClientListConfig = Located<ClientListFields>;

/// A field with the clients that are refused or admitted.
pub struct ClientListField;

impl FieldReader for ClientListField {
    type Value = ClientListConfig;
    const SHAPE: ValueShape = ValueShape::Table(&CLIENT_LIST_TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<ClientListConfig> {
        LocatedField::<SectionField<ClientListFields>>::read(cx, node)
    }
}

impl ClientListFields {
    /// The conditions on identities other than the address: on built-in ones first, then on custom ones.
    pub fn conditions(&self) -> Vec<Located<ClientCondition>> {
        let built_in = [
            (Identity::User, self.user.as_ref()),
            (Identity::Token, self.token.as_ref()),
            (Identity::Email, self.email.as_ref()),
            (Identity::Plan, self.plan.as_ref()),
        ];
        let built_in = built_in
            .into_iter()
            .filter_map(|(identity, test)| Some((identity, test?)));
        let custom = self
            .custom
            .iter()
            .filter_map(|field| Some((Identity::find(&field.name.value)?, &field.fields)));
        let conditions = built_in.chain(custom).map(|(identity, test)| Located {
            value: ClientCondition {
                identity,
                test: test.value.clone(),
            },
            location: test.location,
        });
        conditions.collect()
    }
}

/// Reports a list that names no identity.
fn check_entries(cx: &mut LoadContext, fields: &MapFields<'_>, _: &mut ClientListFields) {
    if fields.has_only("silent") {
        let message = "this list names no client";
        let help = "write for instance `{ ip: [203.0.113.0/24] }`, or remove it";
        cx.error(fields.location, message, Some(help.into()));
    }
}
