//! Reads the gateway file: its own fields here, and each section with the reader of its module.

use http::HeaderName;

use super::super::connections::Connections;
use super::super::context::LoadContext;
use super::super::section::{
    AtLeastOneField, FieldReader, LocatedField, Section, SectionField, section,
};
use super::super::table::{MERGE_KEY, MapFields, TextFormat, ValueShape};
use super::super::timeouts::Timeouts;
use super::super::tree::{MapKey, Node, YamlValue};
use super::ValueError;
use super::access_log::{AccessLogConfig, AccessLogField};
use super::bans::BansConfig;
use super::client_list::ClientListField;
use super::compress::CompressField;
use super::cors::CorsField;
use super::decide::DecideConfig;
use super::error_pages::ErrorPagesField;
use super::field::{
    FileNameField, FolderNameField, ListField, WholeNumberField, scalar_fields, word_fields,
};
use super::identity::IdentityConfig;
use super::limit::{LIMIT_TABLE, LimitConfig, LimitFields, LimitFile, read_limit};
use super::listen::{AdminConfig, AdminField, ListenerField};
use super::plan::{PLAN_TABLE, PlanConfig, read_plan};
use super::record::{RecordConfig, RecordField};
use super::scalar::{HEADER_NAME_FORMAT, HeaderStyleField, parse_header_name};
use super::store::{StoreConfig, StoreField};
use super::switch_word::{is_off, is_on};
use super::traces::TracesConfig;
use super::upstream::{SERVER_FORMAT, ServerField, UPSTREAM_TABLE, UpstreamConfig, read_upstream};
use crate::identity::strip::is_unfit_for_request_id;
use crate::route::pattern::Segment;
use crate::route::{HeaderStyle, PathMatching, Pattern};

/// Maximum number of worker threads, above the number of cores of all but the largest machines.
const MAX_WORKERS: u64 = 1024;

section! {
    /// The fields of the gateway file.
    pub struct GatewayConfig, table GATEWAY_TABLE = "the gateway file",
        "What tollgate is told once: where it listens, what is behind it, who asks and what holds on every route.", check check_upstreams_present;
    version: VersionField, "The version of this format.", "1";
    workers: WholeNumberField<usize, 1, MAX_WORKERS>, "Worker threads. Default: one per core.", "2";
    listen: AtLeastOneField<ListField<ListenerField>> = Vec::new(), "Where clients connect.", "0.0.0.0:8080";
    decide: AtLeastOneField<SectionField<DecideConfig>> = DecideConfig::default(),
        "Where other proxies ask whether they may serve a request. Without `listen` policies need no upstream.", "{ http: 127.0.0.1:8082 }";
    admin: AdminField = Some(AdminConfig::default()),
        "Where operators connect. Default: 127.0.0.1:9900.", "127.0.0.1:9900";
    policies: FolderNameField, "The folder of policies, one route per file. Its sub-folders are read too. Default: policies.", "policies";
    upstreams: UpstreamsField = Vec::new(),
        "The servers behind, by name. Required with `listen`.", "{ shop: [http://192.0.2.11:8080] }";
    identity: SectionField<IdentityConfig> = IdentityConfig::default(),
        "How the gateway knows who asks.", "{ token: { bearer: true } }";
    plans: PlansField = Vec::new(), "The plans, by name.", "{ free: { multiply: 1 } }";
    timeouts: SectionField<Timeouts> = Timeouts::default(), "How long things may take.", "{ connect: 2s }";
    connections: SectionField<Connections> = Connections::default(),
        "How many connections clients may have.", "{ per_ip: 200 }";
    deny: ClientListField,
        "Clients whose every request gets 403, whatever it asks for.", "{ ip: [203.0.113.0/24, blocked.txt] }";
    allow: ClientListField,
        "The only clients that are served; all others get 403. Of several identities each one must match.", "{ ip: [192.0.2.0/24] }";
    bans: SectionField<BansConfig> = BansConfig::default(),
        "What clients get that are banned at run time, as by `tollgate ban`.", "{ response: 403 }";
    limits: LimitsField = Vec::new(), "Limits of every route, by name.", "{ per-ip: { key: ip, rate: 10/s } }";
    overrides: FileNameField,
        "A file of limits of single keys, in place of those of `limits`: `{ per-ip: { ip=192.0.2.7: 100/s } }`.", "overrides.yaml";
    store: StoreField = StoreConfig::default(), "Where counts live. Default: 256MiB of memory.", "memory";
    record: RecordField = Some(RecordConfig::default()),
        "What happened in every second, for years. Default: memory, the last two or three hours.", "{ dir: data/record }";
    access_log: AccessLogField = AccessLogConfig::default(),
        "Where requests are logged. Default: stdout.", "{ file: access.log, requests: refused }";
    traces: SectionField<TracesConfig>,
        "Spans of requests, which a collector of OpenTelemetry gets. Default: none.", "{ to: \"https://collector:4318/v1/traces\", sample: 1% }";
    compress: CompressField,
        "Whether responses of upstreams are compressed for clients that accept it, on every route that says nothing else: by all codings, or by those of a list, the preferred one first. Default: off.", "true";
    cors: CorsField, "Which pages of other origins may read responses, on every route that says nothing else. Default: what the upstream says.", "{ origins: https://app.example.com }";
    errors: ErrorPagesField<false> = Vec::new(),
        "The bodies of the gateway's own refusals by status, `4xx` or `5xx`: a `.html` file for browsers, a `.json` file for all others, or both in a list. In them stand `${status}`, `${title}`, `${detail}`, `${type}`, `${limit}`, `${retry_after}`, `${request_id}`, `${host}`, `${path}` and `${ip}`. Default: problem documents.", "{ 429: errors/429.html, 5xx: [errors/5xx.html, errors/5xx.json] }";
    request_id: LocatedField<RequestIdField>,
        "The header of an id that each request has: of a trusted proxy, or else a new one. The upstream, the client, problem documents and the access log get it. Default: none.", "x-request-id";
    usage: LocatedField<UsagePathField>,
        "A path at which callers see what they have left of each of their limits, as JSON. No limit counts these requests. Default: none.", "/.well-known/limits";
    headers: HeaderStyleField = HeaderStyle::Ietf, "Which rate-limit headers answers carry.", "ietf";
    paths: PathMatchingField = PathMatching::Fold,
        "Whether a limited route also takes other spellings of its path that frameworks accept: case, formats, what follows a script. It takes only those that a broader route on the same upstream would take otherwise. With fold, the body of a POST is searched for `_method` too.", "exact";
}

static USAGE_PATH_FORMAT: TextFormat = TextFormat {
    name: "path-of-usage",
    pattern: r"^\s*(/[^\s/?#*{};]+)+\s*$",
    doc: "A whole path of fixed segments.",
};

word_fields! {
    /// A field that says which spellings of its path a route accepts.
    pub struct PathMatchingField: PathMatching = "fold" => PathMatching::Fold, "exact" => PathMatching::Exact;
}

scalar_fields! {
    /// A field with the name of the header of the request's id.
    pub struct RequestIdField: HeaderName =
        ValueShape::Format(&HEADER_NAME_FORMAT), "the name of a header", parse_request_id_field;
    /// A field with the path at which callers see what they have left.
    pub struct UsagePathField: Pattern =
        ValueShape::Format(&USAGE_PATH_FORMAT), "a path such as /.well-known/limits", parse_usage_path;
    /// A field with the version of the format of the files.
    pub struct VersionField: () = ValueShape::WholeNumber(1, 1), "the version of this format, 1", parse_version;
}

/// Reports a missing `upstreams` where clients connect, and notes whether they do.
fn check_upstreams_present(cx: &mut LoadContext, fields: &MapFields<'_>, _: &mut GatewayConfig) {
    // A mistake in `decide` is reported alone: policies still need no upstream.
    cx.is_served_by_others = fields.has("decide") && !fields.has("listen");
    // A merge key is reported as such, and may have been meant to provide the field.
    if !cx.is_served_by_others && !fields.has("upstreams") && !fields.has(MERGE_KEY) {
        let message = "the gateway file needs the field `upstreams`";
        let help = "for instance `upstreams: { shop: [http://192.0.2.11:8080] }`";
        cx.error(fields.location, message, Some(help.into()));
    }
}

impl GatewayConfig {
    /// Whether no client connects here, so that all requests are served by proxies that ask.
    pub fn is_served_by_others(&self) -> bool {
        self.listen.is_empty() && self.decide.addresses().next().is_some()
    }

    /// Whether requests come over HTTP: from clients, or from proxies that ask.
    pub fn gets_requests(&self) -> bool {
        !self.listen.is_empty() || self.decide.http.is_some()
    }

    /// The upstream of this name.
    pub fn find_upstream(&self, name: &str) -> Option<&UpstreamConfig> {
        let mut upstreams = self.upstreams.iter();
        upstreams.find(|upstream| upstream.name.value == name)
    }

    /// The largest factor by which a plan multiplies this limit; 1 without plans, or if the limit lacks `plans: true`.
    pub fn max_plan_factor(&self, limit: &LimitFields) -> u32 {
        if !limit.plans.is_some_and(|plans| plans.value) {
            return 1;
        }
        let plan_factors = self.plans.iter().map(|plan| plan.plan_factor);
        plan_factors.max().unwrap_or(1).max(1)
    }
}

/// A field with the upstreams by name. An empty map is reported.
pub struct UpstreamsField;

impl FieldReader for UpstreamsField {
    type Value = Vec<UpstreamConfig>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ValueShape::AnyOf(&[
        ValueShape::Format(&SERVER_FORMAT),
        ValueShape::List(&ServerField::SHAPE),
        ValueShape::Table(&UPSTREAM_TABLE),
    ]));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<UpstreamConfig>> {
        let is_empty = match &node.value {
            YamlValue::Map(entries) => entries.is_empty(),
            value => matches!(value, YamlValue::Null),
        };
        if is_empty {
            let help = "name one, for instance `shop: [http://192.0.2.11:8080]`";
            cx.error(node.location, "there are no upstreams", Some(help.into()));
        }
        Some(read_named_entries(cx, node, "upstreams", read_upstream))
    }
}

/// A field with the plans by name.
pub struct PlansField;

impl FieldReader for PlansField {
    type Value = Vec<PlanConfig>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ValueShape::Table(&PLAN_TABLE));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<PlanConfig>> {
        Some(read_named_entries(cx, node, "plans", read_plan))
    }
}

/// A field with limits by name.
pub struct LimitsField;

impl FieldReader for LimitsField {
    type Value = Vec<LimitConfig>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ValueShape::Table(&LIMIT_TABLE));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<LimitConfig>> {
        let limits = read_named_entries(cx, node, "limits", |cx, key, node| {
            read_limit(cx, key, node, LimitFile::Shared)
        });
        Some(limits)
    }
}

/// Reads the gateway file. Fields with a mistake, which is reported, have their defaults; so have all fields if the
/// file is no map.
pub fn read_gateway(cx: &mut LoadContext, node: &Node) -> GatewayConfig {
    GatewayConfig::read(cx, node).unwrap_or_default()
}

/// Reads `admin` of the gateway file, and `listen` if the admin listener is switched off. All other fields have their
/// defaults. `expand` replaces the references in a field before it is read.
pub fn read_endpoints(
    cx: &mut LoadContext,
    node: &mut Node,
    expand: impl Fn(&mut LoadContext, &mut Node),
) -> GatewayConfig {
    let mut expand_field = |cx: &mut LoadContext, name: &str| {
        let YamlValue::Map(entries) = &mut node.value else {
            return None;
        };
        let (_, node) = entries.iter_mut().find(|(key, _)| key.text == name)?;
        expand(cx, node);
        Some(node.clone())
    };
    let mut gateway = GatewayConfig::default();
    if let Some(node) = expand_field(cx, "admin")
        && let Some(admin) = AdminField::read(cx, &node)
    {
        gateway.admin = admin;
    }
    if gateway.admin.is_none()
        && let Some(node) = expand_field(cx, "listen")
    {
        gateway.listen = cx.read_list(&node, ListenerField::read);
    }
    gateway
}

/// Reads each entry of a map whose keys the user chooses, and leaves out those for which `read_entry` returns `None`.
/// Messages call the entries `kind`.
fn read_named_entries<T>(
    cx: &mut LoadContext,
    node: &Node,
    kind: &str,
    mut read_entry: impl FnMut(&mut LoadContext, &MapKey, &Node) -> Option<T>,
) -> Vec<T> {
    cx.named_entries(node, kind)
        .iter()
        .filter_map(|(key, value)| read_entry(cx, key, value))
        .collect()
}

fn parse_request_id_field(text: &str) -> Result<HeaderName, ValueError> {
    let help = "write a name such as x-request-id; without the field requests have no id";
    if is_on(text) || is_off(text) {
        let message = format!("`{text}` does not say which header has the id");
        return Err(ValueError::new(message, help));
    }
    let name = parse_header_name(text).map_err(|message| ValueError::new(message, help))?;
    if is_unfit_for_request_id(&name) {
        let message = format!("`{name}` has another meaning in requests or answers");
        return Err(ValueError::new(message, help));
    }
    Ok(name)
}

fn parse_usage_path(text: &str) -> Result<Pattern, ValueError> {
    let help = "write a path such as /.well-known/limits; without the field there is no such path";
    let pattern = Pattern::parse(text).map_err(|error| {
        let message = format!("`{text}` is not a path: {}", error.kind);
        ValueError::new(message, help)
    })?;
    let is_fixed = |segment: &Segment| matches!(segment, Segment::Literal(_));
    if !pattern.methods().is_any() {
        let message = format!("`{text}` names a method");
        let help = format!(
            "write `{}`, which is answered for GET and HEAD",
            pattern.path_text()
        );
        return Err(ValueError::new(message, help));
    }
    if pattern.segments().is_empty() || !pattern.segments().iter().all(is_fixed) {
        let message = format!("`{text}` is not one path of its own");
        return Err(ValueError::new(message, help));
    }
    Ok(pattern)
}

fn parse_version(text: &str) -> Result<(), ValueError> {
    let help = "write `version: 1`";
    let message = format!("this gateway knows version 1 of the format, not `{text}`");
    (text == "1")
        .then_some(())
        .ok_or_else(|| ValueError::new(message, help))
}
