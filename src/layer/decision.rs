//! [`ServiceLimits`]: the limits of a service with all that counts them, and the decision about one request. An admitted
//! request takes units and permits of all limits, and a refused one of none.

use std::net::IpAddr;
use std::sync::{Arc, Once};

use http::request::Parts;
use smallvec::SmallVec;

use super::key::{CheckedKey, ClientNetwork};
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::limit::{Fingerprint, RuleLimit, RuleRef, Rules, Scale};
use crate::store::permits::{PermitGuard, PermitRequest, PermitScope};
use crate::store::{LimitItem, MemoryStore, Permits, RegisteredLimit};
use crate::throttle::admission::{RuleFinding, Verdict};

/// Reads the address of the client from a request's head.
pub(super) type PeerAddressReader = Box<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

/// The limits of a service. All clones of a layer share them.
pub(super) struct ServiceLimits {
    pub(super) rules: Rules,
    /// What counts each of `rules`, in the same order.
    pub(super) limits: Box<[CountedLimit]>,
    pub(super) store: MemoryStore,
    pub(super) permits: Arc<Permits>,
    pub(super) keyer: Keyer,
    pub(super) clock: Clock,
    /// Reads the address of the client; `None` if nothing of the service's own does.
    pub(super) peer_address: Option<PeerAddressReader>,
    /// Logs the first request without an address.
    pub(super) missing_address: Once,
}

/// The key of a limit, and where its counts are.
#[derive(Debug)]
pub(super) struct CountedLimit {
    pub(super) key: CheckedKey,
    pub(super) counter: LimitCounter,
}

/// Where the counts of a limit are.
#[derive(Debug)]
pub(super) enum LimitCounter {
    /// The limit's slot in the store.
    Rate(RegisteredLimit),
    /// The name of its permits.
    Open(PermitScope),
}

impl ServiceLimits {
    /// Decides about a request. `peer` is the peer of its connection, where the caller has it. Returns the permits that
    /// the request holds until its end, if it holds some.
    pub(super) fn decide(
        &self,
        request: &Parts,
        peer: Option<IpAddr>,
    ) -> (Verdict, Option<PermitGuard>) {
        let client = self.client_network(request, peer);
        let mut items: SmallVec<[LimitItem<'_>; 4]> = SmallVec::new();
        let mut permit_requests: SmallVec<[PermitRequest<'_>; 2]> = SmallVec::new();
        let mut rate_rules: SmallVec<[(RuleRef, Fingerprint); 4]> = SmallVec::new();
        let mut open_rules: SmallVec<[(RuleRef, Fingerprint); 2]> = SmallVec::new();
        for (index, (rule, counted)) in self.rules.iter().zip(&self.limits).enumerate() {
            let key = counted.key.of_request(request, &client, &self.keyer);
            let Some((key, parents)) = key else {
                continue;
            };
            let rule_ref = RuleRef {
                index: index as u16,
                override_number: 0,
            };
            match (&rule.limit, &counted.counter) {
                (RuleLimit::Rate(limit), LimitCounter::Rate(registered)) => {
                    rate_rules.push((rule_ref, key));
                    items.push(LimitItem {
                        limit,
                        slot: registered.slot(),
                        key,
                        cost: 1,
                        scale: Scale::plan(1),
                        is_shadow: false,
                        parents,
                    });
                }
                (RuleLimit::Open(limit), LimitCounter::Open(scope)) => {
                    open_rules.push((rule_ref, key));
                    permit_requests.push(PermitRequest {
                        limit,
                        scope: *scope,
                        key,
                        plan_factor: 1,
                        is_shadow: false,
                        parents,
                        shared: None,
                    });
                }
                _ => debug_assert!(false, "{} has another kind of counter", rule.name),
            }
        }
        let now = self.clock.now();
        let (mut findings, mut open_findings) = (SmallVec::new(), SmallVec::new());
        let mut decide_rates = |has_permits: bool| match items.is_empty() {
            true => true,
            false if has_permits => self.store.take(&items, now, &mut findings),
            // The findings say what remains, though the request takes nothing.
            false => {
                self.store.peek(&items, now, &mut findings);
                false
            }
        };
        let (is_admitted, permits) = match permit_requests.is_empty() {
            true => (decide_rates(true), None),
            false => {
                let (is_admitted, permits) =
                    (self.permits).take(&permit_requests, &mut open_findings, decide_rates);
                (
                    is_admitted,
                    Some(permits).filter(|permits| !permits.is_empty()),
                )
            }
        };
        let rule_finding = |((rule, key), finding): (&(RuleRef, Fingerprint), &_)| RuleFinding {
            rule: *rule,
            key: *key,
            finding: *finding,
        };
        let rates = rate_rules.iter().zip(&findings).map(rule_finding);
        let open = open_rules.iter().zip(&open_findings).map(rule_finding);
        let mut verdict = Verdict {
            findings: rates.chain(open).collect(),
            is_admitted,
            ..Verdict::default()
        };
        verdict.findings.sort_by_key(|finding| finding.rule.index);
        verdict.choose_decider(&self.rules);
        (verdict, permits)
    }

    /// The network of the client, by its address if some limit counts by that.
    fn client_network(&self, request: &Parts, peer: Option<IpAddr>) -> ClientNetwork {
        let is_by_address = |counted: &CountedLimit| matches!(counted.key, CheckedKey::Ip);
        if !self.limits.iter().any(is_by_address) {
            return ClientNetwork::new(None, &self.keyer);
        }
        let address = match &self.peer_address {
            Some(read) => read(request),
            None => peer.or_else(|| address_by_axum(request)),
        };
        if address.is_none() {
            self.missing_address.call_once(|| {
                tracing::warn!(
                    "a request has no address of a client, so all such requests count as one client: serve axum with \
                     `into_make_service_with_connect_info::<SocketAddr>()`, hyper with `Throttle::for_peer`, \
                     or set `ThrottleBuilder::peer_address`"
                );
            });
        }
        ClientNetwork::new(address, &self.keyer)
    }
}

/// The peer of the connection, where axum puts it.
#[cfg(feature = "axum")]
fn address_by_axum(request: &Parts) -> Option<IpAddr> {
    use axum::extract::ConnectInfo;
    let info = request
        .extensions
        .get::<ConnectInfo<std::net::SocketAddr>>()?;
    Some(info.0.ip())
}

/// Without axum nothing puts the peer anywhere.
#[cfg(not(feature = "axum"))]
fn address_by_axum(_: &Parts) -> Option<IpAddr> {
    None
}
