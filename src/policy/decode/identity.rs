//! The section `identity` of the gateway file: how clients are identified.

use super::super::collect::Cx;
use super::super::model::{IdentityConfig, Located, PlanFrom, PlanSourceConfig};
use super::super::table::{Table, ValueShape, may};
use super::super::tree::Node;
use super::leaf::{HEADER, NETWORK, PEERS};
use crate::identity::embedded::Nat64;

mod request;
mod trusted_header;
mod user;

use trusted_header::trusted_header;

static GROUP: Table = Table {
    name: "a group",
    doc: "How many leading bits of an address make one client.",
    fields: &[
        may(
            "ipv4",
            ValueShape::Whole(8, 32),
            "Of an IPv4 address. Default: 32.",
            "32",
        ),
        may(
            "ipv6",
            ValueShape::Whole(32, 128),
            "Of an IPv6 address. Default: 64.",
            "64",
        ),
    ],
};

static IP: Table = Table {
    name: "`ip`",
    doc: "How a client's address is found and grouped.",
    fields: &[
        may(
            "trusted_proxies",
            ValueShape::Many(&ValueShape::Form(&PEERS)),
            "Peers whose X-Forwarded-For and Forwarded are believed.",
            "[10.0.0.0/8]",
        ),
        may(
            "group",
            ValueShape::Table(&GROUP),
            "How many leading bits make one client.",
            "{ ipv4: 32, ipv6: 64 }",
        ),
        may(
            "parents",
            ValueShape::Flag,
            "Whether the /56, /48 and /32 around an IPv6 client have budgets too. Default: true.",
            "true",
        ),
        may(
            "nat64",
            ValueShape::Many(&ValueShape::Form(&NETWORK)),
            "Prefixes behind which translators write IPv4 addresses, which are counted as those: networks of 32, 40, 48, 56, 64 or 96 bits. Default: 64:ff9b::/96.",
            "[64:ff9b::/96, 2001:db8:64::/96]",
        ),
    ],
};

static PLAN: Table = Table {
    name: "`plan`",
    doc: "How a request's plan is known.",
    fields: &[
        may(
            "jwt",
            ValueShape::Text,
            "The claim of the verified token that names it.",
            "plan",
        ),
        may(
            "header",
            ValueShape::Form(&HEADER),
            "The header in which a trusted proxy names it.",
            "x-plan",
        ),
        may(
            "from",
            ValueShape::Many(&ValueShape::Form(&PEERS)),
            "With header: the peers that may set it.",
            "[10.0.0.0/8]",
        ),
        may(
            "api_keys",
            ValueShape::Flag,
            "It stands in the file of API keys.",
            "true",
        ),
        may(
            "default",
            ValueShape::Text,
            "The plan of requests without one.",
            "free",
        ),
    ],
};

/// The section `identity`.
pub static IDENTITY: Table = Table {
    name: "`identity`",
    doc: "How the gateway knows who asks.",
    fields: &[
        may(
            "ip",
            ValueShape::Table(&IP),
            "The client's address.",
            "{ trusted_proxies: [10.0.0.0/8] }",
        ),
        may(
            "user",
            ValueShape::Table(&user::USER),
            "Who the request proves to be.",
            "{ jwt: sub, jwks: jwks.json }",
        ),
        may(
            "token",
            ValueShape::Table(&request::TOKEN),
            "Where a credential is found.",
            "{ header: x-api-key }",
        ),
        may(
            "email",
            ValueShape::Table(&request::EMAIL),
            "Where an email address is found.",
            "{ body: email }",
        ),
        may(
            "plan",
            ValueShape::Table(&PLAN),
            "How a request's plan is known.",
            "{ jwt: plan, default: free }",
        ),
    ],
};

/// Reads the section.
pub fn identity(cx: &mut Cx, node: &Node) -> IdentityConfig {
    let mut sources = IdentityConfig::default();
    let Some(fields) = IDENTITY.open(cx, node) else {
        return sources;
    };
    if let Some(node) = fields.get("ip") {
        ip(cx, node, &mut sources.ip);
    }
    let at = |node: &Node| node.place;
    sources.user = fields.get("user").and_then(|node| {
        user::user(cx, node, &mut sources.unverified).map(|value| Located {
            value,
            place: at(node),
        })
    });
    sources.token = fields.get("token").and_then(|node| {
        request::token(cx, node).map(|value| Located {
            value,
            place: at(node),
        })
    });
    sources.email = fields.get("email").and_then(|node| {
        request::email(cx, node).map(|value| Located {
            value,
            place: at(node),
        })
    });
    sources.plan = fields.get("plan").and_then(|node| {
        plan(cx, node).map(|value| Located {
            value,
            place: at(node),
        })
    });
    sources
}

fn ip(cx: &mut Cx, node: &Node, ip: &mut crate::identity::ip::Settings) {
    let Some(fields) = IP.open(cx, node) else {
        return;
    };
    if let Some(node) = fields.get("trusted_proxies") {
        ip.trusted_proxies = cx.believed(node);
    }
    if let Some(parents) = fields.get("parents").and_then(|node| cx.flag(node)) {
        ip.parents = parents.value;
    }
    if let Some(node) = fields.get("nat64") {
        ip.nat64 = cx.many(node, nat64);
    }
    let Some(group) = fields.get("group").and_then(|node| GROUP.open(cx, node)) else {
        return;
    };
    let bits = |cx: &mut Cx, name: &str, from: u64, to: u64| {
        let bits = group.get(name).and_then(|node| cx.whole(node, from, to))?;
        u8::try_from(bits.value).ok()
    };
    ip.ipv4 = bits(cx, "ipv4", 8, 32).unwrap_or(ip.ipv4);
    ip.ipv6 = bits(cx, "ipv6", 32, 128).unwrap_or(ip.ipv6);
}

fn nat64(cx: &mut Cx, node: &Node) -> Option<Nat64> {
    let network = cx.network(node)?;
    let prefix = Nat64::new(network.value);
    if let Err(why) = prefix {
        let message = format!(
            "`{}` is not the prefix of a translator: {why}",
            network.value
        );
        let help = "write one such as 64:ff9b::/96: RFC 6052 section 2.2";
        cx.error(network.place, message, Some(help.into()));
    }
    prefix.ok()
}

fn plan(cx: &mut Cx, node: &Node) -> Option<PlanSourceConfig> {
    let fields = PLAN.open(cx, node)?;
    fields.belongs_to(cx, "from", "header");
    let ways = ["jwt", "header", "api_keys"];
    // A default alone is enough: everyone is on that plan, or the API keys say otherwise.
    let way = if ways.iter().any(|way| fields.has(way)) || !fields.has("default") {
        fields.one_of(cx, &ways)
    } else {
        None
    };
    let from = match way {
        Some("jwt") => fields
            .get("jwt")
            .and_then(|node| cx.text(node, "the name of a claim"))
            .map(PlanFrom::Claim),
        Some("header") => {
            let (name, from) = trusted_header(cx, &fields);
            name.map(|name| PlanFrom::Header { name, from })
        }
        Some(_) => fields
            .get("api_keys")
            .and_then(|node| cx.flag(node))
            .map(|flag| PlanFrom::ApiKeys(flag.place)),
        None => None,
    };
    let default = fields
        .get("default")
        .and_then(|node| cx.text(node, "the name of a plan"));
    Some(PlanSourceConfig { from, default })
}
