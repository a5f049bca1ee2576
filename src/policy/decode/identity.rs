//! Reads the section `identity` of the gateway file: how the gateway identifies the client of a request. Reading it
//! also defines the custom identities of the process. The files that it names are read later, when the model is
//! compiled.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, Named, SectionField, section};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Located, Node};
use super::ValueError;
use super::field::{BoolField, ListField, WholeNumberField, scalar_fields};
use super::scalar::{ClaimField, HeaderNameField, NETWORK_FORMAT, NetworkField, PeersField};
use crate::identity::embedded_ipv4::Nat64Prefix;
use crate::identity::user::OnUnverified;
use crate::limit::Identity;

mod custom;
mod request;
mod trusted_header;
mod user;

pub(super) use custom::NetworksItemField;
pub use custom::{CustomConfig, NetworksItem, TlsPart};
use custom::{define_identity, is_custom_name};
use request::{EmailField, TokenField};
use trusted_header::check_trusted_peers;
use user::check_issuers;
pub use user::{ApiKeySource, ISSUER_SEPARATOR, KeySet, UserConfig, UserField};

section! {
    /// How the gateway identifies clients.
    pub struct IdentityConfig, table IDENTITY_TABLE = "`identity`", "How the gateway knows who asks.",
        check check_sources, others custom: SectionField<CustomConfig> where is_custom_name, suggest Vec::new,
        "An identity of your own, by any other name. Keys of limits, `for`, `require`, `explain` and the record know it by that.", "{ jwt: org.id }";
    ip: SectionField<IpConfig> = IpConfig::default(), "The client's address.", "{ trusted_proxies: [192.0.2.0/24] }";
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
        "Peers whose X-Forwarded-For and Forwarded are believed.", "[192.0.2.0/24]";
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
    from: ListField<PeersField> = Vec::new(), "With header: the peers that may set it.", "[192.0.2.0/24]";
    api_keys: LocatedField<BoolField>, "It is that of the API key.", "true";
    default: LocatedField<PlanNameField>, "The plan of requests without one.", "free";
    metrics: BoolField = false, "Whether `tollgate_identity_requests_total` counts requests by plan.", "true";
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

    /// Whether names from tokens begin with their issuer: if several sources of the user read tokens, and no source
    /// says that they share names.
    pub fn separates_issuers(&self) -> bool {
        let sources = self.users.iter().filter(|user| user.value.jwt.is_some());
        let shares_names = self.has_user(|user| user.shared_names == Some(true));
        sources.count() > 1 && !shares_names
    }

    /// Issuers: every value of the identity begins with one of them. Empty if a value may come without an issuer.
    pub fn name_issuers(&self, identity: Identity) -> Vec<&str> {
        let comes_from_tokens = match identity {
            Identity::User => !self.has_user(|user| user.jwt.is_none()),
            Identity::Custom(name) => {
                let mut custom = self.custom.iter();
                custom.any(|custom| custom.name.value == name.as_str() && custom.jwt.is_some())
            }
            Identity::Ip | Identity::Token | Identity::Email | Identity::Plan => false,
        };
        if !comes_from_tokens || !self.separates_issuers() {
            return Vec::new();
        }
        let issuers = self
            .users
            .iter()
            .filter_map(|user| user.value.issuer.as_ref());
        issuers.map(|issuer| issuer.value.as_str()).collect()
    }

    /// The treatment of credentials that do not verify, which all sources of the user share. The first source with the
    /// field decides; without one, it is the default.
    pub fn unverified(&self) -> OnUnverified {
        let mut users = self.users.iter();
        users
            .find_map(|user| user.value.unverified)
            .unwrap_or_default()
    }
}

/// Checks that the sources of the user differ in their kind or their issuer, and agree on `unverified`. Then defines
/// the custom identities, and checks that servers can tell their header fields apart.
fn check_sources(cx: &mut LoadContext, _: &MapFields<'_>, written: &IdentityConfig) {
    for (index, user) in written.users.iter().enumerate() {
        let is_same_kind = |other: &Located<UserConfig>| {
            other.value.kind() == user.value.kind() && user.value.jwt.is_none()
        };
        if written.users[..index].iter().any(is_same_kind) {
            let message = format!("the user has two sources `{}`", user.value.kind());
            cx.error(user.location, message, Some("keep one of them".into()));
        }
        let unverified = user.value.unverified;
        if unverified.is_some_and(|unverified| unverified != written.unverified()) {
            let message = "`unverified` holds for all sources of the user";
            cx.error(user.location, message, Some("write it once".into()));
        }
    }
    check_issuers(cx, &written.users);
    // Header fields with `_` and with `-` become the same variable in many servers.
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
        if let Err(ValueError { message, help, .. }) = define_identity(&custom.name.value) {
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
