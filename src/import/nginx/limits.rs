//! The limits of nginx: zones, and the directives that use them.
//!
//! `limit_req` is a leaky bucket that keeps, for each key, by how many requests it is ahead of the rate. A request is
//! refused where that excess would be above the burst. So one request and the burst may come at once, and then one each
//! interval: the generic cell rate algorithm with a burst of one more (`ngx_http_limit_req_module.c`).

use std::collections::HashMap;

use super::key::read_key;
use super::key_parts::{KeyCase, ZoneKey};
use super::methods::RouteLimit;
use super::syntax::Directive;
use super::variables::VariableTable;
use crate::import::model::{
    AlgorithmDraft, AmountDraft, ImportDraft, LimitDraft, LimitUseDraft, RateDraft, ScopeDraft,
};
use crate::import::report::{Concern, ImportReport, Origin};
use crate::import::write::rate_text;

/// The longest that tollgate holds a request back, in milliseconds.
const MAX_DELAY_MILLIS: u64 = 60_000;

/// A zone: what its limits count by, and how much they admit.
#[derive(Clone, Debug)]
struct LimitZone {
    key: ZoneKey,
    /// The rate of `limit_req_zone`; `None` for `limit_conn_zone`.
    rate: Option<RateDraft>,
    origin: Origin,
}

/// A limit on a zone as one directive writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shape {
    /// So many at once.
    Burst(u32),
    /// So many at once, each held back until its turn, up to so many milliseconds.
    Delayed(u32, u64),
    /// So many open requests.
    Open(u32),
}

/// A limit of the gateway file that directives have become.
#[derive(Clone, Debug)]
struct ZoneUse {
    zone: String,
    /// The index of the case of the zone's key.
    case: usize,
    /// The server of nginx, where each counts for itself.
    server: Option<usize>,
    is_shadow: bool,
    shape: Shape,
    /// The index of the limit in the draft.
    limit: usize,
    /// The directives.
    lines: Vec<(Origin, String)>,
}

/// All zones and their uses.
#[derive(Debug, Default)]
pub struct ZoneTable {
    zones: HashMap<String, LimitZone>,
    uses: Vec<ZoneUse>,
}

/// What `rate=` of a zone says: requests, and in how many seconds.
fn parse_rate(text: &str) -> Option<(u64, u64)> {
    let (number, seconds) = match text.strip_suffix("r/s") {
        Some(number) => (number, 1),
        None => (text.strip_suffix("r/m")?, 60),
    };
    let number = number.parse().ok().filter(|number| *number > 0)?;
    Some((number, seconds))
}

impl ZoneTable {
    /// Adds the zone of `limit_req_zone` or `limit_conn_zone`.
    pub fn add(
        &mut self,
        directive: &Directive,
        variables: &VariableTable,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) {
        let (at, text) = (directive.origin, directive.text());
        let zone = directive.parameter("zone").unwrap_or("");
        let name = zone.split(':').next().unwrap_or("");
        if name.is_empty() || directive.arguments.len() < 2 {
            let note = "it is not written as nginx reads it: KEY zone=NAME:SIZE";
            return report.left(at, Concern::Limits, &text, note);
        }
        let mut rate = None;
        let mut note = String::new();
        if directive.name == "limit_req_zone" {
            let parsed = directive.parameter("rate").and_then(parse_rate);
            let Some((number, seconds)) = parsed else {
                let note = "its rate is no `Nr/s` or `Nr/m`";
                return report.left(at, Concern::Limits, &text, note);
            };
            rate = RateDraft::new(number, seconds);
            let Some(rate) = rate else {
                let note = "its rate is more than tollgate counts";
                return report.left(at, Concern::Limits, &text, note);
            };
            if !(number * 1_000).is_multiple_of(seconds) {
                let thousandths = number * 1_000 / seconds;
                note = format!(
                    "nginx keeps {thousandths} thousandths of a request a second, and so admits {} % less than {}, which is written here",
                    percent_less(number * 1_000, thousandths * seconds),
                    rate_text(rate),
                );
            }
        }
        let key = match read_key(directive.argument(0), variables, &mut draft.identities) {
            Ok(key) => key,
            Err(reason) => return report.left(at, Concern::Limits, &text, &reason),
        };
        report.taken(at, Concern::Limits, &text, &key.remarks.join("; "));
        for difference in key
            .differences
            .iter()
            .chain((!note.is_empty()).then_some(&note))
        {
            report.changed(at, Concern::Limits, &text, difference);
        }
        if directive
            .arguments
            .iter()
            .any(|argument| argument == "sync")
        {
            let note = "gateways share counts by `store: redis://HOST:6379` in the gateway file";
            report.changed(at, Concern::Limits, &text, note);
        }
        if key
            .cases
            .iter()
            .any(|case| case.parts.iter().any(|part| part.contains("ip")))
        {
            report.note(
                "IPv6: nginx counts each address for itself. tollgate counts a /64 as one client, with budgets for the networks \
                 around it. For the count of nginx write `group: { ipv6: 128 }, parents: false` under `identity: ip`.",
            );
        }
        let zone = LimitZone {
            key,
            rate,
            origin: at,
        };
        self.zones.insert(name.to_owned(), zone);
    }

    /// The limits that `limit_req` or `limit_conn` gives a route. `server` is the index of the server in nginx.
    pub fn use_zone(
        &mut self,
        directive: &Directive,
        server: usize,
        is_shadow: bool,
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) -> Vec<RouteLimit> {
        let (at, text) = (directive.origin, directive.text());
        let is_conn = directive.name == "limit_conn";
        let name = match is_conn {
            true => directive.argument(0),
            false => directive.parameter("zone").unwrap_or(""),
        };
        let Some(zone) = self.zones.get(name).cloned() else {
            let note = format!("the zone `{name}` is not there, or is left");
            report.left(at, Concern::Limits, &text, &note);
            return Vec::new();
        };
        let (shape, is_exact, note) = match (is_conn, zone.rate) {
            (true, None) => match directive.argument(1).parse() {
                Ok(most) if most > 0 => (Shape::Open(most), true, String::new()),
                _ => {
                    let note = "the number of connections is no number from 1";
                    report.left(at, Concern::Limits, &text, note);
                    return Vec::new();
                }
            },
            (false, Some(rate)) => match read_shape(directive, rate, is_shadow) {
                Ok(read) => read,
                Err(reason) => {
                    report.left(at, Concern::Limits, &text, reason);
                    return Vec::new();
                }
            },
            _ => {
                let note = format!("the zone `{name}` is of the other kind");
                report.left(at, Concern::Limits, &text, &note);
                return Vec::new();
            }
        };
        match is_exact {
            true => report.taken(at, Concern::Limits, &text, &note),
            false => report.changed(at, Concern::Limits, &text, &note),
        }
        let cases = zone.key.cases.iter().enumerate();
        cases
            .map(|(case_index, case)| {
                let wanted = ZoneUse {
                    zone: name.to_owned(),
                    case: case_index,
                    server: case.is_per_server.then_some(server),
                    is_shadow,
                    shape: shape.clone(),
                    limit: 0,
                    lines: vec![(at, text.clone())],
                };
                let limit = self.find_or_add(wanted, &zone, case, draft);
                (limit, case.methods.clone())
            })
            .collect()
    }

    fn find_or_add(
        &mut self,
        wanted: ZoneUse,
        zone: &LimitZone,
        case: &KeyCase,
        draft: &mut ImportDraft,
    ) -> usize {
        let is_same = |other: &&mut ZoneUse| {
            other.zone == wanted.zone
                && other.case == wanted.case
                && other.server == wanted.server
                && other.is_shadow == wanted.is_shadow
                && other.shape == wanted.shape
        };
        if let Some(known) = self.uses.iter_mut().find(is_same) {
            if !known.lines.contains(&wanted.lines[0]) {
                known.lines.extend(wanted.lines);
            }
            if let Some(limit) = draft.limits.get_mut(known.limit) {
                limit.origins.extend(known.lines.last().map(|(at, _)| *at));
            }
            return known.limit;
        }
        let mut limit = limit_draft(&wanted.zone, zone, case, &wanted.shape);
        limit.is_shadow = wanted.is_shadow;
        limit.origins.extend(wanted.lines.iter().map(|(at, _)| *at));
        let index = draft.add_limit(limit);
        self.uses.push(ZoneUse {
            limit: index,
            ..wanted
        });
        index
    }

    /// Where the maps are defined that the keys of zones come from.
    pub fn map_origins(&self) -> Vec<Origin> {
        self.zones
            .values()
            .flat_map(|zone| zone.key.origins.iter().copied())
            .collect()
    }

    /// Bounds zones that directives use with different numbers: nginx has one count for them, so the largest number holds
    /// for all together.
    pub fn finish(&self, draft: &mut ImportDraft, report: &mut ImportReport) {
        let mut groups: HashMap<(&str, usize, Option<usize>, bool), Vec<&ZoneUse>> = HashMap::new();
        for used in &self.uses {
            let group = (used.zone.as_str(), used.case, used.server, used.is_shadow);
            groups.entry(group).or_default().push(used);
        }
        // In the order of the input, so that an import is always the same.
        let mut groups: Vec<_> = groups.into_values().filter(|uses| uses.len() > 1).collect();
        groups.sort_by_key(|uses| uses.first().map(|used| used.limit));
        for uses in groups {
            self.bound_together(&uses, draft, report);
        }
    }

    fn bound_together(
        &self,
        uses: &[&ZoneUse],
        draft: &mut ImportDraft,
        report: &mut ImportReport,
    ) {
        let Some(first) = uses.first() else { return };
        let zone = self.zones.get(&first.zone);
        let Some((zone, case)) =
            zone.and_then(|zone| Some((zone, zone.key.cases.get(first.case)?)))
        else {
            return;
        };
        let most = uses.iter().map(|used| used.shape.most()).max().unwrap_or(1);
        let shape = match first.shape {
            Shape::Open(_) => Shape::Open(most),
            _ => Shape::Burst(most),
        };
        let together = match uses.iter().find(|used| used.shape == shape) {
            Some(widest) => widest.limit,
            None => {
                let mut limit = limit_draft(&first.zone, zone, case, &shape);
                limit.is_shadow = first.is_shadow;
                draft.add_limit(limit)
            }
        };
        for route in &mut draft.routes {
            let has = |limit: usize| {
                let is_limit = |used: &LimitUseDraft| matches!(used, LimitUseDraft::Shared(index) if *index == limit);
                route.limits.iter().any(is_limit)
            };
            if uses.iter().any(|used| has(used.limit)) && !has(together) {
                route.limits.push(LimitUseDraft::Shared(together));
            }
        }
        let note = format!(
            "zone `{}` is used with several numbers: nginx has one count for all of them. Here each has a count of its own, and \
             a limit with the largest number holds for all together, so that no client has more in all",
            first.zone
        );
        for (at, text) in uses.iter().flat_map(|used| &used.lines) {
            report.changed(*at, Concern::Limits, text, &note);
        }
    }
}

impl Shape {
    /// The most requests at once.
    fn most(&self) -> u32 {
        match self {
            Shape::Burst(most) | Shape::Delayed(most, _) | Shape::Open(most) => *most,
        }
    }
}

fn percent_less(all: u64, part: u64) -> String {
    let tenths = (all - part.min(all)) * 1_000 / all.max(1);
    match tenths {
        0 => "less than 0.1".into(),
        tenths => format!("{}.{}", tenths / 10, tenths % 10),
    }
}

/// Reads `burst`, `nodelay` and `delay` of a `limit_req`. Returns the shape, whether it promises the same, and a note.
fn read_shape(
    directive: &Directive,
    rate: RateDraft,
    is_shadow: bool,
) -> Result<(Shape, bool, String), &'static str> {
    let burst: u32 = match directive.parameter("burst") {
        Some(text) => text.parse().map_err(|_| "its burst is no number")?,
        None => 0,
    };
    let at_once = burst.saturating_add(1).min(1_000_000_000);
    let has = |word: &str| directive.arguments.iter().any(|argument| argument == word);
    let interval_millis = rate.seconds() * 1_000 / u64::from(rate.units());
    if burst == 0 {
        let mut note =
            format!("a second request within {interval_millis} ms gets 429, as in nginx");
        if rate.units() > 1 {
            let (rate, units) = (rate_text(rate), rate.units());
            note += &format!("; `rate: {rate}` alone would admit {units} at once");
        }
        return Ok((Shape::Burst(1), true, note));
    }
    if has("nodelay") || is_shadow {
        let note = match has("nodelay") {
            true => format!(
                "one request and the burst of {burst} at once, then one each {interval_millis} ms, as in nginx"
            ),
            false => String::new(),
        };
        return Ok((Shape::Burst(at_once), true, note));
    }
    if let Some(delay) = directive.parameter("delay") {
        let delay: u32 = delay.parse().map_err(|_| "its delay is no number")?;
        if delay >= burst {
            return Ok((Shape::Burst(at_once), true, String::new()));
        }
        let note = format!(
            "as many requests pass as in nginx, but those beyond the first {delay} of the burst are forwarded at once; nginx \
             holds them back. To hold back all of them write `algorithm: leaky-bucket, delay: {}ms`",
            delay_millis(burst, rate).min(MAX_DELAY_MILLIS)
        );
        return Ok((Shape::Burst(at_once), false, note));
    }
    let millis = delay_millis(burst, rate);
    if millis > MAX_DELAY_MILLIS {
        let note = "a request is held back for 60 s at most; one that nginx would hold back longer gets 429";
        return Ok((
            Shape::Delayed(at_once, MAX_DELAY_MILLIS),
            false,
            note.into(),
        ));
    }
    if delayed_units(millis, rate) == u64::from(burst) {
        let note = format!("early requests wait for their turn, at most {millis} ms, as in nginx");
        return Ok((Shape::Delayed(at_once, millis), true, note));
    }
    let note = "as many requests pass as in nginx, but they are forwarded at once; nginx holds them back for less than a \
                millisecond each";
    Ok((Shape::Burst(at_once), false, note.into()))
}

/// The longest wait of a request in the burst, rounded up to milliseconds.
fn delay_millis(burst: u32, rate: RateDraft) -> u64 {
    let millis = u128::from(burst) * u128::from(rate.seconds()) * 1_000;
    u64::try_from(millis.div_ceil(u128::from(rate.units()))).unwrap_or(u64::MAX)
}

/// The number of requests that a leaky bucket holds back at once for this delay.
fn delayed_units(millis: u64, rate: RateDraft) -> u64 {
    let interval = (rate.seconds() * 1_000_000_000).div_ceil(u64::from(rate.units()));
    millis * 1_000_000 / interval.max(1)
}

fn limit_draft(name: &str, zone: &LimitZone, case: &KeyCase, shape: &Shape) -> LimitDraft {
    let (amount, algorithm) = match *shape {
        Shape::Open(most) => (AmountDraft::Concurrent(most), AlgorithmDraft::Sliding),
        Shape::Burst(burst) => (
            AmountDraft::Rates(zone.rate.into_iter().collect()),
            AlgorithmDraft::Gcra { burst },
        ),
        Shape::Delayed(_, delay_millis) => (
            AmountDraft::Rates(zone.rate.into_iter().collect()),
            AlgorithmDraft::LeakyBucket { delay_millis },
        ),
    };
    LimitDraft {
        name: name.to_owned(),
        origins: vec![zone.origin],
        key: case.parts.clone(),
        clients: case.clients.clone(),
        exempt: case.exempt.clone(),
        amount,
        algorithm,
        scope: ScopeDraft::Listed,
        ..LimitDraft::default()
    }
}
