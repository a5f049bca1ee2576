//! Explains the refusals of a span: which limit refused, which keys were refused, and what had changed before. A single
//! request is explained by `serve/stack/explain.rs` instead.
//!
//! The likely cause is inferred from who refused, from recent changes of limits, and from the number of keys and their
//! shares. The constants below are the thresholds.

use std::io;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::notes::{CoveredLists, ListKind, find_events, find_samples, list_to_json, read_lists};
use super::query::{bad_request, respond_with_query};
use super::span::parse_span;
use super::span_counts::{SpanCounts, count_span};
use crate::policy::Ruleset;
use crate::record::Record;
use crate::record::insight::{GatewayEvent, LimitChange, LiveInsight};
use crate::route::Route;
use crate::serve::admin::control::ControlState;

/// Longest time from a change of a limit to its first refusal for which the change counts as the cause, in seconds.
const MAX_CHANGE_AGE_SECONDS: u64 = 120;

/// Maximum number of keys in a response, and of samples. Also the most keys that count as few.
const MAX_KEYS: usize = 10;

/// Minimum share that a few keys have together if they are the cause: of the refusals by the limit that refused most.
const MIN_FEW_KEYS_SHARE: f64 = 0.8;

/// Minimum share that one key has if it is the cause: of the refusals by the limit that refused most.
const MIN_ONE_KEY_SHARE: f64 = 0.5;

/// Growth of the number of keys, as a factor, above which the requests are a spray.
const SPRAY_FACTOR: u64 = 3;

/// Minimum number of keys of a spray.
const MIN_SPRAY_KEYS: u64 = 100;

/// Minimum length of the time before a span with which its counts are compared, in seconds.
const MIN_COMPARED_SECONDS: u64 = 60;

/// Minimum length of the time before a span with which its keys are compared, in seconds. The shortest lists cover a
/// minute each, so at least four minutes are compared.
const MIN_COMPARED_LISTS_SECONDS: u64 = 240;

/// The parameters of an explanation: the span that is explained. See [`parse_span`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainParameters {
    from: String,
    #[serde(default = "super::span::default_end")]
    to: String,
}

/// What the record has about a span and about the time before it.
struct Evidence {
    /// Begin and end, in seconds since 1970.
    span: (u64, u64),
    /// The counts in the span.
    counts: SpanCounts,
    /// The counts of a time before the span, as long as the span but at least [`MIN_COMPARED_SECONDS`].
    counts_before: SpanCounts,
    /// Top keys in the span.
    lists: CoveredLists,
    /// Top keys in the time before the span, to compare with.
    lists_before: CoveredLists,
    /// Events of the gateway in the span and shortly before.
    events: Vec<GatewayEvent>,
}

/// The likely cause of many refusals, inferred from their pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LikelyCause {
    /// Neither a limit nor the upstream refused anything.
    Nothing,
    /// The upstream itself refused more requests than the gateway.
    Upstream,
    /// The limit that refused most had just been changed.
    Config,
    /// One key has at least [`MIN_ONE_KEY_SHARE`] of the refusals by the limit that refused most.
    OneKey,
    /// At most [`MAX_KEYS`] keys have at least [`MIN_FEW_KEYS_SHARE`] of the refusals by the limit that refused most.
    FewKeys,
    /// Many more keys than usual sent requests.
    Spray,
    /// No key stands out.
    Everyone,
    /// No refused keys of the span are recorded, for instance because the record keeps keys for a shorter time than
    /// counts.
    Unknown,
}

impl LikelyCause {
    /// The word for the cause in responses.
    fn as_str(self) -> &'static str {
        match self {
            LikelyCause::Nothing => "none",
            LikelyCause::Upstream => "upstream",
            LikelyCause::Config => "config",
            LikelyCause::OneKey => "one_key",
            LikelyCause::FewKeys => "few_keys",
            LikelyCause::Spray => "spray",
            LikelyCause::Everyone => "everyone",
            LikelyCause::Unknown => "unknown",
        }
    }
}

/// `GET /v1/record/explain`: the refusals of a span and their likely cause. 400 for bad parameters; else see
/// [`respond_with_query`].
pub async fn explain(
    State(gateway): ControlState,
    parameters: Result<Query<ExplainParameters>, QueryRejection>,
) -> Response {
    let span = match parameters {
        Ok(Query(parameters)) => parse_span(&*gateway, &parameters.from, &parameters.to),
        Err(rejection) => Err(bad_request(&rejection.body_text())),
    };
    let span = match span {
        Ok(span) => span,
        Err(response) => return *response,
    };
    let running = gateway.running();
    let now = gateway.clock().wall().as_secs();
    respond_with_query(&*gateway, move |record| {
        let evidence = Evidence::read(record, running.insight.as_deref(), span, now)?;
        // The latest samples of refused requests, by a limit or by the upstream.
        let samples = find_samples(record, span, MAX_KEYS, |sample| {
            let limit = sample.limit.as_ref();
            let is_refused = limit.is_some_and(|limit| limit.standing == "refused");
            is_refused || sample.status == 429
        })?;
        let mut explanation = evidence.describe(&running.ruleset);
        explanation["samples"] = json!(samples);
        Ok(explanation)
    })
    .await
}

impl Evidence {
    /// Reads the evidence about a span from the record, and about the current minute from `insight`.
    fn read(
        record: &Record,
        insight: Option<&LiveInsight>,
        span: (u64, u64),
        now: u64,
    ) -> io::Result<Evidence> {
        let (from, to) = span;
        let compared_seconds = (to - from).max(MIN_COMPARED_SECONDS);
        let span_before = (from.saturating_sub(compared_seconds), from);
        let recorded_series = record.series();
        let lists = read_lists(record, insight, span, now, &ListKind::ALL)?;
        // The lists before are of whole steps that do not overlap the steps of the span.
        let (covered_from, covered_to) = lists.covered;
        let seconds_before = (covered_to - covered_from).max(MIN_COMPARED_LISTS_SECONDS);
        let covered_before = (covered_from.saturating_sub(seconds_before), covered_from);
        Ok(Evidence {
            span,
            counts: count_span(record, &recorded_series, span)?,
            counts_before: count_span(record, &recorded_series, span_before)?,
            lists,
            lists_before: read_lists(record, None, covered_before, now, &ListKind::ALL)?,
            // What operators' orders changed is an event of its own.
            events: find_events(
                record,
                (from.saturating_sub(MAX_CHANGE_AGE_SECONDS), to),
                Some(false),
            )?,
        })
    }

    /// The keys of the limit that refused most, each with its share of the limit's refusals, from 0 to 1; most refusals
    /// first.
    ///
    /// Only one limit counts, because several may refuse the same client.
    fn key_shares(&self) -> Vec<(&str, f64)> {
        let Some((limit, refused)) = self.top_limit() else {
            return Vec::new();
        };
        let refused_keys = self.lists.lists.refused.keys.iter();
        let limit_keys: Vec<_> = refused_keys
            .filter(|listed| listed.key.limit == limit)
            .collect();
        // Lists cover whole minutes, so they may hold more refusals than the span.
        let listed_count: u64 = limit_keys.iter().map(|listed| listed.count).sum();
        let total = refused.max(listed_count) as f64;
        let share = |count: u64| count as f64 / total;
        limit_keys
            .iter()
            .map(|listed| (listed.key.key.as_str(), share(listed.count)))
            .collect()
    }

    /// The change of the limit that refused most, if it can be the cause. That needs a change at most
    /// [`MAX_CHANGE_AGE_SECONDS`] before the limit's first refusal in the span, and one that did not remove the limit.
    fn recent_change(&self) -> Option<&LimitChange> {
        let (limit, _) = self.top_limit()?;
        let first_refusal_at = self.counts.limits.get(limit)?.first_refusal_at;
        let is_just_before = |event: &&GatewayEvent| {
            event.at <= first_refusal_at && event.at + MAX_CHANGE_AGE_SECONDS >= first_refusal_at
        };
        let recent_events = self.events.iter().filter(is_just_before);
        let mut changes = recent_events.flat_map(|event| &event.changes);
        changes.find(|change| change.limit == limit && change.after.is_some())
    }

    /// The limit that refused most, and the number of its refusals; `None` if no limit refused.
    fn top_limit(&self) -> Option<(&str, u64)> {
        let limits = self.counts.limits.iter();
        let top = limits.max_by_key(|(_, refusals)| refusals.count);
        top.map(|(limit, refusals)| (limit.as_str(), refusals.count))
    }

    /// The likely cause of the refusals: the first one that fits.
    fn likely_cause(&self) -> LikelyCause {
        let refused = self.counts.refused;
        if refused == 0 && self.counts.upstream_429 == 0 {
            return LikelyCause::Nothing;
        }
        if self.counts.upstream_429 > refused {
            return LikelyCause::Upstream;
        }
        if self.recent_change().is_some() {
            return LikelyCause::Config;
        }
        let shares = self.key_shares();
        let first_share = shares.first().map(|(_, share)| *share);
        if first_share.is_some_and(|share| share >= MIN_ONE_KEY_SHARE) {
            return LikelyCause::OneKey;
        }
        let few_shares = shares.iter().take(MAX_KEYS).map(|(_, share)| share);
        if few_shares.sum::<f64>() >= MIN_FEW_KEYS_SHARE {
            return LikelyCause::FewKeys;
        }
        if self.lists.lists.refused.total == 0 {
            return LikelyCause::Unknown;
        }
        let key_count = self.lists.lists.decided.distinct_count();
        let usual_key_count = self.lists_before.lists.decided.distinct_count();
        if key_count >= MIN_SPRAY_KEYS && key_count > SPRAY_FACTOR * usual_key_count {
            return LikelyCause::Spray;
        }
        LikelyCause::Everyone
    }

    /// The whole explanation as JSON, without samples.
    fn describe(&self, ruleset: &Ruleset) -> Value {
        let refused = self.counts.refused;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let mut limits: Vec<_> = self.counts.limits.iter().collect();
        limits.sort_by_key(|(_, refusals)| std::cmp::Reverse(refusals.count));
        let limits = limits.into_iter().map(|(limit, refusals)| {
            let origins = self.origins(ruleset, limit);
            json!({
                "limit": limit,
                "at": origins.first().map(|origin| origin.at),
                "guarantee": origins.first().map(|origin| &origin.guarantee),
                "places": origins,
                "refused": refusals.count,
                "share": share(refusals.count, refused),
            })
        });
        let lists = &self.lists.lists;
        let mut keys = list_to_json(&lists.refused, None, MAX_KEYS);
        for key in keys["keys"].as_array_mut().into_iter().flatten() {
            key["share"] = json!(share(
                key["count"].as_u64().unwrap_or(0),
                lists.refused.total
            ));
        }
        let describe_decided = |CoveredLists { lists, covered }: &CoveredLists| {
            let (from, to) = covered;
            let decided = &lists.decided;
            json!({ "from": from, "to": to, "distinct": decided.distinct_count(), "at_least": decided.is_lower_bound })
        };
        let (from, to) = self.span;
        json!({
            "from": from,
            "to": to,
            "seconds": self.counts.seconds,
            "requests": self.counts.requests,
            "refused": refused,
            "share": share(refused, self.counts.requests),
            "before": {
                "seconds": self.counts_before.seconds,
                "requests": self.counts_before.requests,
                "refused": self.counts_before.refused,
            },
            "cause": self.likely_cause().as_str(),
            "text": self.describe_in_sentence(ruleset),
            "origin": {
                "gateway_429": self.counts.gateway_429,
                "upstream_429": self.counts.upstream_429,
            },
            "limits": limits.collect::<Vec<_>>(),
            "keys": keys["keys"],
            "distinct": keys["distinct"],
            "at_least": keys["at_least"],
            "asked": describe_decided(&self.lists),
            "usual": describe_decided(&self.lists_before),
            "events": self.events,
        })
    }

    /// The places where limits of this name are defined, most refusals first.
    ///
    /// Definitions whose routes had no refusals are left out, unless no definition had any.
    fn origins<'a>(&self, ruleset: &'a Ruleset, limit: &str) -> Vec<LimitOrigin<'a>> {
        let mut origins: Vec<LimitOrigin> = Vec::new();
        let rules_of_limit = ruleset
            .rules
            .iter()
            .filter(|rule| rule.name.as_str() == limit);
        for rule in rules_of_limit {
            let uses_rule = |route: &&Arc<Route>| {
                let mut rules = route.rules.iter();
                rules.any(|route_rule| route_rule.index == rule.index)
            };
            let routes = ruleset.routes.iter().filter(uses_rule).map(|route| {
                let refused_count = self.counts.refused_by_route.get(&*route.name);
                (&*route.name, refused_count.copied().unwrap_or(0))
            });
            // A policy with several matches has a route for each, of one name.
            let mut routes: Vec<(&str, u64)> = routes.collect();
            routes.dedup_by_key(|(name, _)| *name);
            match origins.iter_mut().find(|origin| origin.at == rule.origin) {
                // One definition has several rules where it counts each route or each plan apart.
                Some(origin) => {
                    let is_new = |(route, _): &(&str, u64)| {
                        !origin
                            .routes
                            .iter()
                            .any(|(listed_route, _)| listed_route == route)
                    };
                    routes.retain(is_new);
                    origin.routes.extend(routes);
                }
                None => origins.push(LimitOrigin {
                    at: &rule.origin,
                    guarantee: rule.guarantee(),
                    routes,
                }),
            }
        }
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.refused_count()));
        if origins
            .first()
            .is_some_and(|origin| origin.refused_count() > 0)
        {
            origins.retain(|origin| origin.refused_count() > 0);
        }
        origins
    }

    /// The explanation as a sentence.
    fn describe_in_sentence(&self, ruleset: &Ruleset) -> String {
        let cause = self.likely_cause();
        let Some((limit, count)) = self.top_limit() else {
            return match cause {
                LikelyCause::Upstream => format!(
                    "The gateway refused nothing: the upstream itself answered 429 to {} requests.",
                    self.counts.upstream_429
                ),
                _ => String::from("Nothing was refused."),
            };
        };
        let refused = self.counts.refused;
        let at = match &self.origins(ruleset, limit)[..] {
            [] => String::new(),
            [origin] => format!(" ({})", origin.at),
            origins => {
                let origins = origins.iter().map(LimitOrigin::describe_with_routes);
                format!(" ({})", origins.collect::<Vec<_>>().join(", "))
            }
        };
        let share = percent(count as f64 / refused.max(1) as f64);
        let limit_part = format!("{limit}{at} refused {count} requests, {share} of all refusals");
        let cause_part = match cause {
            LikelyCause::Upstream => format!(
                "but the upstream itself answered 429 to {} requests",
                self.counts.upstream_429
            ),
            _ => self.describe_cause(cause),
        };
        format!("{limit_part}; {cause_part}.")
    }

    /// The second part of the sentence, for causes other than [`LikelyCause::Upstream`] and [`LikelyCause::Nothing`].
    fn describe_cause(&self, cause: LikelyCause) -> String {
        let shares = self.key_shares();
        match cause {
            LikelyCause::Config => {
                let or_nothing =
                    |text: Option<&String>| text.map_or("nothing", |text| text).to_owned();
                let describe = |change: &LimitChange| {
                    let before = or_nothing(change.before.as_ref());
                    let after = or_nothing(change.after.as_ref());
                    format!("it had just been changed, from {before} to {after}")
                };
                self.recent_change().map_or(String::new(), describe)
            }
            LikelyCause::OneKey => {
                let (key, share) = shares.first().copied().unwrap_or_default();
                format!("one key, {key}, made {} of them", percent(share))
            }
            LikelyCause::FewKeys => {
                let mut share_sum = 0.0;
                let few_keys = shares.iter().take_while(|(_, share)| {
                    let is_needed = share_sum < MIN_FEW_KEYS_SHARE;
                    share_sum += if is_needed { share } else { &0.0 };
                    is_needed
                });
                let key_count = few_keys.count();
                format!("{key_count} keys made {} of them", percent(share_sum))
            }
            LikelyCause::Spray => {
                let count_and_seconds = |CoveredLists { lists, covered }: &CoveredLists| {
                    (lists.decided.distinct_count(), covered.1 - covered.0)
                };
                let (key_count, seconds) = count_and_seconds(&self.lists);
                let (usual_count, seconds_before) = count_and_seconds(&self.lists_before);
                format!(
                    "a spray: {key_count} different keys asked in {seconds} s, {usual_count} in the {seconds_before} s before"
                )
            }
            LikelyCause::Unknown => String::from("the keys are not recorded any more"),
            LikelyCause::Upstream | LikelyCause::Everyone | LikelyCause::Nothing => format!(
                "no key stands out: {} different keys were refused, of {} that asked",
                self.lists.lists.refused.distinct_count(),
                self.lists.lists.decided.distinct_count()
            ),
        }
    }
}

/// A share between 0 and 1 as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A place where a limit is defined.
#[derive(Serialize)]
struct LimitOrigin<'a> {
    /// The file and the line of the definition.
    at: &'a str,
    /// What the limit promises, in words.
    guarantee: String,
    /// The names of the routes that use the limit, each with its number of requests that any limit refused.
    routes: Vec<(&'a str, u64)>,
}

impl LimitOrigin<'_> {
    /// The number of refused requests on the routes that use the limit.
    fn refused_count(&self) -> u64 {
        self.routes.iter().map(|(_, refused)| refused).sum()
    }

    /// The place and its routes, as in `a.yaml:3 on shop, api`.
    fn describe_with_routes(&self) -> String {
        let routes: Vec<&str> = self.routes.iter().map(|(route, _)| *route).collect();
        format!("{} on {}", self.at, routes.join(", "))
    }
}
