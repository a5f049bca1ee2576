//! Reads the field `rate` of a limit: rates of all clients, or a map from plans to rates.

use super::super::super::context::LoadContext;
use super::super::super::section::FieldReader;
use super::super::super::table::ValueShape;
use super::super::super::tree::{Located, MapKey, Node, SourceLocation, YamlValue};
use super::super::field::{ListField, WholeNumberField};
use super::super::scalar::RateField;
use crate::limit::{MAX_WINDOWS, Rate};

/// The word for the rates of clients whose plan has none of its own.
pub(super) const ELSE: &str = "else";

/// The word for a plan or a key without a limit.
const UNLIMITED: &str = "unlimited";

/// Maximum value of `concurrent`. Multiplied by the largest factor of a plan and raised by `soft`, it still fits 32
/// bits.
const MAX_CONCURRENT: u64 = 100_000;

/// A field with the number of requests that may be open at once.
pub(super) type ConcurrentField = WholeNumberField<u32, 1, MAX_CONCURRENT>;

/// The rates of a limit, in `of_all` or in `by_plan`, never in both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RatesConfig {
    /// The quota of each window, for all clients.
    pub of_all: Vec<Located<Rate>>,
    /// The rates of each plan.
    pub by_plan: Vec<PlanRatesConfig>,
}

/// The rates of one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRatesConfig {
    /// The name of the plan; `None` for `else`, all other clients.
    pub plan: Option<String>,
    /// The location of the name.
    pub location: SourceLocation,
    /// The quota of each window; empty if the plan is unlimited, or if all its rates have mistakes.
    pub rates: Vec<Located<Rate>>,
}

impl RatesConfig {
    /// Whether there is no rate, as in a limit on open requests.
    pub fn is_empty(&self) -> bool {
        self.of_all.is_empty() && self.by_plan.is_empty()
    }

    /// The rates of all clients and of each plan.
    pub fn iter(&self) -> impl Iterator<Item = Rate> {
        let by_plan = self.by_plan.iter().flat_map(|plan_rates| &plan_rates.rates);
        self.of_all.iter().chain(by_plan).map(|rate| rate.value)
    }
}

/// What a single key has in place of the rates of its limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OverrideConfig {
    /// The key has no limit.
    Unlimited,
    /// The key has these rates, at least one.
    Rates(Vec<Rate>),
    /// The key may have this number of open requests.
    Concurrent(u32),
}

/// Reads what a key of a limit has in a file of overrides. `is_concurrent` says that the limit is on open requests.
/// Rates with a mistake are reported and left out. `None` if nothing is left.
pub fn read_override(
    cx: &mut LoadContext,
    node: &Node,
    is_concurrent: bool,
) -> Option<OverrideConfig> {
    if node.scalar() == Some(UNLIMITED) {
        return Some(OverrideConfig::Unlimited);
    }
    if is_concurrent {
        return ConcurrentField::read(cx, node).map(OverrideConfig::Concurrent);
    }
    let rates = read_rates(cx, node).into_iter();
    let rates: Vec<Rate> = rates.map(|rate| rate.value).collect();
    (!rates.is_empty()).then_some(OverrideConfig::Rates(rates))
}

/// A field with rates: one, a list, or a map from plans to one, a list or `unlimited`.
pub struct RatesField;

static PLAN_RATES_SHAPE: ValueShape = ValueShape::AnyOf(&[
    ValueShape::Words(&[UNLIMITED]),
    <ListField<RateField> as FieldReader>::SHAPE,
]);

impl FieldReader for RatesField {
    type Value = RatesConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        <ListField<RateField> as FieldReader>::SHAPE,
        ValueShape::NamedMap(&PLAN_RATES_SHAPE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<RatesConfig> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return Some(RatesConfig {
                of_all: read_rates(cx, node),
                by_plan: Vec::new(),
            });
        }
        let entries = cx.named_entries(node, "rates");
        if entries.is_empty() {
            let help = "write for instance `{ gold: 1000/m, else: 5/m }`";
            cx.error(node.location, "the map is empty", Some(help.into()));
        }
        let read_entry = |(key, node): &(MapKey, Node)| PlanRatesConfig {
            plan: (key.text != ELSE).then(|| key.text.clone()),
            location: key.location,
            rates: match node.scalar() {
                Some(UNLIMITED) => Vec::new(),
                _ => read_rates(cx, node),
            },
        };
        Some(RatesConfig {
            of_all: Vec::new(),
            by_plan: entries.iter().map(read_entry).collect(),
        })
    }
}

/// Reads a rate or a list of rates, without those that have a mistake. More than [`MAX_WINDOWS`] are reported, but
/// returned.
fn read_rates(cx: &mut LoadContext, node: &Node) -> Vec<Located<Rate>> {
    let rates = cx.read_list(node, |cx, node| {
        RateField::read(cx, node).map(|value| Located {
            value,
            location: node.location,
        })
    });
    if rates.len() > MAX_WINDOWS {
        let message = format!("a limit has at most {MAX_WINDOWS} rates");
        let help = "drop those that the others imply";
        cx.error(node.location, message, Some(help.into()));
    }
    rates
}
