//! Reads `require`: identities, and for the user also the sources one of which must have verified it.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, RequiredField, Section, section};
use super::super::table::{TextFormat, ValueShape};
use super::super::tree::{Located, Node, YamlValue};
use super::field::{ListField, scalar_fields};
use super::identity::UserConfig;
use super::scalar::{IDENTITY_FORMAT, IdentityField};
use crate::limit::{Identity, UserSources};

section! {
    /// The user, verified by certain sources.
    pub struct RequiredUser, table REQUIRED_USER_TABLE = "`require`",
        "A user who was verified by one of some sources. All other users get 403.";
    user: RequiredField<ListField<LocatedField<UserSourceField>>> = Vec::new(),
        "The sources: the `issuer` of a source `jwt`, or the kind `jwt`, `api_keys`, `header` or `client_cert`.", "https://idp.example";
}

static USER_SOURCE_FORMAT: TextFormat = TextFormat {
    name: "user-source",
    pattern: r"^\S+$",
    doc: "What verifies users: the `issuer` of a source `jwt`, or `jwt`, `api_keys`, `header` or `client_cert`.",
};

scalar_fields! {
    /// A field with the name of a source of users.
    pub struct UserSourceField: String =
        ValueShape::Format(&USER_SOURCE_FORMAT), "an issuer such as https://idp.example, or `api_keys`";
}

/// An identity without which a request gets 401.
#[derive(Clone, Debug, PartialEq)]
pub struct RequiredIdentity {
    /// The identity, at its name.
    pub identity: Located<Identity>,
    /// The names of the sources, of which one must have verified the user; empty if any may.
    pub sources: Vec<Located<String>>,
}

/// A field with a required identity, or with the sources of the required user.
pub struct RequiredIdentityField;

impl FieldReader for RequiredIdentityField {
    type Value = RequiredIdentity;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&IDENTITY_FORMAT),
        ValueShape::Table(&REQUIRED_USER_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<RequiredIdentity> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return Some(RequiredIdentity {
                identity: LocatedField::<IdentityField>::read(cx, node)?,
                sources: Vec::new(),
            });
        }
        let sources = RequiredUser::read(cx, node)?.user;
        // A map without sources was reported.
        (!sources.is_empty()).then_some(RequiredIdentity {
            identity: Located {
                value: Identity::User,
                location: node.location,
            },
            sources,
        })
    }
}

/// The sources of users with this name: the `issuer` of a source `jwt`, or a kind of sources. `None` if the gateway file
/// has no such source.
pub fn find_user_sources(users: &[Located<UserConfig>], name: &str) -> Option<UserSources> {
    let sources = named_sources(users)
        .filter(|(kind, issuer, _)| *kind == name || issuer.is_some_and(|issuer| issuer == name));
    let mut sources = sources.map(|(_, _, source)| source).peekable();
    sources.peek()?;
    Some(sources.collect())
}

/// The sources of which one must have verified the user; all if no required identity names some.
pub fn required_user_sources(
    users: &[Located<UserConfig>],
    required: &[RequiredIdentity],
) -> UserSources {
    let named = required.iter().map(|required| &required.sources);
    let sets = named.filter(|names| !names.is_empty()).map(|names| {
        let sets = names
            .iter()
            .filter_map(|name| find_user_sources(users, &name.value));
        sets.collect::<UserSources>()
    });
    sets.fold(UserSources::ALL, UserSources::intersection)
}

/// The names that [`find_user_sources`] finds.
pub fn requirable_sources(users: &[Located<UserConfig>]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (kind, issuer, _) in named_sources(users) {
        for name in issuer.into_iter().chain([kind]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The kind, the issuer and the set of each source of users.
fn named_sources(
    users: &[Located<UserConfig>],
) -> impl Iterator<Item = (&str, Option<&str>, UserSources)> {
    let mut issuer_count = 0;
    users.iter().map(move |user| {
        let user = &user.value;
        let source = match user.kind() {
            "jwt" => {
                issuer_count += 1;
                UserSources::issuer(issuer_count - 1)
            }
            "header" => UserSources::HEADER,
            "api_keys" => UserSources::API_KEYS,
            _ => UserSources::CLIENT_CERT,
        };
        let issuer = user.issuer.as_ref().map(|issuer| &*issuer.value);
        (user.kind(), issuer, source)
    })
}
