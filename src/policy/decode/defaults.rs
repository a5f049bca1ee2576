//! Reads `_defaults.yaml`: the limits of all routes of a folder, and the fields that its policies inherit if they lack
//! them.

use super::super::context::LoadContext;
use super::super::section::{LocatedField, Named, Section, section};
use super::super::tree::{Located, MapKey, Node, SourceLocation, YamlValue};
use super::client_list::ClientListField;
use super::compress::CompressField;
use super::cors::CorsField;
use super::error_pages::{ErrorPagesField, covers_statuses};
use super::field::{BoolField, FileNameField, ListField, SizeField};
use super::field_changes::{FieldChangesConfig, RequestChangesField, ResponseChangesField};
use super::limit::LimitConfig;
use super::listen::ListenerNameField;
use super::required::RequiredIdentityField;
use super::route::{
    EncodedSlashesField, LimitUse, LimitUsesField, MAX_BODY_BYTES, PathPrefixField, PolicyConfig,
    UpstreamNameField,
};
use super::scalar::{HeaderStyleField, PriorityField};

/// The name of the file in its folder.
pub const DEFAULTS_FILE: &str = "_defaults.yaml";

/// The fields of a policy that say which requests its route matches, or must fit them, so that they cannot be defaults.
const ROUTE_FIELDS: [&str; 5] = ["match", "host", "strip", "domain", "entries"];

/// The field of policies of descriptors, and the fields that these inherit: none of those is about HTTP.
const DESCRIPTOR_FIELD: &str = "domain";
const DESCRIPTOR_DEFAULTS: [&str; 1] = ["headers"];

/// The fields that say what a policy does with its requests. A policy with one of them inherits none.
const ACTION_FIELDS: [&str; 3] = ["upstream", "redirect", "respond"];

/// The fields that belong to the file itself. Policies inherit all others of [`DEFAULTS_TABLE`].
const OWN_FIELDS: [&str; 4] = ["deny", "allow", "limits", "overrides"];

/// The field of which policies inherit single entries.
const ERRORS_FIELD: &str = "errors";

/// Maximum size of an inherited field in bytes, by [`size_of_node`], because thousands of policies may each have a
/// copy.
const MAX_INHERITED_BYTES: usize = 4096;

section! {
    /// The limits and the defaults of the policies in a folder and in its sub-folders.
    pub struct DefaultsFields, table DEFAULTS_TABLE = "the file of defaults",
        "`_defaults.yaml` in the folder of policies or in a sub-folder: limits of all routes in that folder and below, and fields of policies that do not have them.";
    deny: ClientListField,
        "Clients that get 403 on every route in this folder and below, beside those that the files above deny.", "{ ip: [203.0.113.0/24] }";
    allow: ClientListField,
        "The only clients that are served in this folder and below; all others get 403. An `allow` of a file above or below must admit a client too.", "{ ip: [192.0.2.0/24] }";
    limits: LimitUsesField<true> = Vec::new(),
        "Limits of every route in this folder and below, by name; `name: ~`, or a list of names, takes limits of the files above, and `name: off` says that one of them does not hold here.", "{ per-user: { key: user, rate: 100/m } }";
    overrides: FileNameField,
        "A file of limits of single keys, in place of those of the limits that this file defines.", "overrides.yaml";
    listen: ListField<LocatedField<ListenerNameField>> = Vec::new(),
        "What policies without `listen` have: only the listener of this name, or several.", "public";
    upstream: LocatedField<UpstreamNameField>,
        "What policies without `upstream`, `redirect` and `respond` have as `upstream`.", "shop";
    require: ListField<RequiredIdentityField> = Vec::new(),
        "What policies without `require` have: identities without which a request gets 401.", "user";
    max_body_bytes("max_body"): SizeField<1, MAX_BODY_BYTES>,
        "What policies without `max_body` have: how large a request's body may be.", "10MiB";
    compress: CompressField, "What policies without `compress` have.", "true";
    cors: CorsField, "What policies without `cors` have.", "{ origins: https://app.example.com }";
    errors: ErrorPagesField<true> = Vec::new(),
        "What policies have beside their own `errors`: the bodies of refusals with other statuses.", "{ 429: errors/429.html }";
    priority: PriorityField, "What policies without `priority` have.", "critical";
    headers: HeaderStyleField, "What policies without `headers` have.", "both";
    keeps_slashes("encoded_slashes"): EncodedSlashesField = false,
        "What policies without `encoded_slashes` have.", "keep";
    prefix: LocatedField<PathPrefixField>,
        "What policies without `prefix` have: what is put before the path that is forwarded.", "/v1";
    map_back: LocatedField<BoolField>,
        "What policies without `map_back` have: whether responses of upstreams are mapped back to the client's view.", "true";
    request: RequestChangesField = FieldChangesConfig::default(),
        "What policies without `request` have: changes of what the upstream gets.", "{ set: { x-user: \"${user}\" }, remove: [cookie] }";
    response: ResponseChangesField = FieldChangesConfig::default(),
        "What policies without `response` have: changes of what the client gets.", "{ set: { strict-transport-security: max-age=31536000 }, remove: [server] }";
}

/// A `_defaults.yaml`. Its name is its folder below the folder of policies, such as `shop/admin`; empty for that folder
/// itself. The location is the start of the file.
pub type DefaultsConfig = Named<DefaultsFields, Located<String>>;

/// All policies, and the defaults of their folders.
#[derive(Debug, Default)]
pub struct PolicyFiles {
    /// The policies, each with the fields that it inherits.
    pub policies: Vec<PolicyConfig>,
    /// The defaults, those of a folder before those of its sub-folders.
    pub defaults: Vec<DefaultsConfig>,
}

/// The fields of a `_defaults.yaml` that policies inherit, as the file has them.
pub type InheritedFields = Vec<(MapKey, Node)>;

impl DefaultsFields {
    /// The limits that the file defines.
    pub fn own_limits(&self) -> impl Iterator<Item = &LimitConfig> {
        self.limits.iter().filter_map(LimitUse::own)
    }
}

/// Reads the defaults of `folder` from the file numbered `file`. Also returns the fields that policies inherit, without
/// those that are too large. These, and the fields that cannot be defaults, are reported. `None` if the file is no map,
/// which is reported too.
pub fn read_defaults(
    cx: &mut LoadContext,
    folder: &str,
    file: u32,
    mut node: Node,
) -> Option<(DefaultsConfig, InheritedFields)> {
    if let YamlValue::Map(entries) = &mut node.value {
        for (key, _) in entries.extract_if(.., |(key, _)| is_one_of(&ROUTE_FIELDS, key)) {
            let message = format!(
                "`{}` must fit the requests that a route takes, so it is no default",
                key.text
            );
            let help = "write it into each policy";
            cx.error(key.location, message, Some(help.into()));
        }
    }
    let fields = DefaultsFields::read(cx, &node)?;
    let defaults = Named {
        name: Located {
            value: folder.to_owned(),
            location: SourceLocation::start_of(file),
        },
        fields,
    };
    let YamlValue::Map(mut entries) = node.value else {
        return None;
    };
    let is_inherited = |key: &MapKey| {
        let mut fields = DEFAULTS_TABLE.fields.iter();
        fields.any(|field| field.name == key.text) && !is_one_of(&OWN_FIELDS, key)
    };
    entries.retain(|(key, node)| is_inherited(key) && has_inherited_size(cx, node));
    Some((defaults, entries))
}

/// Whether a value is small enough to be copied to each policy. Reports one that is not.
fn has_inherited_size(cx: &mut LoadContext, node: &Node) -> bool {
    let is_small = size_of_node(node) <= MAX_INHERITED_BYTES;
    if !is_small {
        let message = format!("a default has at most {MAX_INHERITED_BYTES} bytes");
        let help = "write it into the policies that need it";
        cx.error(node.location, message, Some(help.into()));
    }
    is_small
}

/// The bytes of the keys and scalars in a value, and one more for the value itself and for each value in it.
fn size_of_node(node: &Node) -> usize {
    let below: usize = match &node.value {
        YamlValue::List(items) => items.iter().map(size_of_node).sum(),
        YamlValue::Map(entries) => entries
            .iter()
            .map(|(key, node)| key.text.len() + size_of_node(node))
            .sum(),
        _ => node.scalar().map_or(0, str::len),
    };
    below + 1
}

fn is_one_of(names: &[&str], key: &MapKey) -> bool {
    names.contains(&key.text.as_str())
}

/// Adds the fields that a policy does not have, each from the nearest defaults with that field. The last of `above` are
/// the nearest. Values keep their locations, so that a mistake in one is reported in the file of defaults.
pub fn inherit_fields(policy: &mut Node, above: &[InheritedFields]) {
    let YamlValue::Map(entries) = &mut policy.value else {
        return;
    };
    let is_of_descriptors = entries.iter().any(|(own, _)| own.text == DESCRIPTOR_FIELD);
    for (key, value) in above.iter().rev().flatten() {
        if is_of_descriptors && !is_one_of(&DESCRIPTOR_DEFAULTS, key) {
            continue;
        }
        let replaces = |own: &MapKey| {
            own.text == key.text
                || (is_one_of(&ACTION_FIELDS, own) && is_one_of(&ACTION_FIELDS, key))
        };
        let own_errors = entries
            .iter_mut()
            .find(|(own, _)| own.text == ERRORS_FIELD && key.text == ERRORS_FIELD);
        if let Some((_, own_errors)) = own_errors {
            inherit_errors(own_errors, value);
        } else if !entries.iter().any(|(own, _)| replaces(own)) {
            entries.push((key.clone(), value.clone()));
        }
    }
}

/// Adds the files for those statuses that `own` leaves to files above.
fn inherit_errors(own: &mut Node, above: &Node) {
    if let (YamlValue::Map(own), YamlValue::Map(above)) = (&mut own.value, &above.value) {
        let is_left = |(key, _): &&(MapKey, Node)| {
            !own.iter().any(|(own_key, _)| covers_statuses(own_key, key))
        };
        let inherited: Vec<_> = above.iter().filter(is_left).cloned().collect();
        own.extend(inherited);
    }
}
