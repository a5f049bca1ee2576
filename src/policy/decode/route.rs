//! Reads a policy file, which describes the requests it matches, their upstream and their limits. It becomes one route
//! for each pair of a match and a host.

use super::super::context::LoadContext;
use super::super::section::{
    FieldReader, InheritableField, LocatedField, Named, Section, SectionField, UnlessDomainField,
    section,
};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Located, Node, YamlValue};
use super::ValueError;
use super::answer::{RedirectField, ResponseConfig};
use super::client_list::ClientListField;
use super::compress::CompressField;
use super::cors::CorsField;
use super::descriptor::{DomainField, EntriesField};
use super::error_pages::ErrorPagesField;
use super::field::{BoolField, FileNameField, ListField, SizeField, scalar_fields, word_fields};
use super::field_changes::{FieldChangesConfig, RequestChangesField, ResponseChangesField};
use super::limit::{LIMIT_TABLE, LimitConfig, LimitFile, read_limit};
use super::listen::ListenerNameField;
use super::required::RequiredIdentityField;
use super::scalar::{HeaderStyleField, PriorityField};
use super::switch_word::is_off;
use crate::route::{DescriptorPattern, HostPattern, Pattern, PatternErrorKind, normalise};

/// Maximum bytes of `strip` and of `prefix`.
const MAX_PATH_PREFIX_BYTES: usize = 256;

/// The fields that a policy of descriptors may have.
const DESCRIPTOR_FIELDS: [&str; 5] = ["domain", "entries", "limits", "overrides", "headers"];

/// The largest `max_body`: 1 TiB.
pub(super) const MAX_BODY_BYTES: u64 = 1 << 40;

section! {
    /// The fields of a policy file: which requests it matches, their upstream and their limits.
    pub struct PolicyFields, table POLICY_TABLE = "a policy",
        "One route of tollgate: which requests it takes, where they go and what limits them.", check check_action;
    domain: LocatedField<DomainField>,
        "In place of `match`: the domain of the descriptors by which other proxies ask at `decide: { grpc: … }`. Of all other fields only `entries`, `limits`, `overrides` and `headers` may stand beside it.", "edge";
    entries: EntriesField = Vec::new(),
        "With `domain`: the entries that a descriptor must have, no more and no fewer. A value is a text; `TEXT*` is every value that begins so, `any` every value, and `[TEXT]` exactly this text. A list is a key that comes with each of these values.", "{ generic_key: api, remote_address: any }";
    patterns("match"): UnlessDomainField<ListField<LocatedField<MatchField>>> = Vec::new(),
        "Which requests it is for; of several each one. The most specific match wins.", "GET /api/**";
    hosts("host"): ListField<LocatedField<HostField>> = Vec::new(),
        "On which host, or on which of several. Default: any.", "api.example.com";
    listen: ListField<LocatedField<ListenerNameField>> = Vec::new(),
        "Only on the listener of this name, or on several. Default: on all.", "public";
    upstream: InheritableField<LocatedField<UpstreamNameField>>, "Which upstream serves it.", "shop";
    redirect: InheritableField<LocatedField<RedirectField>>,
        "In place of `upstream`: where clients are sent, by 308. `https` is the same URL over TLS, a URL without a path keeps path and query, and anything else is where they go; with `strip` the rest of the path and the query follow it.", "https://www.example.com";
    respond: InheritableField<LocatedField<SectionField<ResponseConfig>>>,
        "In place of `upstream`: the answer of the gateway itself.", "{ status: 503, body: back soon }";
    deny: ClientListField,
        "Clients that get 403 here, beside those that the files above deny.", "{ ip: [203.0.113.0/24] }";
    allow: ClientListField,
        "The only clients that are served here; all others get 403. An `allow` of a file above must admit a client too.", "{ user: [alice, bob] }";
    limits: LimitUsesField<false> = Vec::new(),
        "Its own limits; `name: ~`, or a list of names, takes limits of the gateway file or of a `_defaults.yaml` above, and `name: off` says that one of them does not hold here.", "{ per-user: { key: user, rate: 100/m } }";
    overrides: FileNameField,
        "A file of limits of single keys, in place of those of its own limits: `{ per-user: { user=acme: 5000/m } }`.", "overrides.yaml";
    require: ListField<RequiredIdentityField> = Vec::new(),
        "Identities without which a request gets 401; of the user also the sources, of which one must have verified it: `{ user: https://idp.example }`.", "user";
    max_body_bytes("max_body"): SizeField<1, MAX_BODY_BYTES>,
        "How large a request's body may be; a larger one gets 413. Default: any size.", "10MiB";
    compress: CompressField,
        "Whether responses are compressed for clients that accept it: by all codings, or by those of a list, the preferred one first. Default: what the gateway file says.", "[zstd, gzip]";
    cors: CorsField,
        "Which pages of other origins may read responses. Default: what the gateway file says.", "{ origins: https://app.example.com }";
    errors: ErrorPagesField<true> = Vec::new(),
        "The bodies of the gateway's own refusals, by status. For other statuses those of the files above hold.", "{ 429: errors/429.html }";
    priority: PriorityField, "What is shed last under pressure. Default: what the plan says, else normal.", "critical";
    headers: HeaderStyleField,
        "Which rate-limit headers answers carry. Default: what the gateway file says.", "both";
    keeps_slashes("encoded_slashes"): EncodedSlashesField = false,
        "Whether `%2F` in a path is a slash, or part of the segment that `*` or `{name}` takes, as the upstream must read it too.", "keep";
    strip: LocatedField<PathPrefixField>,
        "Taken off the path before it is forwarded, or before it follows the target of `redirect`: whole segments with which every `match` begins. Limits and logs know the client's path.", "/api";
    prefix: LocatedField<PathPrefixField>, "Put before the path that is forwarded, after `strip`.", "/v1";
    map_back: LocatedField<BoolField>,
        "Whether what responses of the upstream say of its own place is changed to what the client knows: `Location`, `Content-Location`, `Refresh`, and path and domain of `Set-Cookie`.", "true";
    request: RequestChangesField = FieldChangesConfig::default(),
        "Which header fields of requests are changed before the upstream gets them.", "{ set: { x-user: \"${user}\" }, remove: [cookie] }";
    response: ResponseChangesField = FieldChangesConfig::default(),
        "Which header fields of answers are changed before the client gets them, those of the gateway itself included.", "{ set: { strict-transport-security: max-age=31536000 }, remove: [server] }";
}

/// A policy file. Its path below the folder of policies, without `.yaml`, is the name of the route.
pub type PolicyConfig = Named<PolicyFields, String>;

static MATCH_FORMAT: TextFormat = TextFormat {
    name: "match",
    pattern: r"^\s*([A-Z-]+(,[A-Z-]+)*\s+)?/\S*\s*$",
    doc: "[METHOD[,METHOD]] PATH; in a path `*` and `{name}` are one segment, `**` at the end all below.",
};

static HOST_FORMAT: TextFormat = TextFormat {
    name: "host",
    pattern: r"^(\*|(\*\.)?[^\s/:*]+|\[.+\])$",
    doc: "A host name, *.example.com for all names below, an IP address (IPv6 in brackets), or * for any.",
};

static PATH_PREFIX_FORMAT: TextFormat = TextFormat {
    name: "path-prefix",
    pattern: r"^\s*(/[^\s/?#*{};]+)+\s*$",
    doc: "The begin of a path: whole segments, without a slash at the end.",
};

static NAME_FORMAT: TextFormat = TextFormat {
    name: "name",
    pattern: r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
    doc: "1 to 64 letters, digits, `-` or `_`, starting with a letter.",
};

word_fields! {
    /// A field that says how `%2F` in a path is read; the value says whether it is part of a segment.
    pub struct EncodedSlashesField: bool = "split" => false, "keep" => true;
}

scalar_fields! {
    /// A field with methods and a path.
    pub struct MatchField: Pattern =
        ValueShape::Format(&MATCH_FORMAT), "a match such as GET /api/**", parse_match;
    /// A field with the hosts that a route matches.
    pub struct HostField: HostPattern =
        ValueShape::Format(&HOST_FORMAT), "a host such as api.example.com", parse_host;
    /// A field with whole segments at the begin of a path.
    pub struct PathPrefixField: Box<str> =
        ValueShape::Format(&PATH_PREFIX_FORMAT), "the begin of a path such as /api", parse_path_prefix;
    /// A field with the name of an upstream.
    pub struct UpstreamNameField: String = ValueShape::Format(&NAME_FORMAT), "the name of an upstream";
}

impl PolicyFields {
    /// The patterns of the policy: the first match on each of its hosts, then the next one. Without `host`, each match
    /// is for any host. The locations are those of the matches.
    ///
    /// A policy of descriptors has a pattern of all paths, which no request is compared with.
    pub fn patterns_with_hosts(&self) -> Vec<Located<Pattern>> {
        if let Some(domain) = &self.domain {
            let location = domain.location;
            let pattern = Pattern::parse("/**").ok();
            let patterns = pattern.map(|value| Located { value, location });
            return patterns.into_iter().collect();
        }
        let any_host = [HostPattern::Any];
        let mut hosts: Vec<&HostPattern> = Vec::new();
        for host in &self.hosts {
            // `check` reports a host that the list has twice.
            if !hosts.contains(&&host.value) {
                hosts.push(&host.value);
            }
        }
        if hosts.is_empty() {
            hosts.extend(&any_host);
        }
        let on_hosts = |pattern: &Located<Pattern>| {
            let location = pattern.location;
            let pattern = pattern.value.clone();
            let on_host = move |host: &&HostPattern| Located {
                value: pattern.clone().with_host((*host).clone()),
                location,
            };
            hosts.iter().map(on_host).collect::<Vec<_>>()
        };
        self.patterns.iter().flat_map(on_hosts).collect()
    }
}

impl PolicyFields {
    /// The descriptors that the policy matches; `None` for a policy of HTTP requests, and after a mistake in its entries.
    pub fn descriptor_pattern(&self) -> Option<DescriptorPattern> {
        let domain = self.domain.as_ref().filter(|_| !self.entries.is_empty())?;
        Some(DescriptorPattern::new(&domain.value, self.entries.clone()))
    }

    /// Whether the policy lists the limit of this name of a file above.
    pub fn lists(&self, limit_name: &str) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|used| matches!(used, LimitUse::Shared(name) if name.value == limit_name))
    }
}

/// A limit of a policy, or of the defaults of a folder.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitUse {
    /// A limit that the file defines.
    Own(Box<LimitConfig>),
    /// The name of a limit of the gateway file or of a `_defaults.yaml` above.
    Shared(Located<String>),
    /// The name of a limit of a file above that does not hold on this route, or on the routes of this folder.
    Off(Located<String>),
}

impl LimitUse {
    /// The limit, if the file defines it.
    pub fn own(&self) -> Option<&LimitConfig> {
        match self {
            LimitUse::Own(limit) => Some(limit),
            LimitUse::Shared(_) | LimitUse::Off(_) => None,
        }
    }
}

/// A field with limits: a map or a list. In a map, `~` shares a limit of a file above, and `off` switches one off. A
/// list has names of limits to share. `IS_SHARED` says that the file is a `_defaults.yaml`, whose own limits several
/// policies have.
pub struct LimitUsesField<const IS_SHARED: bool>;

impl<const IS_SHARED: bool> FieldReader for LimitUsesField<IS_SHARED> {
    type Value = Vec<LimitUse>;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::NamedMap(&ValueShape::AnyOf(&[
            ValueShape::Table(&LIMIT_TABLE),
            ValueShape::Null,
            ValueShape::Words(&["off"]),
        ])),
        ValueShape::List(&ValueShape::Format(&NAME_FORMAT)),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<LimitUse>> {
        if let YamlValue::List(_) = node.value {
            let names = cx.read_list(node, read_limit_name);
            return Some(names.into_iter().map(LimitUse::Shared).collect());
        }
        let file = match IS_SHARED {
            true => LimitFile::Shared,
            false => LimitFile::Policy,
        };
        let mut uses = Vec::new();
        for (key, node) in cx.named_entries(node, "limits") {
            let name = || Located {
                value: key.text.clone(),
                location: key.location,
            };
            if matches!(node.value, YamlValue::Null) {
                uses.push(LimitUse::Shared(name()));
            } else if node.scalar().is_some_and(is_off) {
                uses.push(LimitUse::Off(name()));
            } else if let Some(limit) = read_limit(cx, key, node, file) {
                uses.push(LimitUse::Own(Box::new(limit)));
            }
        }
        Some(uses)
    }
}

/// Reads the name of a limit in a list. `None` for another value, which is reported.
fn read_limit_name(cx: &mut LoadContext, node: &Node) -> Option<Located<String>> {
    if matches!(node.value, YamlValue::Map(_)) {
        let help = "write the limits as a map, without the dashes";
        cx.error(
            node.location,
            "a list of limits holds names only",
            Some(help.into()),
        );
        return None;
    }
    cx.read_text(node, "the name of a limit")
}

/// Reports all but one of the fields that say what becomes of requests.
fn check_action(cx: &mut LoadContext, fields: &MapFields<'_>, policy: &mut PolicyFields) {
    check_descriptor(cx, fields, policy);
    let names = ["upstream", "redirect", "respond"];
    // A policy without any was reported before.
    if names.iter().any(|name| fields.has(name)) {
        fields.require_one_of(cx, &names);
    }
}

/// Reports fields that a policy of descriptors cannot have, and one of `domain` and `entries` without the other.
fn check_descriptor(cx: &mut LoadContext, fields: &MapFields<'_>, policy: &mut PolicyFields) {
    if !fields.has("domain") {
        fields.check_belongs_to(cx, "entries", "domain");
        policy.entries.clear();
        return;
    }
    if !fields.has("entries") {
        let message = "a policy with `domain` needs `entries`";
        let help = "for instance `entries: { remote_address: any }`";
        cx.error(fields.location_of("domain"), message, Some(help.into()));
    }
    let names = POLICY_TABLE.fields.iter().map(|field| field.name);
    for name in names.filter(|name| fields.has(name) && !DESCRIPTOR_FIELDS.contains(name)) {
        let message = format!(
            "`{name}` is about HTTP requests, and a policy with `domain` is about descriptors"
        );
        let help = "remove it, or write it into a policy of its own with `match`";
        cx.error(fields.location_of(name), message, Some(help.into()));
        cx.mute_location(fields.value_location(name));
    }
}

/// Reads the policy of the route `name`. `None` if the file is no map, which is reported.
pub fn read_policy(cx: &mut LoadContext, name: &str, node: &Node) -> Option<PolicyConfig> {
    cx.fixed_entries.clear();
    Some(Named {
        name: name.into(),
        fields: PolicyFields::read(cx, node)?,
    })
}

/// Parses a pattern of methods and a path, for any host.
fn parse_match(text: &str) -> Result<Pattern, ValueError> {
    Pattern::parse(text).map_err(|error| ValueError {
        message: format!("`{text}` is not a match: {}", error.kind),
        help: suggest_match(text, &error.kind),
        offset: Some(error.offset),
    })
}

/// Parses whole segments at the begin of a path, in the normal form of paths.
fn parse_path_prefix(text: &str) -> Result<Box<str>, ValueError> {
    let text = text.trim();
    let help = |segments: &str| match segments.trim_end_matches('/') {
        "" => "leave the field out, or write a segment such as `/api`".to_owned(),
        segments => format!("write `{segments}`"),
    };
    if text.contains(['?', '#', '*', '{', '}']) || text.len() > MAX_PATH_PREFIX_BYTES {
        let message = format!("`{text}` is not the begin of a path");
        return Err(ValueError::new(
            message,
            "write fixed segments such as `/api`, of at most 256 bytes",
        ));
    }
    if !text.starts_with('/') {
        let message = format!("`{text}` does not begin with `/`");
        return Err(ValueError::new(message, help(&format!("/{text}"))));
    }
    match normalise(text) {
        Ok(normal) if *normal == *text && text.len() > 1 && !text.ends_with('/') => Ok(text.into()),
        Ok(normal) => {
            let message = format!("`{text}` is not written as whole segments of a path");
            Err(ValueError::new(message, help(&normal)))
        }
        Err(error) => {
            let message = format!("`{text}` is not the begin of a path: {error}");
            Err(ValueError::new(
                message,
                "write fixed segments such as `/api`",
            ))
        }
    }
}

fn parse_host(text: &str) -> Result<HostPattern, ValueError> {
    HostPattern::parse(text.trim()).map_err(|error| ValueError {
        message: format!("`{text}` is not a host: {}", error.kind),
        help: None,
        offset: Some(error.offset),
    })
}

/// Suggests a correction of an invalid `match`; `None` if none is obvious.
fn suggest_match(text: &str, kind: &PatternErrorKind) -> Option<String> {
    let without_spaces = text.replace(", ", ",").replace(" ,", ",");
    let suggestion = match kind {
        PatternErrorKind::LowerCase(_) => {
            let (methods, path) = text.split_once(' ')?;
            format!("{} {}", methods.to_uppercase(), path.trim_start())
        }
        PatternErrorKind::NoSlash => format!("/{}", text.trim_start()),
        PatternErrorKind::Query => text.split(['?', '#']).next()?.to_owned(),
        PatternErrorKind::UnknownMethod(_) if without_spaces != text => without_spaces,
        PatternErrorKind::DoubleStarInside => {
            return Some("inside a path write `*` or `{name}` for one segment".into());
        }
        _ => return None,
    };
    Pattern::parse(&suggestion)
        .is_ok()
        .then(|| format!("write `{suggestion}`"))
}
