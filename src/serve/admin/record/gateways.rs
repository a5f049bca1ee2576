//! Serves the figures of the last minute of this gateway and of its peers in one response.
//!
//! A peer is asked for its own figures only, so that requests never go round. One that does not respond in time is named
//! with the reason, and the figures of the others are there all the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::notes::{ListKind, read_lists};
use super::query::{ErrorResponse, bad_request, run_query};
use super::span_counts::count_span;
use crate::net::client::send_request;
use crate::serve::admin::control::{Control, ControlState};

/// The span of the figures, in seconds before now. Keys are those of the minutes that it touches.
const SPAN_SECONDS: u64 = 60;

/// The longest time for the response of a peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The most requests for the figures of all gateways that are served at a time; others wait.
const MAX_CONCURRENT_REQUESTS: usize = 2;

/// The most refused keys in the figures of one gateway.
const MAX_OWN_KEYS: usize = 100;

/// The most refused keys in the sum of all gateways.
const MAX_SUMMED_KEYS: usize = 10;

/// A permit for each request that may ask peers.
static PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_REQUESTS);

/// The parameters of a query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaysParameters {
    /// Whether only this gateway is asked.
    #[serde(default)]
    own: bool,
}

/// The figures of one gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct GatewayFigures {
    /// The name of its machine.
    gateway: String,
    version: String,
    /// A random number of the process, by which a gateway with several addresses is found.
    process: u64,
    /// How many of the last [`SPAN_SECONDS`] were recorded.
    seconds: u64,
    requests: u64,
    refused: u64,
    upstream_429: u64,
    /// Refusals by limit.
    limits: BTreeMap<String, u64>,
    /// The keys that were refused most.
    keys: Vec<RefusedKey>,
}

/// How often a limit refused a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RefusedKey {
    limit: String,
    key: String,
    count: u64,
}

/// What came of asking a peer: its figures, or why there are none.
type PeerResult = (SocketAddr, Result<GatewayFigures, String>);

/// `GET /v1/gateways`: the figures of this gateway and of its peers, and their sum. 404 or 503 without a record, 400 for a wrong
/// query.
pub async fn gateways(
    State(gateway): ControlState,
    query: Result<Query<GatewaysParameters>, QueryRejection>,
) -> Response {
    let parameters = match query {
        Ok(Query(parameters)) => parameters,
        Err(rejection) => return *bad_request(&rejection.body_text()),
    };
    let own = match read_own_figures(&*gateway).await {
        Ok(figures) => figures,
        Err(response) => return *response,
    };
    if parameters.own {
        return Json(own).into_response();
    }
    let peers = gateway.running().ruleset.peers.clone();
    let permit = PERMITS.acquire().await;
    let asked = peers.addresses.iter().map(|address| async {
        let figures = timeout(
            PEER_TIMEOUT,
            ask_peer(*address, peers.authorization.as_ref()),
        );
        let no_response = || Err(format!("no response in {} s", PEER_TIMEOUT.as_secs()));
        (*address, figures.await.unwrap_or_else(|_| no_response()))
    });
    let results = join_all(asked).await;
    drop(permit);
    Json(describe_all(own, results)).into_response()
}

/// Reads the figures of this gateway. The error is the response.
async fn read_own_figures(gateway: &dyn Control) -> Result<GatewayFigures, ErrorResponse> {
    let insight = gateway.running().insight;
    let now = gateway.clock().wall().as_secs();
    let from = now.saturating_sub(SPAN_SECONDS);
    let (counts, lists) = run_query(gateway, move |record| {
        let counts = count_span(record, &record.series(), (from, now))?;
        // The end of a span is not part of it, and the current second is to be.
        let span = (from, now + 1);
        let lists = read_lists(record, insight.as_deref(), span, now, &[ListKind::Refused])?;
        Ok((counts, lists))
    })
    .await?;
    let keys = lists.lists.refused.keys.into_iter().take(MAX_OWN_KEYS);
    Ok(GatewayFigures {
        gateway: uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process: process_number(),
        seconds: counts.seconds,
        requests: counts.requests,
        refused: counts.refused,
        upstream_429: counts.upstream_429,
        limits: (counts.limits.into_iter())
            .map(|(limit, refusals)| (limit, refusals.count))
            .collect(),
        keys: keys
            .map(|listed| RefusedKey {
                limit: listed.key.limit,
                key: listed.key.key,
                count: listed.count,
            })
            .collect(),
    })
}

/// The number of this process: see [`GatewayFigures::process`].
fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let mut bytes = [0; 8];
        // Without randomness all gateways have the number of their process, which differs on one machine.
        match getrandom::fill(&mut bytes) {
            Ok(()) => u64::from_ne_bytes(bytes),
            Err(_) => u64::from(std::process::id()),
        }
    })
}

/// Asks a peer for its own figures. The error says why there are none. There is no timeout; the caller sets one.
async fn ask_peer(
    address: SocketAddr,
    authorization: Option<&HeaderValue>,
) -> Result<GatewayFigures, String> {
    let mut request = Request::get(format!("http://{address}/v1/gateways?own=true"));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = send_request(None, request)
        .await
        .map_err(|error| error.to_string())?;
    match response.status() {
        StatusCode::OK => serde_json::from_slice(response.body())
            .map_err(|_| "its response has no figures; it may be of another version".to_owned()),
        StatusCode::UNAUTHORIZED => Err("it does not accept the token (401)".to_owned()),
        status => Err(format!("status {}", status.as_u16())),
    }
}

/// All gateways, each once, and the sum of those that responded. This one is the first, without an address.
fn describe_all(own: GatewayFigures, results: Vec<PeerResult>) -> Value {
    let mut processes = HashSet::from([own.process]);
    let mut gateways = vec![json!(own)];
    let mut responded = vec![own];
    for (address, result) in results {
        match result {
            Ok(figures) => {
                if processes.insert(figures.process) {
                    let mut gateway = json!(figures);
                    gateway["address"] = json!(address);
                    gateways.push(gateway);
                    responded.push(figures);
                }
            }
            Err(error) => gateways.push(json!({ "address": address, "error": error })),
        }
    }
    let total = |count: fn(&GatewayFigures) -> u64| -> u64 {
        let counts = responded.iter().map(count);
        counts.fold(0, u64::saturating_add)
    };
    let per_second = |count: fn(&GatewayFigures) -> u64| -> f64 {
        let rates = responded.iter().map(|figures| {
            // A gateway that has just started has fewer seconds than the others.
            count(figures) as f64 / figures.seconds.max(1) as f64
        });
        rates.sum()
    };
    let mut limits: BTreeMap<&str, u64> = BTreeMap::new();
    let mut keys: HashMap<(&str, &str), u64> = HashMap::new();
    for figures in &responded {
        for (limit, count) in &figures.limits {
            let sum = limits.entry(limit).or_default();
            *sum = sum.saturating_add(*count);
        }
        for refused in &figures.keys {
            let sum = keys.entry((&refused.limit, &refused.key)).or_default();
            *sum = sum.saturating_add(refused.count);
        }
    }
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by(|(name, count), (other_name, other)| other.cmp(count).then(name.cmp(other_name)));
    let keys = keys.iter().take(MAX_SUMMED_KEYS);
    let keys = keys
        .map(|((limit, key), count)| json!({ "limit": limit, "key": key, "count": count }))
        .collect::<Vec<_>>();
    json!({
        "span": SPAN_SECONDS,
        "gateways": gateways,
        "sum": {
            "gateways": responded.len(),
            "requests": total(|figures| figures.requests),
            "refused": total(|figures| figures.refused),
            "requests_per_second": per_second(|figures| figures.requests),
            "refused_per_second": per_second(|figures| figures.refused),
            "limits": limits,
            "keys": keys,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(process: u64, seconds: u64, counts: &[(&str, u64)]) -> GatewayFigures {
        let refused = counts.iter().map(|(_, count)| count).sum();
        GatewayFigures {
            gateway: "edge".to_owned(),
            version: "1".to_owned(),
            process,
            seconds,
            requests: 2 * refused,
            refused,
            upstream_429: 0,
            limits: BTreeMap::from([("per-ip".to_owned(), refused)]),
            keys: counts
                .iter()
                .map(|(key, count)| RefusedKey {
                    limit: "per-ip".to_owned(),
                    key: (*key).to_owned(),
                    count: *count,
                })
                .collect(),
        }
    }

    #[test]
    fn gateways_count_once_and_keys_are_added_up() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let results = vec![
            (address(1), Ok(figures(7, 60, &[("a", 60)]))),
            (address(2), Ok(figures(8, 30, &[("b", 20), ("a", 10)]))),
            (address(3), Err("no response in 2 s".to_owned())),
            (address(4), Ok(figures(8, 30, &[("a", 99)]))),
        ];
        let all = describe_all(figures(7, 60, &[("a", 60)]), results);
        let gateways = all["gateways"].as_array().unwrap();
        assert_eq!(gateways.len(), 3, "{all:#}");
        assert_eq!(gateways[0]["address"], Value::Null);
        assert_eq!(gateways[1]["address"], "127.0.0.1:2");
        assert_eq!(gateways[2]["error"], "no response in 2 s");
        let sum = &all["sum"];
        assert_eq!((&sum["gateways"], &sum["refused"]), (&json!(2), &json!(90)));
        assert_eq!(sum["refused_per_second"], 2.0);
        assert_eq!(sum["limits"]["per-ip"], 90);
        let keys = json!([
            { "limit": "per-ip", "key": "a", "count": 70 },
            { "limit": "per-ip", "key": "b", "count": 20 },
        ]);
        assert_eq!(sum["keys"], keys);
    }
}
