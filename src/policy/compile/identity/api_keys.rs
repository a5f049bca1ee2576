//! Reads the file of API keys, with entries `KEY: USER` or `KEY: { user: USER, plan: PLAN, expires: 2027-01-31 }`. In
//! place of the key may stand `sha256:` and its hash, and a map may have custom identities too.
//!
//! No message shows a key or a line of the file.

use std::path::Path;
use std::time::Duration;

use smallvec::smallvec;

use super::super::super::context::LoadContext;
use super::super::super::decode::GatewayConfig;
use super::super::super::source::Files;
use super::super::super::tree::{self, Located, MapKey, Node, SourceLocation, YamlValue};
use super::super::expiry::{EXPIRY_HELP, parse_expiry};
use super::super::files::read_secret_map;
use crate::identity::api_keys::{ApiKeys, KeyOwner, WrittenKey};
use crate::identity::custom_value::{CustomValue, IdentityValue};
use crate::identity::{plan, token, user_name};
use crate::limit::CustomIdentity;

const ENTRY_HELP: &str = "write `KEY: { user: USER, plan: PLAN }` on each line";

/// Reads the keys. `None` if the file has a mistake, which is reported. Of the fields of each key, the first mistake is
/// reported. If there is none, only the first invalid key, invalid user or repeated key of the file is.
pub fn read_api_keys(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    file: &Located<String>,
    gateway: &GatewayConfig,
    plans: &plan::Settings,
) -> Option<ApiKeys> {
    let described = ("API keys", ENTRY_HELP);
    let (start, entries) = read_secret_map(cx, files, base, file, described)?;
    let owners: Vec<(&MapKey, KeyOwner)> = entries
        .iter()
        .filter_map(|(key, value)| Some((key, read_owner(cx, gateway, plans, key, value)?)))
        .collect();
    if owners.len() < entries.len() {
        return None;
    }
    // A request's credential is looked up in the normal form of the source that it came from. The file has one form of
    // each key: that of the first source.
    let bearer = token::TokenSource::Bearer;
    let token = gateway.identity.tokens.first().unwrap_or(&bearer);
    let mut keys_and_owners = Vec::new();
    for (key, owner) in owners {
        let Some(parsed) = WrittenKey::parse(&key.text) else {
            let help = "write `sha256:` and the 64 digits that `printf %s KEY | sha256sum` prints";
            cx.error(key.location, "this is no SHA-256 hash", Some(help.into()));
            return None;
        };
        let normal_key = match parsed {
            WrittenKey::Text(_) => WrittenKey::Text(token.normalise(&key.text)),
            hash => hash,
        };
        keys_and_owners.push((normal_key, owner));
    }
    match ApiKeys::new(keys_and_owners) {
        Ok(keys) => Some(keys),
        Err(error) => {
            let location = entries
                .get(error.entry_index())
                .map_or(start, |(key, _)| key.location);
            cx.error(location, error.to_string(), None);
            None
        }
    }
}

/// Reads the owner of one key: a user, or a map of fields. `None` for a mistake, which is reported.
fn read_owner(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    plans: &plan::Settings,
    key: &MapKey,
    node: &Node,
) -> Option<KeyOwner> {
    // The user is set below, when it is certain that there is one.
    let mut owner = KeyOwner::new("".into());
    let mut user = node.scalar();
    if let YamlValue::Map(fields) = &node.value {
        if let Some((_, repeated)) = tree::find_repeated_keys(fields).first() {
            let message = "a field of this key stands here twice";
            cx.error(
                repeated.location,
                message,
                Some("remove one of them".into()),
            );
            return None;
        }
        for (name, field) in fields {
            let text = field.scalar();
            match name.text.as_str() {
                "user" => user = text,
                "plan" => {
                    owner.plan = Some(find_plan(
                        cx,
                        plans,
                        text.unwrap_or_default(),
                        field.location,
                    )?);
                }
                "expires" => owner.expires_at = Some(read_expiry(cx, field)?),
                _ => owner.custom.push(read_custom(cx, gateway, name, field)?),
            }
        }
    }
    let Some(user) = user else {
        let help = "write `KEY: { user: USER, plan: PLAN }`";
        cx.error(key.location, "this key has no user", Some(help.into()));
        return None;
    };
    owner.user = user.into();
    Some(owner)
}

/// Reads a field with the value of a custom identity whose source is `api_keys`. `None` for another field or an invalid
/// value, which is reported.
fn read_custom(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    name: &MapKey,
    field: &Node,
) -> Option<CustomValue> {
    let mut custom = gateway.identity.custom.iter();
    let is_expected =
        custom.any(|custom| custom.name.value == name.text && custom.api_keys.is_some());
    let Some(identity) = CustomIdentity::find(&name.text).filter(|_| is_expected) else {
        let help = "the fields of a key are `user`, `plan`, `expires`, and identities of your own with `api_keys: true`";
        cx.error(name.location, "a key has no such field", Some(help.into()));
        return None;
    };
    let Some(value) = field.scalar().and_then(user_name::parse) else {
        let message = "this is not one name of 1 to 256 bytes without control characters and blanks at its ends";
        cx.error(field.location, message, None);
        return None;
    };
    Some(CustomValue {
        identity,
        value: IdentityValue::Names(smallvec![value]),
    })
}

/// Reads the time since the Unix epoch from which on a key is no longer valid. `None` for a value that is no time, which is
/// reported.
fn read_expiry(cx: &mut LoadContext, field: &Node) -> Option<Duration> {
    let expires_at = parse_expiry(field.scalar().unwrap_or_default());
    if expires_at.is_none() {
        let message = "`expires` is neither a day nor a time";
        cx.error(field.location, message, Some(EXPIRY_HELP.into()));
    }
    expires_at
}

/// The index of a plan by its name; `None` if there is none, which is reported.
fn find_plan(
    cx: &mut LoadContext,
    plans: &plan::Settings,
    name: &str,
    location: SourceLocation,
) -> Option<usize> {
    let index = plans.index_of(name);
    if index.is_none() {
        let names = plans.plans.iter().map(|plan| plan.name.as_str());
        cx.report_unknown_plan(location, name, names);
    }
    index
}
