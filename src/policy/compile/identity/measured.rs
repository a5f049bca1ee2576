//! Compiles the identities that label `tollgate_identity_requests_total`, with the values that have series of their
//! own.

use std::sync::Arc;

use super::super::super::context::LoadContext;
use super::super::super::decode::GatewayConfig;
use crate::base::telemetry::MAX_VALUES_PER_IDENTITY;
use crate::identity::custom::Source;
use crate::identity::{MeasuredIdentity, Settings, user};
use crate::limit::{CustomIdentity, Identity};

/// Maximum number of values of a table's field that labels a metric. There are about 250 countries, but 80,000
/// operators of networks.
const MAX_TABLE_VALUES: usize = 300;

/// Compiles the identities with `metrics: true`, custom ones first and then the plan. A table with more than
/// [`MAX_TABLE_VALUES`] values is reported to `cx`.
pub fn compile_measured(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    compiled: &Settings,
) -> Vec<MeasuredIdentity> {
    let mut measured = Vec::new();
    for written in &gateway.identity.custom {
        let Some(identity) = CustomIdentity::find(&written.name.value) else {
            continue;
        };
        if !written.metrics {
            continue;
        }
        let values: Vec<Arc<str>> = match compiled.custom_source(identity) {
            Some(Source::Networks(table)) => table.names().to_vec(),
            Some(Source::ApiKeys) => {
                let users = compiled.user_sources.iter();
                let keys = users.filter_map(|user| match user {
                    user::Settings::ApiKeys(keys) => Some(keys),
                    _ => None,
                });
                keys.flat_map(|keys| keys.values_of(identity)).collect()
            }
            // The source has a mistake, or values without a bound; both are reported elsewhere.
            _ => continue,
        };
        if let Some(field) = &written.field
            && values.len() > MAX_TABLE_VALUES
        {
            let message = format!(
                "`metrics` counts by at most {MAX_TABLE_VALUES} values, and `{}` has {}",
                field.value,
                values.len()
            );
            let help = "name a field with fewer values, such as the country, or remove `metrics`";
            cx.error(field.location, message, Some(help.into()));
        }
        measured.push(measure(Identity::Custom(identity), values));
    }
    let plan = gateway.identity.plan.as_ref();
    if plan.is_some_and(|plan| plan.value.metrics) {
        let names = compiled.plan.plans.iter();
        let names = names.map(|plan| Arc::from(plan.name.as_str()));
        measured.push(measure(Identity::Plan, names.collect()));
    }
    measured
}

/// The identity with the first [`MAX_VALUES_PER_IDENTITY`] of its values in the order of their bytes, each once.
/// Requests with any other value share a series.
fn measure(identity: Identity, mut values: Vec<Arc<str>>) -> MeasuredIdentity {
    values.sort_unstable();
    values.dedup();
    values.truncate(MAX_VALUES_PER_IDENTITY);
    MeasuredIdentity { identity, values }
}
