//! Moves the rates of a limit to where its windows begin: quotas into their zone, and fixed windows to the clock. The same
//! holds for the rates that single keys have in a file of overrides.

use super::super::super::context::LoadContext;
use super::super::super::section::FieldReader;
use super::super::super::tree::{Located, Node, SourceLocation};
use super::super::ValueError;
use super::super::scalar::RateField;
use super::LimitFields;
use super::quota::{QuotaField, align_quota};
use super::rates::{ConcurrentField, RatesConfig, UNLIMITED, read_rates};
use crate::limit::{Algorithm, Rate};

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

/// Reads what a key of `limit` has in a file of overrides: a number for a limit on open requests, quotas for one with
/// quotas, otherwise rates. Those with a mistake are reported and left out, and so is any number for a limit with credits.
/// `None` if nothing is left.
pub fn read_override(
    cx: &mut LoadContext,
    node: &Node,
    limit: &LimitFields,
) -> Option<OverrideConfig> {
    if node.scalar() == Some(UNLIMITED) {
        return Some(OverrideConfig::Unlimited);
    }
    if limit.credits_location().is_some() {
        let help = "write `unlimited`, or add credits with `tollgate grant`";
        let message = "the credits of a key are in no file: they are what operators have added";
        cx.error(node.location, message, Some(help.into()));
        return None;
    }
    if limit.concurrent.is_some() {
        return ConcurrentField::read(cx, node).map(OverrideConfig::Concurrent);
    }
    let rates = match limit.is_quota() {
        true => read_rates::<QuotaField>(cx, node),
        false => read_rates::<RateField>(cx, node),
    };
    let mut aligned_rates = Vec::with_capacity(rates.len());
    for rate in rates {
        match limit.align_rate(rate.value) {
            Ok(rate) => aligned_rates.push(rate),
            Err(error) => cx.error(rate.location, error.message, error.help),
        }
    }
    let rates = aligned_rates;
    (!rates.is_empty()).then_some(OverrideConfig::Rates(rates))
}

impl LimitFields {
    /// Whether the limit has a quota by the calendar in place of rates.
    pub fn is_quota(&self) -> bool {
        self.rates.iter().any(|rate| rate.calendar().is_some())
    }

    /// Makes the quotas the rates of the limit, with its zone and its start. `location` is that of `quota`. Reports a start
    /// that a quota cannot have.
    pub(super) fn use_quotas(&mut self, cx: &mut LoadContext, location: SourceLocation) {
        let mut quotas = std::mem::take(&mut self.quotas);
        let by_plan = quotas.by_plan.iter_mut().flat_map(|plan| &mut plan.rates);
        let all = quotas.of_all.iter_mut().chain(by_plan);
        let mut has_reported = false;
        for quota in all {
            let aligned = self.align_rate(quota.value);
            match aligned {
                Ok(rate) => quota.value = rate,
                Err(_) if has_reported => {}
                Err(error) => {
                    has_reported = true;
                    let at = self.starts.map_or(quota.location, |starts| starts.location);
                    cx.error(at, error.message, error.help);
                }
            }
        }
        self.rates = quotas;
        // No other algorithm counts in windows of the calendar. `check` reports a written one.
        self.algorithm.get_or_insert(Located {
            value: Algorithm::FixedWindow,
            location,
        });
    }

    /// A rate in place of one of this limit: in its zone and from its start, or aligned as `align` says.
    ///
    /// # Errors
    ///
    /// Windows of a quota's unit cannot begin there, or the process has used too many calendars.
    fn align_rate(&self, rate: Rate) -> Result<Rate, ValueError> {
        if rate.calendar().is_none() {
            let alignment = self.alignment.map(|alignment| alignment.value);
            return Ok(rate.aligned(alignment.unwrap_or_default()));
        }
        let zone = self.zone.as_ref().map(|zone| zone.value.as_str());
        align_quota(rate, zone, self.starts.map(|starts| starts.value))
    }

    /// Aligns the rates of the limit as `align` says.
    pub(super) fn align_rates(&mut self) {
        let Some(alignment) = self.alignment.filter(|_| !self.is_quota()) else {
            return;
        };
        let RatesConfig { of_all, by_plan } = &mut self.rates;
        let by_plan = by_plan.iter_mut().flat_map(|plan| &mut plan.rates);
        for rate in of_all.iter_mut().chain(by_plan) {
            rate.value = rate.value.aligned(alignment.value);
        }
    }
}
