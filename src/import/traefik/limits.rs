//! `rateLimit` and `inFlightReq` as limits.
//!
//! Traefik keeps a token bucket for each source: it holds `burst` tokens, and gets `average` of them in each `period`. A
//! request that lacks less than about half a token waits for it. `gcra` with the same burst admits a request only if a whole
//! token is there, so it never admits more than Traefik by any time.

use super::durations::parse_nanos;
use super::fields::fields;
use super::rules::ChainContext;
use crate::import::documents::InputValue;
use crate::import::field_edits::FieldEdits;
use crate::import::model::{
    AlgorithmDraft, AmountDraft, ClientsDraft, IdentityDrafts, IdentityPlace, LimitDraft,
    RateDraft, ScopeDraft,
};
use crate::import::numbers::gcd;
use crate::import::report::{Concern, ImportReport, Origin};

/// Maximum number of open requests of a limit.
const MAX_CONCURRENT: u64 = 100_000;
/// Maximum number of units of a burst.
const MAX_BURST: u64 = 1_000_000_000;

/// What limits of a router become.
pub enum LimitResult {
    /// These limits; none if it limits nothing.
    Limits(Vec<LimitDraft>),
    /// No request passes, and why.
    Blocked(String),
}

/// One group of requests that are counted by the same key.
struct RequestSource {
    key: String,
    clients: ClientsDraft,
}

/// Reads a `rateLimit`. Its limits have the name of the middleware.
pub fn read_rate_limit(
    name: &str,
    value: InputValue<'_>,
    at: Origin,
    edits: &FieldEdits,
    cx: &mut ChainContext<'_>,
) -> LimitResult {
    let (identities, report) = (&mut *cx.identities, &mut *cx.report);
    let text = format!("rateLimit {name}");
    let average = value.get("average");
    if average.is_none_or(|average| average.number() == Some(0)) {
        report.taken(
            at,
            Concern::Limits,
            &text,
            "without an average it limits nothing",
        );
        return LimitResult::Limits(Vec::new());
    }
    let burst = value.get("burst").map_or(Some(1), InputValue::number);
    let period = value.get("period").map_or(Some(1_000_000_000), |period| {
        parse_nanos(period.text().unwrap_or(""))
    });
    let period = match period {
        Some(0) => Some(1_000_000_000),
        period => period,
    };
    let amounts = average.and_then(InputValue::number).zip(period).zip(burst);
    let Some(((average, period), burst)) = amounts else {
        let note = "its numbers cannot be read, and Traefik refuses them too: clients get 503";
        report.left(at, Concern::Limits, &text, note);
        return LimitResult::Blocked("a rate limit".into());
    };
    let burst = burst.max(1);
    let rate =
        whole_seconds(average, period).and_then(|(units, seconds)| RateDraft::new(units, seconds));
    let at_once = u32::try_from(burst.min(MAX_BURST)).ok();
    let (Some(rate), Some(at_once)) = (rate, at_once) else {
        report.left(
            at,
            Concern::Limits,
            &text,
            "it is no rate that tollgate counts: clients get 503",
        );
        return LimitResult::Blocked("a rate limit".into());
    };
    let sources = match read_source(value, &text, "ip", at, (edits, identities), report) {
        Ok(sources) => sources,
        Err(reason) => return LimitResult::Blocked(reason),
    };
    let note = "Traefik lets a request wait that lacks less than half a token, or what comes in 0.5 s; here it is refused";
    report.changed(at, Concern::Limits, &text, note);
    for (field, at, _) in fields(value) {
        match field {
            "average" | "period" | "burst" | "sourceCriterion" => {}
            "redis" => report.left(
                at,
                Concern::Limits,
                "redis",
                "to share counts write `store: redis://HOST:6379`",
            ),
            _ => report.left(at, Concern::Limits, field, "it is not read"),
        }
    }
    report.note("IPv6: Traefik counts each address for itself. tollgate counts a /64 as one client, which is stricter.");
    report.note("Each replica of Traefik counts for itself, and so does each gateway. To share counts write `store: redis://HOST:6379`.");
    let limit = |source: RequestSource| LimitDraft {
        name: name.to_owned(),
        origins: vec![at],
        key: vec![source.key],
        clients: source.clients,
        amount: AmountDraft::Rates(vec![rate]),
        algorithm: AlgorithmDraft::Gcra { burst: at_once },
        scope: ScopeDraft::Listed,
        ..LimitDraft::default()
    };
    LimitResult::Limits(sources.into_iter().map(limit).collect())
}

/// Reads an `inFlightReq`.
pub fn read_in_flight(
    name: &str,
    value: InputValue<'_>,
    at: Origin,
    edits: &FieldEdits,
    cx: &mut ChainContext<'_>,
) -> LimitResult {
    let (identities, report) = (&mut *cx.identities, &mut *cx.report);
    let text = format!("inFlightReq {name}");
    let amount = value.get("amount").map_or(Some(0), InputValue::number);
    let most = match amount {
        Some(0) | None => {
            report.left(
                at,
                Concern::Limits,
                &text,
                "an amount of 0 admits nothing: clients get 503",
            );
            return LimitResult::Blocked("inFlightReq".into());
        }
        Some(amount) if amount > MAX_CONCURRENT => {
            let note = format!("a limit counts up to {MAX_CONCURRENT}, which holds here");
            report.changed(at, Concern::Limits, &text, &note);
            u32::try_from(MAX_CONCURRENT).unwrap_or(1)
        }
        Some(amount) => u32::try_from(amount).unwrap_or(1),
    };
    let sources = match read_source(value, &text, "host", at, (edits, identities), report) {
        Ok(sources) => sources,
        Err(reason) => return LimitResult::Blocked(reason),
    };
    report.taken(at, Concern::Limits, &text, "");
    let limit = |source: RequestSource| LimitDraft {
        name: name.to_owned(),
        origins: vec![at],
        key: vec![source.key],
        clients: source.clients,
        amount: AmountDraft::Concurrent(most),
        scope: ScopeDraft::Listed,
        ..LimitDraft::default()
    };
    LimitResult::Limits(sources.into_iter().map(limit).collect())
}

/// Reads `sourceCriterion`: by what requests are grouped. `default` is `ip` or `host`.
///
/// # Errors
///
/// It names several criteria, so that Traefik does not serve the router.
fn read_source(
    value: InputValue<'_>,
    text: &str,
    default: &str,
    at: Origin,
    (edits, identities): (&FieldEdits, &mut IdentityDrafts),
    report: &mut ImportReport,
) -> Result<Vec<RequestSource>, String> {
    let criterion = value.get("sourceCriterion");
    let of = |field| criterion.and_then(|criterion| criterion.get(field));
    let strategy = of("ipStrategy");
    let header = of("requestHeaderName")
        .and_then(InputValue::text)
        .filter(|name| !name.is_empty());
    let is_host = of("requestHost").is_some_and(InputValue::is_true);
    let count =
        usize::from(strategy.is_some()) + usize::from(header.is_some()) + usize::from(is_host);
    if count > 1 {
        let note = "it has several criteria, and Traefik refuses that: clients get 503";
        report.left(at, Concern::Limits, text, note);
        return Err("a limit with several criteria".into());
    }
    for (field, at, _) in criterion.into_iter().flat_map(fields) {
        match field {
            "ipStrategy" | "requestHeaderName" | "requestHost" => {
                report.taken(at, Concern::Limits, field, "")
            }
            _ => report.left(at, Concern::Limits, field, "it is not read"),
        }
    }
    let all = |key: &str| {
        vec![RequestSource {
            key: key.to_owned(),
            clients: Vec::new(),
        }]
    };
    if let Some(name) = header {
        if let Some((key, note)) = key_without_client(name, edits) {
            report.changed(at, Concern::Limits, text, note);
            return Ok(all(key));
        }
        return Ok(header_sources(
            name,
            criterion.map_or(at, InputValue::origin),
            identities,
            report,
        ));
    }
    let has_forwarded = strategy.is_some_and(|strategy| {
        let has_depth = strategy
            .get("depth")
            .is_some_and(|depth| depth.text() != Some("0"));
        has_depth || strategy.get("excludedIPs").is_some()
    });
    if let Some(strategy) = strategy {
        read_strategy(strategy, has_forwarded, report);
    }
    if strategy.is_some() || (default == "ip" && !is_host) {
        return Ok(all("ip"));
    }
    let note = "all hosts of the router are counted together, where Traefik counts each host";
    report.changed(at, Concern::Limits, text, note);
    Ok(all("everyone"))
}

/// The key of a limit by a header that Traefik writes or removes before the limit, whatever the client has sent.
fn key_without_client(name: &str, edits: &FieldEdits) -> Option<(&'static str, &'static str)> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    if edits.has(&name) {
        return Some((
            "everyone",
            "a middleware before it writes this header: all clients count together",
        ));
    }
    if name == "x-real-ip" {
        return Some((
            "ip",
            "the entry point writes the address of the peer into it",
        ));
    }
    // Go keeps these apart from the header.
    let is_apart = [
        "host",
        "transfer-encoding",
        "trailer",
        "connection",
        "upgrade",
    ]
    .contains(&&*name);
    if is_apart || name.starts_with("x-forwarded-") {
        return Some((
            "everyone",
            "what clients send in it is not there: all of them count together",
        ));
    }
    None
}

fn read_strategy(strategy: InputValue<'_>, has_forwarded: bool, report: &mut ImportReport) {
    for (field, at, value) in fields(strategy) {
        let text = format!("ipStrategy.{field}: {}", value.text().unwrap_or("[...]"));
        match field {
            "depth" | "excludedIPs" if has_forwarded => {
                let note = "the peer is counted, so all clients behind one proxy count together, and a client counts once for \
                            each proxy; for single clients write `identity: { ip: { trusted_proxies: [...] } }`";
                report.changed(at, Concern::Limits, &text, note);
            }
            "depth" | "excludedIPs" => report.taken(at, Concern::Limits, &text, ""),
            "ipv6Subnet" => {
                let note = "tollgate counts a /64 as one client; for another size write `identity: { ip: { group: { ipv6: N } } }`";
                report.changed(at, Concern::Limits, &text, note);
            }
            _ => report.left(at, Concern::Limits, &text, "it is not read"),
        }
    }
}

/// Traefik counts all requests without the header together.
fn header_sources(
    name: &str,
    at: Origin,
    identities: &mut IdentityDrafts,
    report: &mut ImportReport,
) -> Vec<RequestSource> {
    let Some(word) = identities.word(&IdentityPlace::Header(name.to_owned())) else {
        let note = "no limit counts by this header: all clients of the router are counted together";
        report.changed(
            at,
            Concern::Limits,
            &format!("requestHeaderName: {name}"),
            note,
        );
        return vec![RequestSource {
            key: "everyone".into(),
            clients: Vec::new(),
        }];
    };
    vec![
        RequestSource {
            key: word.clone(),
            clients: Vec::new(),
        },
        RequestSource {
            key: "everyone".into(),
            clients: vec![(word, vec!["absent".into()])],
        },
    ]
}

/// A rate in whole seconds that is the same as `average` in `period` nanoseconds; `None` if there is no such rate.
fn whole_seconds(average: u64, period: u64) -> Option<(u64, u64)> {
    let divisor = gcd(period, 1_000_000_000);
    let times = 1_000_000_000 / divisor;
    let (mut units, mut seconds) = (average.checked_mul(times)?, period / divisor);
    // A rate such as 600 in 10 minutes stays as it is written; only what was multiplied is reduced.
    let common = gcd(units, seconds);
    if times > 1 && common > 0 {
        units /= common;
        seconds /= common;
    }
    Some((units, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_become_whole_seconds() {
        let second = 1_000_000_000;
        assert_eq!(whole_seconds(10, second), Some((10, 1)));
        assert_eq!(whole_seconds(100, 60 * second), Some((100, 60)));
        assert_eq!(whole_seconds(5, second / 2), Some((10, 1)));
        assert_eq!(whole_seconds(1, second * 3 / 2), Some((2, 3)));
        assert_eq!(whole_seconds(u64::MAX, second / 2), None);
    }
}
