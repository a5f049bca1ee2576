//! A policy file: one route.

use super::super::collect::Cx;
use super::super::model::{LimitUse, PolicyConfig};
use super::super::table::{Form, Table, ValueShape, may, must, words};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::leaf::HEADER_STYLES;
use super::limit::{LIMIT, limit};
use crate::route::{HostPattern, Pattern, PatternErrorKind, Priority};

static MATCH: Form = Form {
    name: "match",
    pattern: r"^\s*([A-Z-]+(,[A-Z-]+)*\s+)?/\S*\s*$",
    doc: "[METHOD[,METHOD]] PATH; in a path `*` and `{name}` are one segment, `**` at the end all below.",
};

static HOST: Form = Form {
    name: "host",
    pattern: r"^(\*|(\*\.)?[^\s/:*]+|\[.+\])$",
    doc: "A host name, or *.example.com for all names below.",
};

static NAME: Form = Form {
    name: "name",
    pattern: r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
    doc: "1 to 64 letters, digits, `-` or `_`, starting with a letter.",
};

/// A limit of a policy: written out, or `~` for one of the gateway file.
static USES: &[ValueShape] = &[
    ValueShape::Named(&ValueShape::Either(&[
        ValueShape::Table(&LIMIT),
        ValueShape::Nothing,
    ])),
    ValueShape::List(&ValueShape::Form(&NAME)),
];

/// A policy file.
pub static POLICY: Table = Table {
    name: "a policy",
    doc: "One route of tollgate: which requests it takes, where they go and what limits them.",
    fields: &[
        must(
            "match",
            ValueShape::Form(&MATCH),
            "Which requests it is for; the most specific match wins.",
            "GET /api/**",
        ),
        may(
            "host",
            ValueShape::Form(&HOST),
            "On which host. Default: any.",
            "api.example.com",
        ),
        must(
            "upstream",
            ValueShape::Form(&NAME),
            "Which upstream serves it.",
            "shop",
        ),
        may(
            "limits",
            ValueShape::Either(USES),
            "Its own limits; `name: ~`, or a list of names, takes limits of the gateway file.",
            "{ per-user: { key: user, rate: 100/m } }",
        ),
        may(
            "require",
            ValueShape::Many(&ValueShape::Words(&["ip", "user", "token", "email"])),
            "Identities without which a request gets 401.",
            "user",
        ),
        may(
            "priority",
            ValueShape::Words(&words(&PRIORITIES)),
            "What is shed last under pressure. Default: what the plan says, else normal.",
            "critical",
        ),
        may(
            "headers",
            ValueShape::Words(&words(&HEADER_STYLES)),
            "Which rate-limit headers answers carry. Default: what the gateway file says.",
            "both",
        ),
        may(
            "encoded_slashes",
            ValueShape::Words(&["split", "keep"]),
            "Whether `%2F` in a path is a slash, or part of the segment that `*` or `{name}` takes, as the upstream must read it too. Default: split.",
            "keep",
        ),
    ],
};

/// The words for priorities.
pub const PRIORITIES: [(&str, Priority); 3] = [
    ("low", Priority::Low),
    ("normal", Priority::Normal),
    ("critical", Priority::Critical),
];

/// Reads the policy `name` from its file.
pub fn policy(cx: &mut Cx, name: &str, node: &Node) -> Option<PolicyConfig> {
    let fields = POLICY.open(cx, node)?;
    let pattern = fields.get("match").and_then(|node| {
        cx.read(node, "a match such as GET /api/**", |text| {
            Pattern::parse(text).map_err(|error| ValueError {
                message: format!("`{text}` is not a match: {}", error.kind),
                help: match_help(text, &error.kind),
                offset: Some(error.offset),
            })
        })
    });
    let host = fields.get("host").and_then(|node| {
        cx.read(node, "a host such as api.example.com", |text| {
            HostPattern::parse(text.trim()).map_err(|error| ValueError {
                message: format!("`{text}` is not a host: {}", error.kind),
                help: None,
                offset: Some(error.offset),
            })
        })
    });
    let priority = fields
        .get("priority")
        .and_then(|node| cx.word(node, &PRIORITIES));
    Some(PolicyConfig {
        name: name.into(),
        pattern,
        host,
        upstream: fields
            .get("upstream")
            .and_then(|node| cx.text(node, "the name of an upstream")),
        limits: fields
            .get("limits")
            .map_or_else(Vec::new, |node| uses(cx, node)),
        require: fields
            .get("require")
            .map_or_else(Vec::new, |node| cx.many(node, Cx::identity)),
        priority: priority.map(|priority| priority.value),
        headers: fields
            .get("headers")
            .and_then(|node| cx.headers(node))
            .map(|style| style.value),
        keeps_slashes: fields
            .get("encoded_slashes")
            .and_then(|node| cx.word(node, &[("split", false), ("keep", true)]))
            .is_some_and(|keeps| keeps.value),
    })
}

/// The correction of a mistaken `match`, if there is an obvious one.
fn match_help(text: &str, kind: &PatternErrorKind) -> Option<String> {
    let tight = text.replace(", ", ",").replace(" ,", ",");
    let fixed = match kind {
        PatternErrorKind::LowerCase(_) => {
            let (methods, path) = text.split_once(' ')?;
            format!("{} {}", methods.to_uppercase(), path.trim_start())
        }
        PatternErrorKind::NoSlash => format!("/{}", text.trim_start()),
        PatternErrorKind::Query => text.split(['?', '#']).next()?.to_owned(),
        PatternErrorKind::Method(_) if tight != text => tight,
        PatternErrorKind::RestInside => {
            return Some("inside a path write `*` or `{name}` for one segment".into());
        }
        _ => return None,
    };
    Pattern::parse(&fixed)
        .is_ok()
        .then(|| format!("write `{fixed}`"))
}

fn uses(cx: &mut Cx, node: &Node) -> Vec<LimitUse> {
    if let YamlValue::List(_) = node.value {
        let names = cx.many(node, |cx, item| {
            if matches!(item.value, YamlValue::Map(_)) {
                let help = "write the limits as a map, without the dashes";
                cx.error(
                    item.place,
                    "a list of limits holds names only",
                    Some(help.into()),
                );
                return None;
            }
            cx.text(item, "the name of a limit")
        });
        return names.into_iter().map(LimitUse::Shared).collect();
    }
    let entries = cx.named(node, "limits");
    let mut uses = Vec::new();
    for (key, node) in entries {
        if matches!(node.value, YamlValue::Null) {
            let name = super::super::model::Located {
                value: key.text.clone(),
                place: key.place,
            };
            uses.push(LimitUse::Shared(name));
        } else if let Some(limit) = limit(cx, key, node, false) {
            uses.push(LimitUse::Own(Box::new(limit)));
        }
    }
    uses
}
