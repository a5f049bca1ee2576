//! Reads a policy file, which describes one route: the requests it matches, their upstream and their limits.

use super::super::context::LoadContext;
use super::super::model::{LimitUse, Located, PolicyConfig};
use super::super::table::{Table, TextFormat, ValueShape, optional, required, words};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::limit::{LIMIT_TABLE, LimitFile, read_limit};
use super::scalar::HEADER_STYLE_WORDS;
use crate::route::{HostPattern, Pattern, PatternErrorKind, Priority};

static MATCH_FORMAT: TextFormat = TextFormat {
    name: "match",
    pattern: r"^\s*([A-Z-]+(,[A-Z-]+)*\s+)?/\S*\s*$",
    doc: "[METHOD[,METHOD]] PATH; in a path `*` and `{name}` are one segment, `**` at the end all below.",
};

static HOST_FORMAT: TextFormat = TextFormat {
    name: "host",
    pattern: r"^(\*|(\*\.)?[^\s/:*]+|\[.+\])$",
    doc: "A host name, or *.example.com for all names below.",
};

static NAME_FORMAT: TextFormat = TextFormat {
    name: "name",
    pattern: r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
    doc: "1 to 64 letters, digits, `-` or `_`, starting with a letter.",
};

/// The limits of a policy: a map in which `~` stands for a limit of the gateway file, or a list of names of such
/// limits.
static POLICY_LIMITS_SHAPES: &[ValueShape] = &[
    ValueShape::NamedMap(&ValueShape::AnyOf(&[
        ValueShape::Table(&LIMIT_TABLE),
        ValueShape::Null,
    ])),
    ValueShape::List(&ValueShape::Format(&NAME_FORMAT)),
];

pub static POLICY_TABLE: Table = Table {
    name: "a policy",
    doc: "One route of tollgate: which requests it takes, where they go and what limits them.",
    fields: &[
        required(
            "match",
            ValueShape::Format(&MATCH_FORMAT),
            "Which requests it is for; the most specific match wins.",
            "GET /api/**",
        ),
        optional(
            "host",
            ValueShape::Format(&HOST_FORMAT),
            "On which host. Default: any.",
            "api.example.com",
        ),
        required(
            "upstream",
            ValueShape::Format(&NAME_FORMAT),
            "Which upstream serves it.",
            "shop",
        ),
        optional(
            "limits",
            ValueShape::AnyOf(POLICY_LIMITS_SHAPES),
            "Its own limits; `name: ~`, or a list of names, takes limits of the gateway file.",
            "{ per-user: { key: user, rate: 100/m } }",
        ),
        optional(
            "require",
            ValueShape::OneOrList(&ValueShape::Words(&["ip", "user", "token", "email"])),
            "Identities without which a request gets 401.",
            "user",
        ),
        optional(
            "priority",
            ValueShape::Words(&words(&PRIORITY_WORDS)),
            "What is shed last under pressure. Default: what the plan says, else normal.",
            "critical",
        ),
        optional(
            "headers",
            ValueShape::Words(&words(&HEADER_STYLE_WORDS)),
            "Which rate-limit headers answers carry. Default: what the gateway file says.",
            "both",
        ),
        optional(
            "encoded_slashes",
            ValueShape::Words(&["split", "keep"]),
            "Whether `%2F` in a path is a slash, or part of the segment that `*` or `{name}` takes, as the upstream must read it too. Default: split.",
            "keep",
        ),
    ],
};

pub const PRIORITY_WORDS: [(&str, Priority); 3] = [
    ("low", Priority::Low),
    ("normal", Priority::Normal),
    ("critical", Priority::Critical),
];

/// Reads the policy whose file is called `name`.
pub fn read_policy(cx: &mut LoadContext, name: &str, node: &Node) -> Option<PolicyConfig> {
    let fields = POLICY_TABLE.open(cx, node)?;
    let pattern = fields.get("match").and_then(|node| {
        cx.read_scalar(node, "a match such as GET /api/**", |text| {
            Pattern::parse(text).map_err(|error| ValueError {
                message: format!("`{text}` is not a match: {}", error.kind),
                help: suggest_match(text, &error.kind),
                offset: Some(error.offset),
            })
        })
    });
    let host = fields.get("host").and_then(|node| {
        cx.read_scalar(node, "a host such as api.example.com", |text| {
            HostPattern::parse(text.trim()).map_err(|error| ValueError {
                message: format!("`{text}` is not a host: {}", error.kind),
                help: None,
                offset: Some(error.offset),
            })
        })
    });
    let priority = fields
        .get("priority")
        .and_then(|node| cx.read_word(node, &PRIORITY_WORDS));
    Some(PolicyConfig {
        name: name.into(),
        pattern,
        host,
        upstream: fields
            .get("upstream")
            .and_then(|node| cx.read_text(node, "the name of an upstream")),
        limits: fields
            .get("limits")
            .map_or_else(Vec::new, |node| read_limit_uses(cx, node)),
        require: fields.get("require").map_or_else(Vec::new, |node| {
            cx.read_list(node, LoadContext::read_identity)
        }),
        priority: priority.map(|priority| priority.value),
        headers: fields
            .get("headers")
            .and_then(|node| cx.read_header_style(node))
            .map(|style| style.value),
        keeps_slashes: fields
            .get("encoded_slashes")
            .and_then(|node| cx.read_word(node, &[("split", false), ("keep", true)]))
            .is_some_and(|keeps_slashes| keeps_slashes.value),
    })
}

/// Suggests a correction of an invalid `match`, if there is an obvious one.
fn suggest_match(text: &str, kind: &PatternErrorKind) -> Option<String> {
    let without_spaces = text.replace(", ", ",").replace(" ,", ",");
    let suggestion = match kind {
        PatternErrorKind::LowerCase(_) => {
            let (methods, path) = text.split_once(' ')?;
            format!("{} {}", methods.to_uppercase(), path.trim_start())
        }
        PatternErrorKind::NoSlash => format!("/{}", text.trim_start()),
        PatternErrorKind::Query => text.split(['?', '#']).next()?.to_owned(),
        PatternErrorKind::Method(_) if without_spaces != text => without_spaces,
        PatternErrorKind::RestInside => {
            return Some("inside a path write `*` or `{name}` for one segment".into());
        }
        _ => return None,
    };
    Pattern::parse(&suggestion)
        .is_ok()
        .then(|| format!("write `{suggestion}`"))
}

fn read_limit_uses(cx: &mut LoadContext, node: &Node) -> Vec<LimitUse> {
    if let YamlValue::List(_) = node.value {
        let names = cx.read_list(node, |cx, item| {
            if matches!(item.value, YamlValue::Map(_)) {
                let help = "write the limits as a map, without the dashes";
                cx.error(
                    item.location,
                    "a list of limits holds names only",
                    Some(help.into()),
                );
                return None;
            }
            cx.read_text(item, "the name of a limit")
        });
        return names.into_iter().map(LimitUse::Shared).collect();
    }
    let entries = cx.named_entries(node, "limits");
    let mut uses = Vec::new();
    for (key, node) in entries {
        if matches!(node.value, YamlValue::Null) {
            uses.push(LimitUse::Shared(Located {
                value: key.text.clone(),
                location: key.location,
            }));
        } else if let Some(limit) = read_limit(cx, key, node, LimitFile::Policy) {
            uses.push(LimitUse::Own(Box::new(limit)));
        }
    }
    uses
}
