//! Reads the fields `balance`, `health` and `eject` of an upstream: how its servers share requests, and when one of
//! them receives none.

use std::time::Duration;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, RequiredField, Section, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Located, Node, YamlValue};
use super::ValueError;
use super::field::{
    BoolField, DurationField, ListField, TimeoutField, WholeNumberField, scalar_fields, word_fields,
};
use crate::limit::Identity;
use crate::upstream::BalanceMethod;

/// Maximum number of checks or requests in a row that decide about a server.
const MAX_IN_A_ROW: u64 = 1_000;
/// Minimum interval and timeout of health checks in milliseconds. More frequent checks would load the servers.
const MIN_CHECK_MILLIS: u64 = 100;
/// Maximum interval and timeout of health checks in milliseconds: a day.
const MAX_CHECK_MILLIS: u64 = 86_400_000;

section! {
    /// How a server is chosen by the identity of a request.
    pub struct HashBalance, table BALANCE_TABLE = "`balance`", "Which server is next.";
    hash: RequiredField<LocatedField<ListField<HashKeyField>>>,
        "Requests with the same identity, or list of them, go to the same server as long as it is well; those without, in turn.", "user";
}

section! {
    /// How the health of servers is checked.
    pub struct HealthConfig, table HEALTH_TABLE = "`health`",
        "Asks each server whether it is well.", check check_health;
    path: CheckPathField, "A GET for this path must be answered with 2xx or 3xx.", "/healthz";
    tcp: LocatedField<BoolField>, "It must take a connection; instead of `path`.", "true";
    every: DurationField<MIN_CHECK_MILLIS, MAX_CHECK_MILLIS> = Duration::from_secs(5), "How often.", "5s";
    timeout: DurationField<MIN_CHECK_MILLIS, MAX_CHECK_MILLIS>,
        "How long an answer may take. Default: 2s, or `every` if that is less.", "2s";
    fall: WholeNumberField<u32, 1, MAX_IN_A_ROW> = 3,
        "Failures in a row that take a server out; the very first check is enough.", "3";
    rise: WholeNumberField<u32, 1, MAX_IN_A_ROW> = 2, "Successes in a row that bring it back.", "2";
}

section! {
    /// When a server is ejected.
    pub struct EjectConfig, table EJECT_TABLE = "`eject`",
        "When a server is left alone. A request fails that gets no connection, no answer or none in time, or 502, 503 or 504.";
    after: WholeNumberField<u32, 1, MAX_IN_A_ROW> = 3, "Failures in a row.", "3";
    span("for"): TimeoutField = Duration::from_secs(10),
        "For how long the first time; the n-th time in a row n times as long, up to 5m.", "10s";
}

word_fields! {
    /// A field that says which server is next, unless an identity decides.
    pub struct BalanceWordField: BalanceMethod =
        "round_robin" => BalanceMethod::RoundRobin, "least_requests" => BalanceMethod::LeastRequests;
    /// A field with an identity by which a server may be chosen: the built-in ones without `email`, and no custom ones.
    pub struct HashKeyField: Identity =
        "ip" => Identity::Ip, "user" => Identity::User, "token" => Identity::Token, "plan" => Identity::Plan;
}

scalar_fields! {
    /// A field with the path of a health check.
    pub struct CheckPathField: String = ValueShape::Text, "a path such as /healthz", parse_check_path;
}

/// A field with a word, or with a map that names the identities which choose the server.
pub struct BalanceField;

impl FieldReader for BalanceField {
    type Value = Located<BalanceMethod>;
    const SHAPE: ValueShape =
        ValueShape::AnyOf(&[BalanceWordField::SHAPE, ValueShape::Table(&BALANCE_TABLE)]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<BalanceMethod>> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return LocatedField::<BalanceWordField>::read(cx, node);
        }
        let hash = HashBalance::read(cx, node)?.hash?;
        Some(hash.map(BalanceMethod::Hash))
    }
}

/// A field with the word `off`, which is read as [`None`], or with a map.
pub struct EjectField;

impl FieldReader for EjectField {
    type Value = Option<EjectConfig>;
    const SHAPE: ValueShape =
        ValueShape::AnyOf(&[ValueShape::Words(&["off"]), ValueShape::Table(&EJECT_TABLE)]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Option<EjectConfig>> {
        if matches!(node.value, YamlValue::Map(_)) {
            return EjectConfig::read(cx, node).map(Some);
        }
        cx.read_scalar(node, "`off` or `{ after: 3, for: 10s }`", |text| {
            let help = "write `off`, or for instance `{ after: 3, for: 10s }`";
            let error = || ValueError::new(format!("unknown word `{text}`"), help);
            (text == "off").then_some(None).ok_or_else(error)
        })
    }
}

/// Checks that a health check has either a path to request or `tcp: true`, by which it only connects.
fn check_health(cx: &mut LoadContext, fields: &MapFields<'_>, health: &HealthConfig) {
    fields.require_one_of(cx, &["path", "tcp"]);
    if let Some(tcp) = health.tcp.filter(|tcp| !tcp.value) {
        let help = "write `tcp: true`, or `path: /healthz`";
        cx.error(
            tcp.location,
            "`tcp: false` asks for nothing",
            Some(help.into()),
        );
    }
}

/// Parses the path of a health check: visible ASCII characters, the first of them a slash.
fn parse_check_path(text: &str) -> Result<String, ValueError> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_path.then(|| text.to_owned()).ok_or_else(|| {
        let message = format!("`{text}` is not a path");
        ValueError::new(message, "write for instance `/healthz`")
    })
}
