//! Explains the refusals of a span: which limit refused, which keys, and what had changed before.

use std::io;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::notes::{ListKind, find_events, find_samples, list_to_json, read_lists};
use super::query::{bad_request, read_record};
use super::span::parse_span;
use super::span_counts::{SpanCounts, count_span};
use crate::policy::Ruleset;
use crate::record::Record;
use crate::record::insight::{Change, GatewayEvent, Insight, KeyLists};
use crate::route::Route;
use crate::serve::admin::control::ControlState;

/// Seconds before the first refusal in which a change of the limit counts as its cause.
const CHANGE_SECONDS: u64 = 120;

/// Maximum number of keys in a response.
const MAX_KEYS: usize = 10;

/// Share of all refusals that a few keys must have together to be the cause.
const FEW_KEYS_SHARE: f64 = 0.8;

/// Share of all refusals that one key must have to be the cause.
const ONE_KEY_SHARE: f64 = 0.5;

/// Growth of the number of keys, as a factor, above which it is a spray.
const SPRAY_FACTOR: u64 = 3;

/// Minimum number of keys of a spray.
const MIN_SPRAY_KEYS: u64 = 100;

/// The parameters of an explanation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainParameters {
    from: String,
    #[serde(default = "super::span::default_end")]
    to: String,
}

/// What the record has about a span and the time before it.
struct Evidence {
    span: (u64, u64),
    now: SpanCounts,
    before: SpanCounts,
    /// Top keys in the span, and the whole minutes or hours that the lists cover.
    lists: (KeyLists, (u64, u64)),
    /// Top keys in the time before the span, and what the lists cover.
    usual: (KeyLists, (u64, u64)),
    /// Events of the gateway in the span and shortly before.
    events: Vec<GatewayEvent>,
}

/// The likely cause of many refusals, inferred from their pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LikelyCause {
    Nothing,
    Upstream,
    Config,
    OneKey,
    FewKeys,
    Spray,
    Everyone,
    Unknown,
}

impl LikelyCause {
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

/// `GET /v1/record/explain`.
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
    let (running, now) = (gateway.running(), gateway.clock().wall().as_secs());
    read_record(&*gateway, move |record| {
        let evidence = Evidence::read(record, running.insight.as_deref(), span, now)?;
        let samples = find_samples(record, span, MAX_KEYS, |sample| {
            let refused = sample
                .limit
                .as_ref()
                .is_some_and(|limit| limit.standing == "refused");
            refused || sample.status == 429
        })?;
        let mut explanation = evidence.describe(&running.ruleset);
        explanation["samples"] = json!(samples);
        Ok(explanation)
    })
    .await
}

impl Evidence {
    fn read(
        record: &Record,
        insight: Option<&Insight>,
        span: (u64, u64),
        now: u64,
    ) -> io::Result<Evidence> {
        let (from, to) = span;
        let earlier = (from.saturating_sub((to - from).max(60)), from);
        let all = record.series();
        let lists = read_lists(record, insight, span, now, &ListKind::ALL)?;
        // Whole steps that do not overlap those of the span.
        let (covered_from, covered_to) = lists.1;
        let usual_length = (covered_to - covered_from).max(240);
        let usual = (covered_from.saturating_sub(usual_length), covered_from);
        Ok(Evidence {
            span,
            now: count_span(record, &all, span)?,
            before: count_span(record, &all, earlier)?,
            lists,
            usual: read_lists(record, None, usual, now, &ListKind::ALL)?,
            events: find_events(record, (from.saturating_sub(CHANGE_SECONDS), to))?,
        })
    }

    /// The keys of the limit that refused most, with their shares of its refusals.
    ///
    /// Only one limit counts, because several may refuse the same client.
    fn key_shares(&self) -> Vec<(&str, f64)> {
        let Some((limit, refused)) = self.top_limit() else {
            return Vec::new();
        };
        let keys = self.lists.0.refused.keys.iter();
        let keys: Vec<_> = keys.filter(|listed| listed.key.limit == limit).collect();
        // Lists cover whole minutes, so they may hold more refusals than the span.
        let listed: u64 = keys.iter().map(|listed| listed.count).sum();
        let total = refused.max(listed) as f64;
        let share = |count: u64| count as f64 / total;
        keys.iter()
            .map(|listed| (listed.key.key.as_str(), share(listed.count)))
            .collect()
    }

    /// The change of the limit that refused most, if it came just before the limit began to refuse.
    fn recent_change(&self) -> Option<&Change> {
        let (limit, _) = self.top_limit()?;
        let began = self.now.limits.get(limit)?.began;
        let before = self
            .events
            .iter()
            .filter(|event| event.at <= began && event.at + CHANGE_SECONDS >= began);
        let mut changes = before.flat_map(|event| &event.changes);
        changes.find(|change| change.limit == limit && change.after.is_some())
    }

    /// The limit that refused most, and its refusals.
    fn top_limit(&self) -> Option<(&str, u64)> {
        let limits = self.now.limits.iter();
        let top = limits.max_by_key(|(_, refusals)| refusals.count);
        top.map(|(limit, refusals)| (limit.as_str(), refusals.count))
    }

    fn likely_cause(&self) -> LikelyCause {
        let refused = self.now.refused;
        if refused == 0 && self.now.by_upstream == 0 {
            return LikelyCause::Nothing;
        }
        if self.now.by_upstream > refused {
            return LikelyCause::Upstream;
        }
        if self.recent_change().is_some() {
            return LikelyCause::Config;
        }
        let shares = self.key_shares();
        if shares
            .first()
            .is_some_and(|(_, share)| *share >= ONE_KEY_SHARE)
        {
            return LikelyCause::OneKey;
        }
        if shares
            .iter()
            .take(MAX_KEYS)
            .map(|(_, share)| share)
            .sum::<f64>()
            >= FEW_KEYS_SHARE
        {
            return LikelyCause::FewKeys;
        }
        if self.lists.0.refused.total == 0 {
            return LikelyCause::Unknown;
        }
        let (now, usual) = (
            self.lists.0.decided.distinct(),
            self.usual.0.decided.distinct(),
        );
        if now >= MIN_SPRAY_KEYS && now > SPRAY_FACTOR * usual {
            return LikelyCause::Spray;
        }
        LikelyCause::Everyone
    }

    /// The whole explanation as JSON, without samples.
    fn describe(&self, ruleset: &Ruleset) -> Value {
        let refused = self.now.refused;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let mut limits: Vec<_> = self.now.limits.iter().collect();
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
        let (lists, covered) = &self.lists;
        let mut keys = list_to_json(&lists.refused, None, MAX_KEYS);
        for key in keys["keys"].as_array_mut().into_iter().flatten() {
            key["share"] = json!(share(
                key["count"].as_u64().unwrap_or(0),
                lists.refused.total
            ));
        }
        let asked = |lists: &KeyLists, (from, to): (u64, u64)| {
            let asked = &lists.decided;
            json!({ "from": from, "to": to, "distinct": asked.distinct(), "at_least": asked.at_least })
        };
        let (from, to) = self.span;
        json!({
            "from": from,
            "to": to,
            "seconds": self.now.seconds,
            "requests": self.now.requests,
            "refused": refused,
            "share": share(refused, self.now.requests),
            "before": {
                "seconds": self.before.seconds,
                "requests": self.before.requests,
                "refused": self.before.refused,
            },
            "cause": self.likely_cause().as_str(),
            "text": self.sentence(ruleset),
            "origin": {
                "gateway_429": self.now.by_gateway,
                "upstream_429": self.now.by_upstream,
            },
            "limits": limits.collect::<Vec<_>>(),
            "keys": keys["keys"],
            "distinct": keys["distinct"],
            "at_least": keys["at_least"],
            "asked": asked(lists, *covered),
            "usual": asked(&self.usual.0, self.usual.1),
            "events": self.events,
        })
    }

    /// Where limits of this name are defined, most refusals first.
    ///
    /// Definitions whose routes had no refusals are left out, unless that applies to all.
    fn origins<'a>(&self, ruleset: &'a Ruleset, limit: &str) -> Vec<LimitOrigin<'a>> {
        let mut origins: Vec<LimitOrigin> = Vec::new();
        let named = ruleset
            .rules
            .iter()
            .filter(|rule| rule.name.as_str() == limit);
        for rule in named {
            let using = |route: &&Arc<Route>| route.rules.iter().any(|own| own.index == rule.index);
            let routes = ruleset.routes.iter().filter(using).map(|route| {
                let refused = self.now.routes.get(&*route.name).copied().unwrap_or(0);
                (&*route.name, refused)
            });
            match origins.iter_mut().find(|origin| origin.at == rule.origin) {
                // A limit of the gateway file counts each route apart, with one definition.
                Some(origin) => origin.routes.extend(routes),
                None => origins.push(LimitOrigin {
                    at: &rule.origin,
                    guarantee: rule.guarantee(),
                    routes: routes.collect(),
                }),
            }
        }
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.refused()));
        if origins.first().is_some_and(|origin| origin.refused() > 0) {
            origins.retain(|origin| origin.refused() > 0);
        }
        origins
    }

    /// The explanation as a sentence.
    fn sentence(&self, ruleset: &Ruleset) -> String {
        let cause = self.likely_cause();
        let Some((limit, count)) = self.top_limit() else {
            return match cause {
                LikelyCause::Upstream => format!(
                    "The gateway refused nothing: the upstream itself answered 429 to {} requests.",
                    self.now.by_upstream
                ),
                _ => String::from("Nothing was refused."),
            };
        };
        let refused = self.now.refused;
        let at = match &self.origins(ruleset, limit)[..] {
            [] => String::new(),
            [origin] => format!(" ({})", origin.at),
            origins => {
                let origins = origins.iter().map(LimitOrigin::with_routes);
                format!(" ({})", origins.collect::<Vec<_>>().join(", "))
            }
        };
        let share = percent(count as f64 / refused.max(1) as f64);
        let limit_part = format!("{limit}{at} refused {count} requests, {share} of all refusals");
        let cause_part = match cause {
            LikelyCause::Upstream => format!(
                "but the upstream itself answered 429 to {} requests",
                self.now.by_upstream
            ),
            _ => self.describe_cause(cause),
        };
        format!("{limit_part}; {cause_part}.")
    }

    /// The second part of the sentence, for causes other than the upstream.
    fn describe_cause(&self, cause: LikelyCause) -> String {
        let shares = self.key_shares();
        match cause {
            LikelyCause::Config => {
                let text = |side: Option<&String>| side.map_or("nothing", |text| text).to_owned();
                let describe = |change: &Change| {
                    let (before, after) =
                        (text(change.before.as_ref()), text(change.after.as_ref()));
                    format!("it had just been changed, from {before} to {after}")
                };
                self.recent_change().map_or(String::new(), describe)
            }
            LikelyCause::OneKey => {
                let (key, share) = shares.first().copied().unwrap_or_default();
                format!("one key, {key}, made {} of them", percent(share))
            }
            LikelyCause::FewKeys => {
                let mut sum = 0.0;
                let few_keys = shares.iter().take_while(|(_, share)| {
                    let is_needed = sum < FEW_KEYS_SHARE;
                    sum += if is_needed { share } else { &0.0 };
                    is_needed
                });
                format!("{} keys made {} of them", few_keys.count(), percent(sum))
            }
            LikelyCause::Spray => {
                let asked = |(lists, (from, to)): &(KeyLists, (u64, u64))| {
                    (lists.decided.distinct(), to - from)
                };
                let ((now, seconds), (usual, before)) = (asked(&self.lists), asked(&self.usual));
                format!(
                    "a spray: {now} different keys asked in {seconds} s, {usual} in the {before} s before"
                )
            }
            LikelyCause::Unknown => String::from("the keys are not recorded any more"),
            LikelyCause::Upstream | LikelyCause::Everyone | LikelyCause::Nothing => format!(
                "no key stands out: {} different keys were refused, of {} that asked",
                self.lists.0.refused.distinct(),
                self.lists.0.decided.distinct()
            ),
        }
    }
}

/// A share between 0 and 1 as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Where a limit is defined.
#[derive(Serialize)]
struct LimitOrigin<'a> {
    at: &'a str,
    guarantee: String,
    /// Routes that use it, with their refused requests, by whatever limit.
    routes: Vec<(&'a str, u64)>,
}

impl LimitOrigin<'_> {
    fn refused(&self) -> u64 {
        self.routes.iter().map(|(_, refused)| refused).sum()
    }

    fn with_routes(&self) -> String {
        let routes: Vec<&str> = self.routes.iter().map(|(route, _)| *route).collect();
        format!("{} on {}", self.at, routes.join(", "))
    }
}
