//! Serves top keys, sampled requests and events of the gateway, which the record keeps as notes: texts of JSON with a time.

use std::io;
use std::ops::ControlFlow;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::query::{ErrorResponse, bad_request, respond_with_query};
use super::span::parse_span;
use crate::record::insight::{
    GatewayEvent, KeyList, KeyLists, LimitKey, ListSums, LiveInsight, MAX_LISTED_KEYS,
    RequestSample,
};
use crate::record::{Record, Topic};
use crate::serve::admin::control::{Control, ControlState};
use crate::serve::admin::keys::{self, DescribedKey};

/// Longest span, in seconds, that is read from lists of minutes alone.
const MAX_MINUTES_SPAN_SECONDS: u64 = 6 * HOUR_SECONDS;

/// The topics of lists, longest step first, each with the seconds that one list covers.
const LIST_LEVELS: [(Topic, u64); 3] = [
    (Topic::Day, DAY_SECONDS),
    (Topic::Hour, HOUR_SECONDS),
    (Topic::Minute, MINUTE_SECONDS),
];

const MINUTE_SECONDS: u64 = 60;
const HOUR_SECONDS: u64 = 3_600;
const DAY_SECONDS: u64 = 86_400;

/// Maximum number of keys in the sum of lists. It is far more than a response has by default, because a filter may
/// leave out most.
const MAX_SUMMED_KEYS: usize = 10 * MAX_LISTED_KEYS;

/// Maximum number of notes in a response.
const MAX_NOTES: usize = 1_000;

/// The number of top keys in a response if the request does not name one.
const DEFAULT_TOP_KEYS: usize = 20;

/// The number of samples in a response if the request does not name one.
const DEFAULT_SAMPLES: usize = 50;

/// The number of events in a response if the request does not name one.
const DEFAULT_EVENTS: usize = 100;

/// Maximum number of samples in the response about one key.
const MAX_KEY_SAMPLES: usize = 20;

/// Maximum number of steps of a key's curve, about as many as a chart shows.
const MAX_CURVE_STEPS: u64 = 200;

/// Longest span of a key's curve, in seconds: as long as lists of minutes are kept.
const MAX_CURVE_SPAN_SECONDS: u64 = 7 * DAY_SECONDS;

/// The parameters that queries of notes share: a span and filters. `of` chooses the list of keys, and `most` is the
/// maximum number of results. `audit` chooses the events of operators' orders, or all others. Each query ignores the parameters that it has no use for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotesParameters {
    from: String,
    #[serde(default = "super::span::default_end")]
    to: String,
    #[serde(default)]
    of: ListKind,
    limit: Option<String>,
    key: Option<String>,
    route: Option<String>,
    outcome: Option<String>,
    audit: Option<bool>,
    most: Option<usize>,
}

/// The list of keys that a query reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListKind {
    /// Keys by refused requests.
    #[default]
    Refused,
    /// Keys by all requests that limits decided.
    Asked,
}

impl ListKind {
    /// Both lists of keys.
    pub(super) const ALL: [ListKind; 2] = [ListKind::Refused, ListKind::Asked];
}

/// The parameters of a request, or why they cannot be parsed.
type NotesQuery = Result<Query<NotesParameters>, QueryRejection>;

impl NotesParameters {
    /// Checks the parameters, and returns them with their span in seconds since 1970. The error is the response.
    fn parse(
        gateway: &dyn Control,
        query: NotesQuery,
    ) -> Result<(NotesParameters, (u64, u64)), ErrorResponse> {
        let Query(parameters) = query.map_err(|rejection| bad_request(&rejection.body_text()))?;
        let span = parse_span(gateway, &parameters.from, &parameters.to)?;
        if parameters
            .most
            .is_some_and(|most| !(1..=MAX_NOTES).contains(&most))
        {
            return Err(bad_request(&format!(
                "`most` must be between 1 and {MAX_NOTES}"
            )));
        }
        Ok((parameters, span))
    }
}

/// `GET /v1/record/top`: the keys that were refused most, or that sent most requests.
pub async fn top(State(gateway): ControlState, query: NotesQuery) -> Response {
    let (parameters, span) = match NotesParameters::parse(&*gateway, query) {
        Ok(parsed) => parsed,
        Err(response) => return *response,
    };
    let insight = gateway.running().insight;
    let now = gateway.clock().wall().as_secs();
    respond_with_query(&*gateway, move |record| {
        let CoveredLists { lists, covered } =
            read_lists(record, insight.as_deref(), span, now, &[parameters.of])?;
        let (list, kind_name) = match parameters.of {
            ListKind::Refused => (lists.refused, "refused"),
            ListKind::Asked => (lists.decided, "asked"),
        };
        let mut top = list_to_json(
            &list,
            parameters.limit.as_deref(),
            parameters.most.unwrap_or(DEFAULT_TOP_KEYS),
        );
        top["from"] = json!(covered.0);
        top["to"] = json!(covered.1);
        top["of"] = json!(kind_name);
        Ok(top)
    })
    .await
}

/// The first `max_keys` keys of a list as JSON; only keys of one limit if `limit` names one.
pub(super) fn list_to_json(list: &KeyList, limit: Option<&str>, max_keys: usize) -> Value {
    let mut keys: Vec<_> = list.keys.iter().collect();
    keys.retain(|listed| limit.is_none_or(|limit| listed.key.limit == limit));
    let listed_count: u64 = keys.iter().map(|listed| listed.count).sum();
    // For one limit only the listed keys can be added up, which is its total only if the list is complete.
    let total = match limit {
        None => Some(list.total),
        Some(_) => list.distinct.is_none().then_some(listed_count),
    };
    keys.truncate(max_keys);
    let shown_count: u64 = keys.iter().map(|listed| listed.count).sum();
    let keys: Vec<Value> = keys
        .iter()
        .map(|listed| {
            json!({ "limit": listed.key.limit, "key": listed.key.key, "count": listed.count })
        })
        .collect();
    json!({
        "total": total,
        "distinct": limit.is_none().then(|| list.distinct_count()),
        "at_least": list.is_lower_bound,
        "keys": keys,
        "rest": total.map(|total| total.saturating_sub(shown_count)),
    })
}

/// Lists of top keys, and the span that they cover.
pub(super) struct CoveredLists {
    pub(super) lists: KeyLists,
    /// Begin and end of whole minutes, hours or days, in seconds since 1970.
    pub(super) covered: (u64, u64),
}

/// Reads the lists of a span: of whole minutes, hours or days. The current minute comes from `insight`, if that is
/// given. `now` is the wall clock, in seconds since 1970. Only the lists of `kinds` are complete.
///
/// # Errors
///
/// The record cannot be read.
pub(super) fn read_lists(
    record: &Record,
    insight: Option<&LiveInsight>,
    (from, to): (u64, u64),
    now: u64,
    kinds: &[ListKind],
) -> io::Result<CoveredLists> {
    let is_kept = |topic: Topic| from >= now.saturating_sub(topic.retention_seconds());
    let is_short = to - from <= MAX_MINUTES_SPAN_SECONDS;
    let (levels, step) = match is_short && is_kept(Topic::Minute) {
        // Only the lists of minutes, the last level.
        true => (&LIST_LEVELS[2..], MINUTE_SECONDS),
        false if is_kept(Topic::Hour) => (&LIST_LEVELS[..], HOUR_SECONDS),
        false => (&LIST_LEVELS[..], DAY_SECONDS),
    };
    // Without live lists the last step must be complete; with them it may still go on.
    let until = match insight {
        Some(_) => to.next_multiple_of(step),
        None => to - to % step,
    };
    let from = from - from % step;
    let sum_stored = || sum_stored_lists(record, (from, until), levels, kinds);
    let sums = match insight {
        None => sum_stored()?,
        Some(insight) => {
            let (minute, current_lists, mut sums) = insight.with_current(sum_stored)?;
            if (from..until).contains(&minute) {
                sums.add(&current_lists);
            }
            sums
        }
    };
    Ok(CoveredLists {
        lists: sums.into_lists(MAX_SUMMED_KEYS),
        covered: (from, until),
    })
}

/// Adds up the stored lists. The time before the first and after the last list of a longer step is read from lists of
/// shorter steps. A list that is missing between two others leaves a gap.
fn sum_stored_lists(
    record: &Record,
    span: (u64, u64),
    levels: &[(Topic, u64)],
    kinds: &[ListKind],
) -> io::Result<ListSums> {
    let mut sums = ListSums::default();
    let mut gaps = vec![span];
    for (topic, step) in levels {
        for (from, until) in std::mem::take(&mut gaps) {
            let first_step = from.next_multiple_of(*step);
            let steps_end = until - until % step;
            if first_step >= steps_end {
                gaps.extend((from < until).then_some((from, until)));
                continue;
            }
            let mut covered_to = first_step;
            let whole_steps = (first_step, steps_end);
            for_each_list(record, *topic, whole_steps, kinds, |list_start, lists| {
                sums.add(lists);
                covered_to = covered_to.max(list_start + step);
            })?;
            gaps.extend([(from, first_step), (covered_to, until)]);
        }
    }
    Ok(sums)
}

/// Calls `visitor` with the begin and the content of each list of a span, latest first. Lists of other kinds than
/// `kinds` stay empty.
fn for_each_list(
    record: &Record,
    topic: Topic,
    span: (u64, u64),
    kinds: &[ListKind],
    mut visitor: impl FnMut(u64, &KeyLists),
) -> io::Result<()> {
    record.visit_notes(topic, span, |note| {
        // Another version may have written another format; such notes are skipped.
        if let Ok(lists) = parse_lists(&note.text, kinds) {
            visitor(note.at, &lists);
        }
        ControlFlow::Continue(())
    })
}

/// Parses a note of lists, but only the lists of `kinds`.
fn parse_lists(text: &[u8], kinds: &[ListKind]) -> serde_json::Result<KeyLists> {
    #[derive(Deserialize)]
    struct RawLists<'a> {
        #[serde(borrow)]
        asked: &'a RawValue,
        #[serde(borrow)]
        refused: &'a RawValue,
    }
    let raw: RawLists<'_> = serde_json::from_slice(text)?;
    let parse_list = |kind: ListKind, list: &RawValue| match kinds.contains(&kind) {
        true => serde_json::from_str(list.get()),
        false => Ok(KeyList::default()),
    };
    Ok(KeyLists {
        decided: parse_list(ListKind::Asked, raw.asked)?,
        refused: parse_list(ListKind::Refused, raw.refused)?,
    })
}

/// Calls `visitor` with the notes of a span, latest first, until it breaks.
///
/// # Errors
///
/// The record cannot be read.
pub(super) fn for_each_note<T: DeserializeOwned>(
    record: &Record,
    topic: Topic,
    span: (u64, u64),
    mut visitor: impl FnMut(T) -> ControlFlow<()>,
) -> io::Result<()> {
    record.visit_notes(topic, span, |note| {
        match serde_json::from_slice(&note.text) {
            Ok(content) => visitor(content),
            // Another version may have written another format; such notes are skipped.
            Err(_) => ControlFlow::Continue(()),
        }
    })
}

/// `GET /v1/record/samples`: sampled requests that pass the filters, latest first. `outcome` is that of the request or
/// the standing by its limit.
pub async fn samples(State(gateway): ControlState, query: NotesQuery) -> Response {
    let (parameters, span) = match NotesParameters::parse(&*gateway, query) {
        Ok(parsed) => parsed,
        Err(response) => return *response,
    };
    respond_with_query(&*gateway, move |record| {
        let samples = find_samples(
            record,
            span,
            parameters.most.unwrap_or(DEFAULT_SAMPLES),
            |sample| {
                let limit = sample.limit.as_deref();
                let passes_filter = |filter: &Option<String>, value: Option<&str>| {
                    filter.is_none() || filter.as_deref() == value
                };
                let outcome = Some(sample.outcome.as_str());
                let standing = limit.map(|limit| limit.standing.as_str());
                passes_filter(&parameters.limit, limit.map(|limit| limit.limit.as_str()))
                    && passes_filter(&parameters.key, limit.map(|limit| limit.key.as_str()))
                    && passes_filter(&parameters.route, sample.route.as_deref())
                    && (passes_filter(&parameters.outcome, outcome)
                        || passes_filter(&parameters.outcome, standing))
            },
        )?;
        Ok(json!({ "samples": samples }))
    })
    .await
}

/// The latest samples for which `is_wanted` is true, latest first, at most `max_samples`.
///
/// # Errors
///
/// The record cannot be read.
pub(super) fn find_samples(
    record: &Record,
    span: (u64, u64),
    max_samples: usize,
    is_wanted: impl Fn(&RequestSample) -> bool,
) -> io::Result<Vec<RequestSample>> {
    let mut samples = Vec::new();
    for_each_note(record, Topic::Sample, span, |sample: RequestSample| {
        if is_wanted(&sample) {
            samples.push(sample);
        }
        match samples.len() < max_samples {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(samples)
}

/// `GET /v1/record/events`: see [`find_events`]. `cut` says that there are earlier ones in the span.
pub async fn events(State(gateway): ControlState, query: NotesQuery) -> Response {
    let (parameters, span) = match NotesParameters::parse(&*gateway, query) {
        Ok(parsed) => parsed,
        Err(response) => return *response,
    };
    respond_with_query(&*gateway, move |record| {
        let mut events = find_events(record, span, parameters.audit)?;
        let most = parameters.most.unwrap_or(DEFAULT_EVENTS);
        // At the bound of the search there may be more.
        let is_cut = events.len() > most || events.len() >= MAX_NOTES;
        events.truncate(most);
        Ok(json!({ "events": events, "cut": is_cut }))
    })
    .await
}

/// Starts, reloads and other events of the gateway, latest first, at most [`MAX_NOTES`]. Of operators' orders only, or all
/// others, if `audit` says so.
///
/// # Errors
///
/// The record cannot be read.
pub(super) fn find_events(
    record: &Record,
    span: (u64, u64),
    audit: Option<bool>,
) -> io::Result<Vec<GatewayEvent>> {
    let mut events = Vec::new();
    for_each_note(record, Topic::Event, span, |event: GatewayEvent| {
        if audit.is_none_or(|audit| audit == event.audit.is_some()) {
            events.push(event);
        }
        match events.len() < MAX_NOTES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(events)
}

/// `GET /v1/record/key`: the state of one key in its limits, its counts over time, and its samples. 400 without `key`,
/// or if the span exceeds [`MAX_CURVE_SPAN_SECONDS`].
pub async fn key(State(gateway): ControlState, query: NotesQuery) -> Response {
    let (parameters, span) = match NotesParameters::parse(&*gateway, query) {
        Ok(parsed) => parsed,
        Err(response) => return *response,
    };
    let Some(key) = parameters.key else {
        return *bad_request(
            "`key` is missing; write it as /v1/record/top does, such as ip=203.0.113.9",
        );
    };
    let (from, to) = span;
    if to - from > MAX_CURVE_SPAN_SECONDS {
        return *bad_request("the span is too long; keys are kept by the minute for 7 days");
    }
    let DescribedKey { names, limits } = keys::describe_key(&*gateway, &key).await;
    let insight = gateway.running().insight.unwrap_or_default();
    respond_with_query(&*gateway, move |record| {
        let is_key = |listed: &LimitKey| listed.key == key || names.contains(listed);
        let mut curve = read_curve(record, &insight, span, is_key)?;
        let samples = find_samples(record, span, MAX_KEY_SAMPLES, |sample| {
            let limit = sample.limit.as_deref();
            limit.is_some_and(|limit| {
                is_key(&LimitKey {
                    limit: limit.limit.clone(),
                    key: limit.key.clone(),
                })
            })
        })?;
        curve["key"] = json!(names.first().map_or(&key, |name| &name.key));
        curve["limits"] = json!(limits);
        curve["samples"] = json!(samples);
        Ok(curve)
    })
    .await
}

/// The counts over time of the keys for which `is_key` is true, as JSON. The steps are of whole minutes, and about
/// [`MAX_CURVE_STEPS`] at most.
fn read_curve(
    record: &Record,
    insight: &LiveInsight,
    (from, to): (u64, u64),
    is_key: impl Fn(&LimitKey) -> bool,
) -> io::Result<Value> {
    let step = ((to - from) / MAX_CURVE_STEPS)
        .next_multiple_of(MINUTE_SECONDS)
        .max(MINUTE_SECONDS);
    let (from, to) = (from - from % step, to.next_multiple_of(step));
    // Several limits may count the same request, and no list says which, so the highest count is a lower bound.
    let highest_count = |list: &KeyList| {
        let key_counts = list.keys.iter().filter(|listed| is_key(&listed.key));
        key_counts.map(|listed| listed.count).max().unwrap_or(0)
    };
    let add_lists = |curves: &mut [Vec<u64>; 2], minute: u64, lists: &KeyLists| {
        for (curve, list) in curves.iter_mut().zip([&lists.decided, &lists.refused]) {
            curve[((minute - from) / step) as usize] += highest_count(list);
        }
    };
    let (minute, current_lists, mut curves) = insight.with_current(|| -> io::Result<_> {
        let mut curves = [0, 1].map(|_| vec![0; ((to - from) / step) as usize]);
        let visitor = |minute, lists: &KeyLists| add_lists(&mut curves, minute, lists);
        for_each_list(record, Topic::Minute, (from, to), &ListKind::ALL, visitor)?;
        Ok(curves)
    })?;
    if (from..to).contains(&minute) {
        add_lists(&mut curves, minute, &current_lists);
    }
    let [asked_curve, refused_curve] = curves;
    Ok(json!({
        "from": from,
        "step": step,
        "asked": asked_curve,
        "refused": refused_curve,
        "counts": "lower bounds: for each minute in which the key was listed, the largest count of its limits",
    }))
}
