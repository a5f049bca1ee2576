//! Reads one limit, of the gateway file, of the defaults of a folder or of a policy. This file checks only which fields
//! are present. `check/limit.rs` checks how their values fit together, which depends on the store and the plans.

use super::super::context::LoadContext;
use super::super::section::{
    AlternativeField, FieldReader, LocatedField, Named, RequiredField, Section, SectionField,
    section,
};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Located, MapKey, Node, SourceLocation};
use super::ValueError;
use super::field::{
    BoolField, DurationField, ListField, WholeNumberField, scalar_fields, word_fields,
};
use super::scalar::{NetworkField, RateField, parse_name};
use crate::base::clock::Nanos;
use crate::limit::pressure::Condition;
use crate::limit::{
    Algorithm, Alignment, CountMode, Disclose, KeySpec, LimitName, OnStoreError, Rate, Reserve,
    Sharing,
};

mod aligned_rates;
mod ban;
mod clients;
mod credits;
mod phrase;
mod quota;
mod rates;
mod variant;

pub use aligned_rates::{OverrideConfig, read_override};
use ban::BanConfig;
use clients::ClientsFields;
pub(super) use clients::{IdentityTestField, PresenceField, custom_names, is_custom_identity};
pub use phrase::{KeyPartConfig, ThrottleConfig};
use phrase::{parse_condition, parse_count, parse_key_part, parse_reserve, parse_throttle};
use quota::{QuotaField, StartsField, ZoneField};
pub use rates::RatesConfig;
use rates::{ConcurrentField, RatesField};
pub use variant::{LimitVariant, split_by_plan, split_with_candidates};

/// Minimum of `delay` in milliseconds: the shortest duration above zero that files can express.
const MIN_DELAY_MILLIS: u64 = 1;
/// Maximum of `delay` in milliseconds: most clients do not wait longer for a response.
const MAX_DELAY_MILLIS: u64 = 60_000;

/// Maximum number of units of a burst or a reservation: the largest quota of a rate.
const MAX_UNITS: u64 = Rate::MAX_QUOTA as u64;

section! {
    /// How many requests of one key are admitted.
    pub struct LimitFields, table LIMIT_TABLE = "a limit",
        "How many requests of one key are admitted in how long, or are open at once.", check check_rates;
    key: RequiredField<ListField<LocatedField<KeyPartField>>> = Vec::new(),
        "The identities by which it counts: those of a list make one key, of `user or ip` the first that a request has counts. `everyone` counts all clients together, and with `route` each route counts for itself.", "[ip, email]";
    clients("for"): SectionField<ClientsFields> = ClientsFields::default(),
        "The clients that it is for: those that meet all conditions. Default: all clients.", "{ user: absent }";
    rates("rate"): AlternativeField<RatesField<RateField>> = RatesConfig::default(),
        "How many in how long; of a list every one holds. Or a map from plans to rates or `unlimited`, with `else` for all other clients.", "[10/s, 600/h]";
    quotas("quota"): AlternativeField<RatesField<QuotaField>> = RatesConfig::default(),
        "How many in each window of the calendar, in place of `rate`; of a list every one holds. Or a map from plans to quotas or `unlimited`, with `else` for all other clients.", "10000/month";
    zone: LocatedField<ZoneField>,
        "The time zone of a quota, by its name in the IANA database. Default: UTC.", "Europe/Berlin";
    starts: LocatedField<StartsField>,
        "Where the windows of a quota begin: a day of the month (1 to 31; in shorter months the last), of the week (`monday` or 1 to 7), or for quarters and years a date as MM-DD. Default: the first day of the unit.", "15";
    alignment("align"): LocatedField<AlignmentField>,
        "Where windows of the algorithm fixed-window begin: `key` gives each key a time of its own, `clock` begins with the minute, hour or day of UTC. Default: key.", "clock";
    concurrent: AlternativeField<LocatedField<ConcurrentField>>,
        "How many may be open at once, from their admission to the end of their answers.", "10";
    credits: AlternativeField<LocatedField<BoolField>>,
        "In place of a rate: a key has the units that operators add to it (`tollgate grant`), and no time refills them.", "true";
    throttle: LocatedField<ThrottleField>, "What happens above the rate. Default: hard.", "soft 10%";
    condition("while"): LocatedField<ConditionField>, "While what an elastic limit lends.", "upstream.load < 0.7";
    at_most: LocatedField<RateField>, "How much an elastic limit lends at most.", "300/m";
    algorithm: LocatedField<AlgorithmField>,
        "How use is remembered. Default: sliding-log up to 1024, sliding-window above.", "gcra";
    burst: LocatedField<WholeNumberField<u32, 1, MAX_UNITS>>, "Units that may come at once; for gcra.", "20";
    delay: LocatedField<DurationField<MIN_DELAY_MILLIS, MAX_DELAY_MILLIS>>,
        "The longest that a request is held back; for leaky-bucket.", "500ms";
    count: LocatedField<CountField>, "What uses the limit up. Default: all.", "status 401";
    reserve: LocatedField<ReserveField>,
        "With a cost that is known later: units that a request holds from its admission until its cost is known, and is charged if it never is. Default: 1.", "json max_tokens else 4000";
    plans: LocatedField<BoolField>, "Whether plans multiply it.", "true";
    tried("try"): LocatedField<RatesField<RateField>>,
        "A candidate rate, written as `rate`. It is counted beside the limit and refuses nothing; `tollgate try LIMIT` shows whom it would have refused.", "80/m";
    is_shadow("mode"): ModeField, "shadow counts and reports without refusing.", "shadow";
    exempt: ListField<NetworkField> = Vec::new(), "Addresses that it does not apply to.", "[192.0.2.0/24]";
    disclose: DiscloseField, "none hides it from clients.", "none";
    ban: LocatedField<SectionField<BanConfig>>,
        "When a client is banned whom it keeps refusing. The ban holds on every route.", "{ after: 3 refusals in 10m, for: 1h, up_to: 7d }";
    on_store_error: OnStoreErrorField = OnStoreError::Local, "What holds while the store cannot be reached.", "local";
    sharing: LocatedField<SharingField>,
        "How gateways with one store share it. Default: leased for windows from 10s, else strict.", "strict";
    routes: LimitRoutesField = LimitRoutes::All,
        "Of a limit in the gateway file or in `_defaults.yaml`: `all` counts every route together, `each` counts each one for itself; `listed` and `each-listed` do so only for routes that list it by name.", "listed";
}

/// A limit of any of the files.
pub type LimitConfig = Named<LimitFields, Located<LimitName>>;

static KEY_PART_FORMAT: TextFormat = TextFormat {
    name: "key_part",
    pattern: r"^\s*[A-Za-z][A-Za-z0-9_.-]{0,63}(\s+or\s+[A-Za-z][A-Za-z0-9_.-]{0,63})*\s*$",
    doc: "ip, user, token, email, plan, an identity that the gateway file or an entry of descriptors defines, everyone or route; or the first that a request has, for instance user or ip.",
};

static THROTTLE_FORMAT: TextFormat = TextFormat {
    name: "throttle",
    pattern: r"^\s*(hard|soft\s+[0-9]+\s*%|elastic)\s*$",
    doc: "What happens above the rate: hard, soft P% or elastic.",
};

static CONDITION_FORMAT: TextFormat = TextFormat {
    name: "condition",
    pattern: r"^\s*(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+(\s+and\s+(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+)*\s*$",
    doc: "While what an elastic limit lends, for instance upstream.load < 0.7.",
};

static COUNT_FORMAT: TextFormat = TextFormat {
    name: "count",
    pattern: r"^\s*(all|status\s+[1-5][0-9][0-9](-[1-5][0-9][0-9])?|cost\s+(header|json|request\s+json)\s+\S+|cost\s+request\s+items|cost\s+bytes\s+(in|out|both)|cost\s+messages)\s*$",
    doc: "What uses the limit up: all, status 401, status 400-499, or a cost. A cost of the response: cost header NAME, cost json PATH. Of the request: cost request json PATH, cost request items. Of what passes: cost bytes in, out or both, cost messages.",
};

static RESERVE_FORMAT: TextFormat = TextFormat {
    name: "reserve",
    pattern: r"^\s*(json|header)\s+\S+\s+else\s+[0-9]+\s*$",
    doc: "Where a request says how many: json PATH else 4000 (of its body), header NAME else 4000.",
};

word_fields! {
    /// A field with an algorithm. Its value lacks the parameters, which are in the fields `burst` and `delay`.
    pub struct AlgorithmField: Algorithm = "sliding-log" => Algorithm::SlidingLog,
        "sliding-window" => Algorithm::SlidingWindow, "multi-level" => Algorithm::MultiLevel,
        "fixed-window" => Algorithm::FixedWindow, "gcra" => Algorithm::Gcra { burst: None },
        "leaky-bucket" => Algorithm::LeakyBucket { max_delay: Nanos(0) };
    /// A field that says where windows begin that do not slide.
    pub struct AlignmentField: Alignment = "key" => Alignment::Key, "clock" => Alignment::Clock;
    /// A field that says whether the limit refuses; the value is true if it only counts.
    pub struct ModeField: bool = "enforce" => false, "shadow" => true;
    /// A field that says how much responses disclose about the limit.
    pub struct DiscloseField: Disclose = "all" => Disclose::All, "none" => Disclose::None;
    /// A field with the decision while the store cannot be reached.
    pub struct OnStoreErrorField: OnStoreError = "local" => OnStoreError::Local, "open" => OnStoreError::Open,
        "closed" => OnStoreError::Closed;
    /// A field that says how gateways with one store share the limit.
    pub struct SharingField: Sharing =
        "strict" => Sharing::Strict, "leased" => Sharing::Leased, "local" => Sharing::Local;
    /// A field that says which routes have the limit.
    pub struct LimitRoutesField: LimitRoutes = "all" => LimitRoutes::All, "each" => LimitRoutes::Each,
        "listed" => LimitRoutes::Listed, "each-listed" => LimitRoutes::EachListed;
}

scalar_fields! {
    /// A field that says how far the limit may be exceeded.
    pub struct ThrottleField: ThrottleConfig =
        ValueShape::Format(&THROTTLE_FORMAT), "hard, soft P% or elastic", parse_throttle;
    /// A field with the condition under which an elastic limit lends.
    pub struct ConditionField: Condition =
        ValueShape::Format(&CONDITION_FORMAT), "a condition such as upstream.load < 0.7", parse_condition;
    /// A field that says which requests use the limit up, and by how many units.
    pub struct CountField: CountMode =
        ValueShape::Format(&COUNT_FORMAT), "what is counted, such as all or status 401", parse_count;
    /// A field with the units that a request holds until its cost is known.
    pub struct ReserveField: Reserve = ValueShape::AnyOf(&[
        ValueShape::WholeNumber(1, MAX_UNITS),
        ValueShape::Format(&RESERVE_FORMAT),
    ]), "units, or where a request says how many", parse_reserve;
}

/// A field with a part of a key.
pub struct KeyPartField;

impl FieldReader for KeyPartField {
    type Value = KeyPartConfig;
    const SHAPE: ValueShape = ValueShape::Format(&KEY_PART_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<KeyPartConfig> {
        let fixed_entries = std::mem::take(&mut cx.fixed_entries);
        let part = cx.read_scalar(node, "an identity such as user", |text| {
            parse_key_part(text).map_err(|error| {
                let is_fixed = |word: &str| fixed_entries.iter().any(|key| key == word);
                match text.split_whitespace().find(|word| is_fixed(word)) {
                    Some(key) => phrase::fixed_entry_error(key),
                    None => error,
                }
            })
        });
        cx.fixed_entries = fixed_entries;
        part
    }
}

impl LimitFields {
    /// Moves the locations of the fields whose values must fit the rates to `location`, where other rates are written.
    /// A value that does not fit these rates is then reported there.
    pub fn move_locations_to(&mut self, location: SourceLocation) {
        let fields = [&mut self.burst, &mut self.concurrent];
        for field in fields.into_iter().flatten() {
            field.location = location;
        }
        if let Some(reserve) = &mut self.reserve {
            reserve.location = location;
        }
        if let Some(algorithm) = &mut self.algorithm {
            algorithm.location = location;
        }
    }

    /// The limit with its candidate rates in place of its own; `None` without `try`.
    pub fn candidate(&self) -> Option<LimitFields> {
        let tried = self.tried.as_ref()?;
        let mut candidate = LimitFields {
            rates: tried.value.clone(),
            tried: None,
            ban: None,
            is_shadow: Some(true),
            ..self.clone()
        };
        candidate.move_locations_to(tried.location);
        Some(candidate)
    }

    /// Whether each route counts for itself, by the field `routes` or by the word `route` in the key.
    pub fn counts_each_route(&self) -> bool {
        let mut parts = self.key.iter();
        self.routes.is_each() || parts.any(|part| part.value == KeyPartConfig::Route)
    }

    /// The key that the limit counts by, without the words `everyone` and `route`.
    pub fn key_spec(&self) -> KeySpec {
        let parts = self.key.iter().filter_map(|part| match &part.value {
            KeyPartConfig::FirstOf(part) => Some(part.clone()),
            KeyPartConfig::Everyone | KeyPartConfig::Route => None,
        });
        KeySpec::new(parts.collect())
    }

    /// The rate that an elastic limit raises, and then `at_most`, the rate up to which it is raised. Both have the same
    /// window. `None` without `at_most`, or if no rate has its window.
    pub fn elastic_rates(&self) -> Option<(Rate, Rate)> {
        let at_most = self.at_most?.value;
        let rate = self
            .rates
            .iter()
            .find(|rate| rate.window() == at_most.window())?;
        Some((rate, at_most))
    }
}

/// The routes that have a limit of the gateway file or of a folder, and whether they share its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitRoutes {
    /// Every route has the limit, and all routes count together.
    #[default]
    All,
    /// Every route has the limit, and each route counts for itself.
    Each,
    /// Routes that list the limit have it, and they count together.
    Listed,
    /// Routes that list the limit have it, and each route counts for itself.
    EachListed,
}

impl LimitRoutes {
    /// Whether the field `routes` says that each route counts for itself.
    fn is_each(self) -> bool {
        matches!(self, LimitRoutes::Each | LimitRoutes::EachListed)
    }

    /// Whether only routes that list the limit have it.
    pub fn is_only_listed(self) -> bool {
        matches!(self, LimitRoutes::Listed | LimitRoutes::EachListed)
    }
}

/// The kind of file that defines a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LimitFile {
    /// The gateway file or a `_defaults.yaml`, whose limits say on which routes they hold.
    Shared,
    /// A policy file, whose limits hold only on its own routes.
    Policy,
}

/// Reads the limit that is written under the name `key`. `None` if the name is invalid or `node` is no map, which is
/// reported.
pub fn read_limit(
    cx: &mut LoadContext,
    key: &MapKey,
    node: &Node,
    file: LimitFile,
) -> Option<LimitConfig> {
    let name = parse_name(&key.text, "a limit").map_err(|ValueError { message, help, .. }| {
        cx.error(key.location, message, help);
    });
    let fields = LIMIT_TABLE.open_named(cx, node, key)?;
    if file == LimitFile::Policy && fields.has("routes") {
        let help = "remove it: a policy's own limit counts for this route alone";
        let message = "`routes` is for limits in the gateway file or in `_defaults.yaml`";
        cx.error(fields.location_of("routes"), message, Some(help.into()));
    }
    let mut limit = LimitFields::read_fields(cx, &fields);
    let name = Located {
        value: name.ok()?,
        location: key.location,
    };
    if fields.has("quota") {
        limit.use_quotas(cx, fields.location_of("quota"));
    }
    limit.align_rates();
    limit.check_credits(cx, &fields);
    check_needed_fields(cx, &fields, &limit);
    Some(Named {
        name,
        fields: limit,
    })
}

/// Reports a limit on two of rates, quotas, open requests and credits.
fn check_rates(cx: &mut LoadContext, fields: &MapFields<'_>, _: &LimitFields) {
    for (field, other) in [
        ("rate", "concurrent"),
        ("quota", "concurrent"),
        ("rate", "quota"),
        ("rate", "credits"),
        ("quota", "credits"),
        ("concurrent", "credits"),
    ] {
        if fields.has(field) && fields.has(other) {
            let help = "write two limits with names of their own, one with each";
            let message = format!("a limit has `{field}` or `{other}`, not both");
            cx.error(fields.location_of(other), message, Some(help.into()));
        }
    }
}

/// Reports a limit that lacks a field which its `throttle` or its `algorithm` needs. Limits on open requests and with
/// credits need none, because they may have neither.
fn check_needed_fields(cx: &mut LoadContext, fields: &MapFields<'_>, limit: &LimitFields) {
    if (limit.concurrent.is_some() || limit.credits.is_some()) && limit.rates.is_empty() {
        return;
    }
    let is_elastic = |throttle: &Located<ThrottleConfig>| throttle.value == ThrottleConfig::Elastic;
    let elastic = limit
        .throttle
        .filter(is_elastic)
        .map(|throttle| throttle.location);
    let is_leaky =
        |algorithm: &Located<Algorithm>| matches!(algorithm.value, Algorithm::LeakyBucket { .. });
    let leaky = limit
        .algorithm
        .filter(is_leaky)
        .map(|algorithm| algorithm.location);
    let while_help = "add for instance `while: upstream.load < 0.7`";
    let at_most_help = "add for instance `at_most: 300/m`";
    let delay_help = "add for instance `delay: 500ms`: what would wait longer is refused";
    let needed_fields = [
        (elastic, "an elastic limit", "while", while_help),
        (elastic, "an elastic limit", "at_most", at_most_help),
        (leaky, "leaky-bucket", "delay", delay_help),
    ];
    for (location, owner, field, help) in needed_fields {
        if let Some(location) = location.filter(|_| !fields.has(field)) {
            cx.error(
                location,
                format!("{owner} needs `{field}`"),
                Some(help.into()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Identity;
    use crate::limit::pressure::Condition;

    /// Editors must not mark a key that the gateway accepts. They do not know which identities the gateway file defines.
    #[test]
    fn the_schema_accepts_the_keys_that_are_read() {
        let pattern = regex_lite::Regex::new(KEY_PART_FORMAT.pattern).unwrap();
        let words = Identity::BUILT_IN.map(Identity::as_str);
        let accepted_keys = ["everyone", "user or ip", " token  or\tuser or ip "];
        for text in words.into_iter().chain(accepted_keys) {
            assert!(
                pattern.is_match(text) && parse_key_part(text).is_ok(),
                "{text}"
            );
        }
        for text in ["user and ip", "user or", "-usr"] {
            assert!(
                !pattern.is_match(text) && parse_key_part(text).is_err(),
                "{text}"
            );
        }
        for text in ["everyone or ip", "ip or everyone", "or", "usr"] {
            assert!(parse_key_part(text).is_err(), "{text}");
        }
    }

    /// Editors must not mark a condition that the gateway accepts, nor accept one that it refuses.
    #[test]
    fn the_schema_accepts_the_conditions_that_are_read() {
        let pattern = regex_lite::Regex::new(CONDITION_FORMAT.pattern).unwrap();
        for text in [
            "upstream.load < 0.7",
            "upstream.load<30%  and\tupstream.latency.p50<0.021s",
            "upstream.latency.p90 < 200ms and gateway.cpu < 80%",
            "load < 0.7",
            "upstream.latency.p99 < 1s",
            "upstream.load < 0.7 or gateway.cpu < 80%",
            "upstream.load < 0.7 and",
        ] {
            let is_accepted = Condition::parse(text).is_ok();
            assert_eq!(pattern.is_match(text), is_accepted, "{text}");
        }
    }
}
