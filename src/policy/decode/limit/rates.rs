//! Reads the fields `rate` and `quota` of a limit: rates of all clients, or a map from plans to rates.

use std::marker::PhantomData;

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
pub(super) const UNLIMITED: &str = "unlimited";

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

/// A field with rates or quotas: one, a list, or a map from plans to one, a list or `unlimited`.
pub struct RatesField<R>(PhantomData<R>);

/// What reads one of the rates of a [`RatesField`].
pub trait RateReader: FieldReader<Value = Rate> {
    /// A map from plans, for messages.
    const EXAMPLE: &str;
    /// What a plan may have.
    const PLAN_SHAPE: &'static ValueShape;
}

impl RateReader for RateField {
    const EXAMPLE: &str = "{ gold: 1000/m, else: 5/m }";
    const PLAN_SHAPE: &'static ValueShape = &ValueShape::AnyOf(&[
        ValueShape::Words(&[UNLIMITED]),
        <ListField<RateField> as FieldReader>::SHAPE,
    ]);
}

impl<R: RateReader> FieldReader for RatesField<R> {
    type Value = RatesConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        <ListField<R> as FieldReader>::SHAPE,
        ValueShape::NamedMap(R::PLAN_SHAPE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<RatesConfig> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return Some(RatesConfig {
                of_all: read_rates::<R>(cx, node),
                by_plan: Vec::new(),
            });
        }
        let entries = cx.named_entries(node, "rates");
        if entries.is_empty() {
            let help = format!("write for instance `{}`", R::EXAMPLE);
            cx.error(node.location, "the map is empty", Some(help));
        }
        let read_entry = |(key, node): &(MapKey, Node)| PlanRatesConfig {
            plan: (key.text != ELSE).then(|| key.text.clone()),
            location: key.location,
            rates: match node.scalar() {
                Some(UNLIMITED) => Vec::new(),
                _ => read_rates::<R>(cx, node),
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
pub(super) fn read_rates<R: RateReader>(cx: &mut LoadContext, node: &Node) -> Vec<Located<Rate>> {
    let rates = cx.read_list(node, |cx, node| {
        R::read(cx, node).map(|value| Located {
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
