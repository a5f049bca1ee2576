//! Reads the section `identity` of the gateway file: how the gateway identifies the client of a request. Reading it
//! also defines the custom identities of the process. The files that it names are read later, when the model is
//! compiled.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, Named, SectionField, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::Node;
use super::ValueError;
use super::field::{BoolField, ListField, WholeNumberField, scalar_fields};
use super::scalar::{ClaimField, HeaderNameField, NETWORK_FORMAT, NetworkField, PeersField};
use crate::identity::embedded_ipv4::Nat64Prefix;
use crate::identity::user::OnUnverified;

mod custom;
mod request;
mod trusted_header;
mod user;

pub use custom::{CustomConfig, NetworksItem};
use custom::{define, is_custom_name};
use request::{EmailField, TokenField};
use trusted_header::check_trusted_peers;
pub use user::{KeySet, UserConfig, UserField};

section! {
    /// How the gateway identifies clients.
    pub struct IdentityConfig, table IDENTITY_TABLE = "`identity`", "How the gateway knows who asks.",
        check check_sources, others custom: SectionField<CustomConfig> where is_custom_name, suggest Vec::new,
        "An identity of your own, by any other name. Keys of limits, `for`, `require`, `explain` and the record know it by that.", "{ jwt: org.id }";
    ip: SectionField<IpConfig> = IpConfig::default(), "The client's address.", "{ trusted_proxies: [10.0.0.0/8] }";
    users("user"): ListField<LocatedField<UserField>> = Vec::new(),
        "Who the request proves to be; of several sources the first that verifies says it.", "{ jwt: sub, jwks: jwks.json }";
    tokens("token"): ListField<TokenField> = Vec::new(),
        "Where a credential is found; of several places in the first that has one.", "{ header: x-api-key }";
    email: EmailField, "Where an email address is found.", "{ body: email }";
    plan: LocatedField<SectionField<PlanSourceConfig>>,
        "How a request's plan is known.", "{ jwt: plan, default: free }";
}

section! {
    /// How the address of a client is found and grouped.
    pub struct IpConfig, table IP_TABLE = "`ip`", "How a client's address is found and grouped.";
    trusted_proxies: ListField<PeersField> = Vec::new(),
        "Peers whose X-Forwarded-For and Forwarded are believed.", "[10.0.0.0/8]";
    group: SectionField<AddressGroup> = AddressGroup::default(),
        "How many leading bits make one client.", "{ ipv4: 32, ipv6: 64 }";
    parents: BoolField = true, "Whether the /56, /48 and /32 around an IPv6 client have budgets too.", "true";
    nat64: ListField<Nat64Field> = vec![Nat64Prefix::well_known()],
        "Prefixes behind which translators write IPv4 addresses, which are counted as those: networks of 32, 40, 48, 56, 64 or 96 bits.", "[64:ff9b::/96, 2001:db8:64::/96]";
}

section! {
    /// The number of leading bits of an address that make one client.
    pub struct AddressGroup, table GROUP_TABLE = "a group", "How many leading bits of an address make one client.";
    ipv4: WholeNumberField<u8, 8, 32> = 32, "Of an IPv4 address.", "32";
    ipv6: WholeNumberField<u8, 32, 128> = 64, "Of an IPv6 address.", "64";
}

section! {
    /// How the plan of a request is found.
    pub struct PlanSourceConfig, table PLAN_SOURCE_TABLE = "`plan`",
        "How a request's plan is known.", check check_plan_source;
    jwt: LocatedField<ClaimField>, "The claim of the verified token that names it.", "plan";
    header: HeaderNameField, "The header in which a trusted proxy names it.", "x-plan";
    from: ListField<PeersField> = Vec::new(), "With header: the peers that may set it.", "[10.0.0.0/8]";
    api_keys: LocatedField<BoolField>, "It stands in the file of API keys.", "true";
    default: LocatedField<PlanNameField>, "The plan of requests without one.", "free";
}

scalar_fields! {
    /// A field with the name of a plan.
    pub struct PlanNameField: String = ValueShape::Text, "the name of a plan";
}

/// A field with the prefix of a translator between IPv6 and IPv4.
pub struct Nat64Field;

impl FieldReader for Nat64Field {
    type Value = Nat64Prefix;
    const SHAPE: ValueShape = ValueShape::Format(&NETWORK_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Nat64Prefix> {
        let network = NetworkField::read(cx, node)?;
        let prefix = Nat64Prefix::new(network);
        if let Err(cause) = prefix {
            let message = format!("`{network}` is not the prefix of a translator: {cause}");
            let help = "write one such as 64:ff9b::/96: RFC 6052 section 2.2";
            cx.error(node.location, message, Some(help.into()));
        }
        prefix.ok()
    }

    fn format_value(prefix: &Nat64Prefix) -> String {
        prefix.to_string()
    }
}

impl IdentityConfig {
    /// Whether some source of the user meets the condition; false without any source.
    pub fn has_user(&self, meets_condition: impl Fn(&UserConfig) -> bool) -> bool {
        self.users.iter().any(|user| meets_condition(&user.value))
    }

    /// The treatment of credentials that do not verify, which all sources of the user share.
    pub fn unverified(&self) -> OnUnverified {
        let first = self.users.iter().find_map(|user| user.value.unverified);
        first.unwrap_or_default()
    }
}

/// Checks that the sources of the user differ in their kind or their issuer, and agree on `unverified`. Then defines
/// the custom identities, and checks that servers can tell their header fields apart.
fn check_sources(cx: &mut LoadContext, _: &MapFields<'_>, written: &IdentityConfig) {
    for (index, user) in written.users.iter().enumerate() {
        let earlier_identities = &written.users[..index];
        if earlier_identities
            .iter()
            .any(|other| other.value.kind() == user.value.kind())
        {
            let message = format!("the user has two sources `{}`", user.value.kind());
            cx.error(user.location, message, Some("keep one of them".into()));
        }
        let unverified = user.value.unverified;
        if unverified.is_some_and(|unverified| unverified != written.unverified()) {
            let message = "`unverified` holds for all sources of the user";
            cx.error(user.location, message, Some("write it once".into()));
        }
    }
    let fold_name = |name: &str| name.replace('_', "-");
    for (index, custom) in written.custom.iter().enumerate() {
        let mut earlier_identities = written.custom[..index].iter();
        let has_same_header = |other: &&Named<CustomConfig>| {
            other.name.value != custom.name.value
                && fold_name(&other.name.value) == fold_name(&custom.name.value)
        };
        if let Some(other) = earlier_identities.find(has_same_header) {
            let message = format!(
                "`{}` is one header with `{}`",
                custom.name.value, other.name.value
            );
            let help = "choose names that differ in more than `_` and `-`";
            cx.error(custom.name.location, message, Some(help.into()));
        }
        if let Err(ValueError { message, help, .. }) = define(&custom.name.value) {
            cx.error(custom.name.location, message, help);
        }
    }
}

/// Checks that exactly one field says where the plan comes from; with `default`, there may be none. Also checks that
/// `from` names the peers that may set `header`.
fn check_plan_source(cx: &mut LoadContext, fields: &MapFields<'_>, _: &PlanSourceConfig) {
    fields.check_belongs_to(cx, "from", "header");
    let sources = ["jwt", "header", "api_keys"];
    // A default alone is enough: every client has that plan, unless a file of API keys names another.
    let has_source = sources.iter().any(|source| fields.has(source));
    if (has_source || !fields.has("default"))
        && fields.require_one_of(cx, &sources) == Some("header")
    {
        check_trusted_peers(cx, fields);
    }
}
