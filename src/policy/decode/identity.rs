//! Reads the section `identity` of the gateway file: how the gateway identifies the client of a request. Files of keys
//! are read later, when the model is compiled.

use super::super::context::LoadContext;
use super::super::model::{IdentityConfig, Located, PlanFrom, PlanSourceConfig};
use super::super::section::{FieldReader, section};
use super::super::table::{Table, TableField, ValueShape, optional};
use super::super::tree::Node;
use super::field::WholeNumberField;
use super::scalar::{HEADER_NAME_FORMAT, NETWORK_FORMAT, PEERS_FORMAT};
use crate::identity::embedded_ipv4::Nat64;

mod request;
mod trusted_header;
mod user;

use trusted_header::read_trusted_header;

section! {
    /// The number of leading bits of an address that make one client.
    pub struct AddressGroup, table GROUP_TABLE = "a group", "How many leading bits of an address make one client.";
    ipv4: WholeNumberField<u8, 8, 32> = 32, "Of an IPv4 address.", "32";
    ipv6: WholeNumberField<u8, 32, 128> = 64, "Of an IPv6 address.", "64";
}

static IP_TABLE: Table = Table {
    name: "`ip`",
    doc: "How a client's address is found and grouped.",
    fields: &[
        optional(
            "trusted_proxies",
            ValueShape::OneOrList(&ValueShape::Format(&PEERS_FORMAT)),
            "Peers whose X-Forwarded-For and Forwarded are believed.",
            "[10.0.0.0/8]",
        ),
        optional(
            "group",
            ValueShape::Table(&GROUP_TABLE),
            "How many leading bits make one client.",
            "{ ipv4: 32, ipv6: 64 }",
        ),
        optional(
            "parents",
            ValueShape::Bool,
            "Whether the /56, /48 and /32 around an IPv6 client have budgets too. Default: true.",
            "true",
        ),
        optional(
            "nat64",
            ValueShape::OneOrList(&ValueShape::Format(&NETWORK_FORMAT)),
            "Prefixes behind which translators write IPv4 addresses, which are counted as those: networks of 32, 40, 48, 56, 64 or 96 bits. Default: 64:ff9b::/96.",
            "[64:ff9b::/96, 2001:db8:64::/96]",
        ),
    ],
};

static PLAN_TABLE: Table = Table {
    name: "`plan`",
    doc: "How a request's plan is known.",
    fields: &[
        optional(
            "jwt",
            ValueShape::Text,
            "The claim of the verified token that names it.",
            "plan",
        ),
        optional(
            "header",
            ValueShape::Format(&HEADER_NAME_FORMAT),
            "The header in which a trusted proxy names it.",
            "x-plan",
        ),
        optional(
            "from",
            ValueShape::OneOrList(&ValueShape::Format(&PEERS_FORMAT)),
            "With header: the peers that may set it.",
            "[10.0.0.0/8]",
        ),
        optional(
            "api_keys",
            ValueShape::Bool,
            "It stands in the file of API keys.",
            "true",
        ),
        optional(
            "default",
            ValueShape::Text,
            "The plan of requests without one.",
            "free",
        ),
    ],
};

pub static IDENTITY_TABLE: Table = Table {
    name: "`identity`",
    doc: "How the gateway knows who asks.",
    fields: &[
        optional(
            "ip",
            ValueShape::Table(&IP_TABLE),
            "The client's address.",
            "{ trusted_proxies: [10.0.0.0/8] }",
        ),
        optional(
            "user",
            ValueShape::Table(&user::USER_TABLE),
            "Who the request proves to be.",
            "{ jwt: sub, jwks: jwks.json }",
        ),
        optional(
            "token",
            ValueShape::Table(&request::TOKEN_TABLE),
            "Where a credential is found.",
            "{ header: x-api-key }",
        ),
        optional(
            "email",
            ValueShape::Table(&request::EMAIL_TABLE),
            "Where an email address is found.",
            "{ body: email }",
        ),
        optional(
            "plan",
            ValueShape::Table(&PLAN_TABLE),
            "How a request's plan is known.",
            "{ jwt: plan, default: free }",
        ),
    ],
};

/// Reads the section. A field that is absent or invalid has its default.
pub fn read_identity(cx: &mut LoadContext, node: &Node) -> IdentityConfig {
    let mut identity = IdentityConfig::default();
    let Some(fields) = IDENTITY_TABLE.open(cx, node) else {
        return identity;
    };
    if let Some(node) = fields.get("ip") {
        read_ip(cx, node, &mut identity.ip);
    }
    identity.user = read_located(cx, fields.get("user"), |cx, node| {
        user::read_user(cx, node, &mut identity.unverified)
    });
    identity.token = read_located(cx, fields.get("token"), request::read_token);
    identity.email = read_located(cx, fields.get("email"), request::read_email);
    identity.plan = read_located(cx, fields.get("plan"), read_plan_source);
    identity
}

/// Reads a field that is present, and adds its location.
fn read_located<T>(
    cx: &mut LoadContext,
    node: Option<&Node>,
    read: impl FnOnce(&mut LoadContext, &Node) -> Option<T>,
) -> Option<Located<T>> {
    let node = node?;
    read(cx, node).map(|value| Located {
        value,
        location: node.location,
    })
}

/// Reads `ip` into the settings, which keep their defaults for absent fields.
fn read_ip(cx: &mut LoadContext, node: &Node, ip: &mut crate::identity::ip::Settings) {
    let Some(fields) = IP_TABLE.open(cx, node) else {
        return;
    };
    if let Some(node) = fields.get("trusted_proxies") {
        ip.trusted_proxies = cx.read_trusted_peers(node);
    }
    if let Some(parents) = fields.get("parents").and_then(|node| cx.read_bool(node)) {
        ip.parents = parents.value;
    }
    if let Some(node) = fields.get("nat64") {
        ip.nat64 = cx.read_list(node, read_nat64);
    }
    if let Some(node) = fields.get("group") {
        let group = AddressGroup::read(cx, node);
        ip.ipv4 = group.ipv4;
        ip.ipv6 = group.ipv6;
    }
}

fn read_nat64(cx: &mut LoadContext, node: &Node) -> Option<Nat64> {
    let network = cx.read_network(node)?;
    let prefix = Nat64::new(network.value);
    if let Err(cause) = prefix {
        let message = format!(
            "`{}` is not the prefix of a translator: {cause}",
            network.value
        );
        let help = "write one such as 64:ff9b::/96: RFC 6052 section 2.2";
        cx.error(network.location, message, Some(help.into()));
    }
    prefix.ok()
}

fn read_plan_source(cx: &mut LoadContext, node: &Node) -> Option<PlanSourceConfig> {
    let fields = PLAN_TABLE.open(cx, node)?;
    fields.check_belongs_to(cx, "from", "header");
    let sources = ["jwt", "header", "api_keys"];
    // A default alone is enough: every client has that plan, unless the file of API keys names another.
    let has_source = sources.iter().any(|source| fields.has(source));
    let source = if has_source || !fields.has("default") {
        fields.require_one_of(cx, &sources)
    } else {
        None
    };
    let from = match source {
        Some("jwt") => fields
            .get("jwt")
            .and_then(|node| cx.read_text(node, "the name of a claim"))
            .map(PlanFrom::Claim),
        Some("header") => {
            let (name, from) = read_trusted_header(cx, &fields);
            name.map(|name| PlanFrom::Header { name, from })
        }
        Some(_) => fields
            .get("api_keys")
            .and_then(|node| cx.read_bool(node))
            .map(|flag| PlanFrom::ApiKeys(flag.location)),
        None => None,
    };
    let default = fields
        .get("default")
        .and_then(|node| cx.read_text(node, "the name of a plan"));
    Some(PlanSourceConfig { from, default })
}
