//! Why an order is refused, with messages for operators.

use super::api_key_id::is_id;
use crate::base::suggest::list_words;
use crate::identity::key_text::KeyError;
use crate::identity::runtime_keys::KEY_PREFIX;
use crate::identity::user_name::MAX_USER_NAME_BYTES;
use crate::identity::{Settings, custom};
use crate::limit::Rate;

/// Most bytes of a text of an operator that a message quotes.
const MAX_QUOTED_BYTES: usize = 64;

/// Why a ban is not ordered or not lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BanError {
    /// The text is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The network has all addresses of its version of IP.
    #[error("this network has every address; write a smaller one")]
    Everyone,
    /// The network is one of tunnels, whose addresses count as the IPv4 address inside them.
    #[error(
        "no client is in `{0}`: addresses of 6to4 and Teredo count as the IPv4 address inside them; ban that"
    )]
    Tunnels(String),
    /// The key, the reason or the name is too long; the number is the most bytes.
    #[error("`{0}` is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// The ban is too short or too long.
    #[error("a ban lasts from 1s to 3650d")]
    Duration,
    /// There are as many bans as the gateway keeps.
    #[error("there are {0} bans already, which is the most; lift some, or ban a network")]
    Full(usize),
    /// A change of the key by another gateway has a time that this gateway's clock does not reach.
    #[error(
        "`{0}` was changed by a gateway whose clock is far ahead, so this order would not count; set the clocks right"
    )]
    Superseded(String),
    /// The key is not banned itself.
    #[error("`{0}` is not banned; `tollgate bans` lists what is")]
    NotBanned(String),
    /// The key is not banned itself, but a network around it is.
    #[error("`{key}` is banned by the ban of `{network}`; lift that one")]
    BannedByNetwork {
        /// The key.
        key: String,
        /// The key of the network.
        network: String,
    },
}

/// Why a grant is not ordered or not taken back, whatever the policies say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantOrderError {
    /// The key, the reason or the name is too long; the number is the most bytes.
    #[error("`{0}` is longer than {1} bytes; shorten it")]
    TooLong(&'static str, usize),
    /// The grant is too short or too long.
    #[error("a grant lasts from 1s to 3650d; write for instance 1d")]
    Duration,
    /// There are as many grants as the gateway keeps.
    #[error(
        "there are {0} grants already, which is the most; revoke some, or write the keys into a file of `overrides`"
    )]
    Full(usize),
    /// A change of the key by another gateway has a time that this gateway's clock does not reach.
    #[error(
        "the grant of `{0}` was changed by a gateway whose clock is far ahead, so this order would not count; set the clocks right"
    )]
    Superseded(String),
    /// There are as many accounts as the gateway keeps.
    #[error(
        "there are {0} accounts of credits already, which is the most, and none is ever dropped; count more clients in one \
         account, by an identity such as `tenant`"
    )]
    AccountsFull(usize),
    /// The orders of all accounts have no room in the shared store; the number is the most MiB.
    #[error(
        "the orders of all accounts of credits would have more than {0} MiB in the shared store, which is the most; \
         use shorter ids, and add more credits with each order"
    )]
    OrdersFull(usize),
    /// The id of an order is none.
    #[error(
        "the id of an order is 1 to 64 letters, digits, or characters of `._:-`; write for instance `inv-2026-11`"
    )]
    OrderId,
    /// The account has an order of this id with other units.
    #[error("the order `{0}` is there already, of {1} credits; give each order an id of its own")]
    OtherOrder(String, i64),
    /// The account has got another order while what is left of it was read.
    #[error("the account has got other orders at the same time; try again")]
    ChangedMeanwhile,
    /// The account has had as many orders within a week as it keeps.
    #[error(
        "the account has had {0} orders within 7 days, which is the most; add more credits with each order"
    )]
    TooManyOrders(usize),
    /// The account would have more credits than can be counted.
    #[error(
        "the account has had {0} credits, and none may have more than {most} in all; count coarser units, by `cost`",
        most = Rate::MAX_QUOTA
    )]
    TooManyCredits(u32),
    /// The key has no grant.
    #[error("`{key}` has no grant of `{limit}`; `tollgate grants` lists all grants")]
    NotGranted {
        /// The limit.
        limit: String,
        /// The key.
        key: String,
    },
}

/// Why an API key is not added or not revoked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// The gateway file does not say that such keys verify.
    #[error(
        "the gateway file accepts no API keys at run time; write `identity: {{ user: {{ api_keys: runtime }} }}`, or `[keys.yaml, runtime]` to have a file too"
    )]
    NotAccepted,
    /// The user is no name.
    #[error(
        "a user is 1 to {MAX_USER_NAME_BYTES} bytes without control characters and blanks at its ends"
    )]
    User,
    /// The name of the key cannot be kept; the number is the most bytes.
    #[error("`name` has at most {0} bytes and no control characters")]
    Name(usize),
    /// There is no such plan. The second text lists those that there are.
    #[error("there is no plan `{0}`; {1}")]
    UnknownPlan(String, String),
    /// Plans come from another source than API keys.
    #[error(
        "the plan of a key would not count: `plan` of the gateway file names another source; write `plan: {{ api_keys: true }}` there, or add the key without a plan"
    )]
    PlanElsewhere,
    /// No identity of this name comes with API keys. The second text lists those that do.
    #[error("no identity `{0}` comes with API keys; {1}")]
    UnknownIdentity(String, String),
    /// The value of this identity is no name.
    #[error(
        "a value of `{0}` is 1 to {MAX_USER_NAME_BYTES} bytes without control characters and blanks at its ends"
    )]
    Value(String),
    /// The identities of the key are too long; the number is the most bytes.
    #[error("the identities of a key have at most {0} bytes")]
    Values(usize),
    /// The key would hold for too short or too long.
    #[error("a key holds from 1s to 3650d, or without an end")]
    Duration,
    /// There are as many keys as the gateway keeps.
    #[error(
        "there are {0} API keys already, which is the most; those count too that were revoked, until their end or for two years"
    )]
    Full(usize),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes, so no key can be made")]
    NoRandom,
    /// A change by another gateway has a time that this gateway's clock does not reach.
    #[error(
        "the key `{0}` was changed by a gateway whose clock is far ahead, so this order would not count; set the clocks right"
    )]
    Superseded(String),
    /// No key that holds has this id.
    #[error("no API key that holds has the id `{0}`; `tollgate key list` lists those that do")]
    Unknown(String),
    /// The text is no id. It may be a key, so the message does not quote it.
    #[error(
        "this is no id of an API key: write its 16 hexadecimal digits, as `tollgate key list` shows them, not the key itself"
    )]
    NoId,
    /// The text is too long; the number is the most bytes.
    #[error("`{0}` is longer than {1} bytes; shorten it")]
    TooLong(&'static str, usize),
}

impl ApiKeyError {
    pub(super) fn unknown(id: &str) -> ApiKeyError {
        match is_id(id) {
            true => ApiKeyError::Unknown(id.to_owned()),
            false => ApiKeyError::NoId,
        }
    }

    pub(super) fn unknown_plan(name: &str, settings: &Settings) -> ApiKeyError {
        let plans = settings.plan.plans.iter().map(|plan| plan.name.as_str());
        let help = match settings.plan.plans.is_empty() {
            true => "the gateway file has no `plans`".into(),
            false => format!("write {}", list_words(plans)),
        };
        ApiKeyError::UnknownPlan(bounded(name), help)
    }

    pub(super) fn unknown_identity(name: &str, settings: &Settings) -> ApiKeyError {
        let is_of_keys =
            |custom: &&custom::Settings| matches!(custom.source, custom::Source::ApiKeys);
        let names: Vec<&str> = settings
            .custom
            .iter()
            .filter(is_of_keys)
            .map(|custom| custom.identity.as_str())
            .collect();
        let help = match names.is_empty() {
            true => "define one in the gateway file, such as `tenant: { api_keys: true }`".into(),
            false => format!("write {}", list_words(names)),
        };
        ApiKeyError::UnknownIdentity(bounded(name), help)
    }
}

/// The beginning of a text that an operator wrote, without control characters. Nothing is shown of an API key that was
/// pasted in a wrong place.
fn bounded(text: &str) -> String {
    if text.contains(KEY_PREFIX) {
        return "…".to_owned();
    }
    let text = text.replace(char::is_control, " ");
    text[..text.floor_char_boundary(MAX_QUOTED_BYTES)].to_owned()
}
