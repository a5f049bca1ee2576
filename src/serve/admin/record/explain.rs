//! Explains the refusals of a span: which limit refused, which keys, and what had changed before.

use std::collections::BTreeMap;
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
use crate::policy::Ruleset;
use crate::record::insight::{Change, GatewayEvent, Insight, KeyLists};
use crate::record::{Record, Series};
use crate::route::Route;
use crate::serve::admin::control::ControlState;

/// Seconds before the first refusal in which a change of the limit counts as its cause.
const CHANGE_SECONDS: u64 = 120;
/// Maximum number of buckets that are added up.
const MAX_POINTS: usize = 11_000;
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
    /// The lists of the span, and the whole minutes or hours that they cover.
    lists: (KeyLists, (u64, u64)),
    /// The same of the time before.
    usual: (KeyLists, (u64, u64)),
    events: Vec<GatewayEvent>,
}

/// Counts of a span.
#[derive(Default)]
struct SpanCounts {
    /// Recorded seconds.
    seconds: u64,
    requests: u64,
    refused: u64,
    /// Refusals of each limit, and the last second of the first step with any. Several limits may refuse one request.
    limits: BTreeMap<String, (u64, u64)>,
    /// Refused requests by route.
    routes: BTreeMap<String, u64>,
    by_gateway: u64,
    by_upstream: u64,
}

/// The likely cause of many refusals, told from their pattern.
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
    span: Result<Query<ExplainParameters>, QueryRejection>,
) -> Response {
    let span = match span {
        Ok(Query(span)) => parse_span(&*gateway, &span.from, &span.to),
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
        let mut answer = evidence.describe(&running.ruleset);
        answer["samples"] = json!(samples);
        Ok(answer)
    })
    .await
}

fn count_span(
    record: &Record,
    all: &[(Series, u32)],
    (from, to): (u64, u64),
) -> io::Result<SpanCounts> {
    let grid = record.grid(from, to, MAX_POINTS)?;
    let names = [
        "all:tollgate_requests_total",
        "outcome:tollgate_requests_total",
        "status:tollgate_responses_total",
        "tollgate_limit_decisions_total",
        "tollgate_requests_total",
    ];
    let selected: Vec<_> = all
        .iter()
        .filter(|(series, _)| names.contains(&series.name.as_str()))
        .collect();
    let numbers: Vec<u32> = selected.iter().map(|(_, number)| *number).collect();
    let found = record.read(&grid, &numbers)?;
    let mut counts = SpanCounts {
        seconds: found
            .covered
            .iter()
            .map(|seconds| u64::from(*seconds))
            .sum(),
        ..SpanCounts::default()
    };
    for (series, number) in selected {
        let sums = found.columns.get(number).into_iter();
        let sum: u64 = sums.flat_map(|column| &column.sums).sum();
        let label = |name: &str| {
            let mut labels = series.labels.iter();
            let found = labels.find(|(label, _)| label == name);
            found.map_or("", |(_, value)| value.as_str())
        };
        if series.labels.is_empty() {
            counts.requests = sum;
        } else if label("outcome") == "refused" && !label("route").is_empty() {
            counts.routes.insert(label("route").to_owned(), sum);
        } else if label("outcome") == "refused" && label("limit").is_empty() {
            counts.refused = sum;
        } else if label("outcome") == "refused" {
            let sums = found.columns.get(number).into_iter();
            let first = sums
                .flat_map(|column| &column.sums)
                .position(|sum| *sum > 0);
            let first = first.map_or(u64::MAX, |at| grid.from + (at as u64 + 1) * grid.step - 1);
            let limit = counts.limits.entry(label("limit").to_owned());
            let entry = limit.or_insert((0, u64::MAX));
            *entry = (entry.0 + sum, entry.1.min(first));
        } else if label("status") == "429" {
            match label("origin") {
                "upstream" => counts.by_upstream += sum,
                _ => counts.by_gateway += sum,
            }
        }
    }
    counts.limits.retain(|_, (refused, _)| *refused > 0);
    Ok(counts)
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
        let counted = read_lists(record, insight, span, now, &ListKind::ALL)?;
        // Whole steps that do not overlap those of the span.
        let (begun, over) = counted.1;
        let usual = (begun.saturating_sub((over - begun).max(240)), begun);
        Ok(Evidence {
            span,
            now: count_span(record, &all, span)?,
            before: count_span(record, &all, earlier)?,
            lists: counted,
            usual: read_lists(record, None, usual, now, &ListKind::ALL)?,
            events: find_events(record, (from.saturating_sub(CHANGE_SECONDS), to))?,
        })
    }

    /// The keys of the limit that refused most, with their shares of its refusals.
    ///
    /// Only one limit counts, because several may refuse the same client.
    fn shares(&self) -> Vec<(&str, f64)> {
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

    /// The change of that limit just before it began to refuse.
    fn change(&self) -> Option<&Change> {
        let (limit, _) = self.top_limit()?;
        let (_, began) = self.now.limits.get(limit)?;
        let before = self
            .events
            .iter()
            .filter(|event| event.at <= *began && event.at + CHANGE_SECONDS >= *began);
        let mut changes = before.flat_map(|event| &event.changes);
        changes.find(|change| change.limit == limit && change.after.is_some())
    }

    /// The limit that refused most.
    fn top_limit(&self) -> Option<(&str, u64)> {
        let refused = self.now.limits.iter();
        let first = refused.max_by_key(|(_, (refused, _))| *refused);
        first.map(|(limit, (refused, _))| (limit.as_str(), *refused))
    }

    fn cause(&self) -> LikelyCause {
        let refused = self.now.refused;
        if refused == 0 && self.now.by_upstream == 0 {
            return LikelyCause::Nothing;
        }
        if self.now.by_upstream > refused {
            return LikelyCause::Upstream;
        }
        if self.change().is_some() {
            return LikelyCause::Config;
        }
        let shares = self.shares();
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
        let (now, usual) = (self.lists.0.asked.distinct(), self.usual.0.asked.distinct());
        if now >= MIN_SPRAY_KEYS && now > SPRAY_FACTOR * usual {
            return LikelyCause::Spray;
        }
        LikelyCause::Everyone
    }

    fn describe(&self, ruleset: &Ruleset) -> Value {
        let refused = self.now.refused;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let mut limits: Vec<_> = self.now.limits.iter().collect();
        limits.sort_by_key(|(_, (refused, _))| std::cmp::Reverse(*refused));
        let limits = limits.into_iter().map(|(limit, (count, _))| {
            let origins = self.origins(ruleset, limit);
            json!({
                "limit": limit,
                "at": origins.first().map(|origin| origin.at),
                "guarantee": origins.first().map(|origin| &origin.guarantee),
                "places": origins,
                "refused": count,
                "share": share(*count, refused),
            })
        });
        let (lists, counted) = &self.lists;
        let mut keys = list_to_json(&lists.refused, None, MAX_KEYS);
        for key in keys["keys"].as_array_mut().into_iter().flatten() {
            key["share"] = json!(share(
                key["count"].as_u64().unwrap_or(0),
                lists.refused.total
            ));
        }
        let asked = |lists: &KeyLists, (from, to): (u64, u64)| {
            let asked = &lists.asked;
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
            "cause": self.cause().as_str(),
            "text": self.text(ruleset),
            "origin": {
                "gateway_429": self.now.by_gateway,
                "upstream_429": self.now.by_upstream,
            },
            "limits": limits.collect::<Vec<_>>(),
            "keys": keys["keys"],
            "distinct": keys["distinct"],
            "at_least": keys["at_least"],
            "asked": asked(lists, *counted),
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
    fn text(&self, ruleset: &Ruleset) -> String {
        let cause = self.cause();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
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
                let each = origins.iter().map(LimitOrigin::with_routes);
                format!(" ({})", each.collect::<Vec<_>>().join(", "))
            }
        };
        let share = percent(count as f64 / refused.max(1) as f64);
        let which = format!("{limit}{at} refused {count} requests, {share} of all refusals");
        let who = match cause {
            LikelyCause::Upstream => format!(
                "but the upstream itself answered 429 to {} requests",
                self.now.by_upstream
            ),
            _ => self.describe_keys(cause),
        };
        format!("{which}; {who}.")
    }

    fn describe_keys(&self, cause: LikelyCause) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let shares = self.shares();
        match cause {
            LikelyCause::Config => {
                let text = |side: Option<&String>| side.map_or("nothing", |text| text).to_owned();
                let of = |change: &Change| {
                    let (was, is) = (text(change.before.as_ref()), text(change.after.as_ref()));
                    format!("it had just been changed, from {was} to {is}")
                };
                self.change().map_or(String::new(), of)
            }
            LikelyCause::OneKey => {
                let (key, share) = shares.first().copied().unwrap_or_default();
                format!("one key, {key}, made {} of them", percent(share))
            }
            LikelyCause::FewKeys => {
                let mut sum = 0.0;
                let few = shares.iter().take_while(|(_, share)| {
                    let more = sum < FEW_KEYS_SHARE;
                    sum += if more { share } else { &0.0 };
                    more
                });
                format!("{} keys made {} of them", few.count(), percent(sum))
            }
            LikelyCause::Spray => {
                let asked = |(lists, (from, to)): &(KeyLists, (u64, u64))| {
                    (lists.asked.distinct(), to - from)
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
                self.lists.0.asked.distinct()
            ),
        }
    }
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
