//! Decides about the descriptors of one request: finds the policy of each, counts all of them together, and records the
//! verdict. `rate_limit_answer.rs` makes the answer of it.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::rate_limit_answer::{Answered, MatchedDescriptor, answer, refused_by_ban};
use super::rate_limit_messages::{RateLimitRequest, RateLimitResponse};
use crate::base::clock::Nanos;
use crate::identity::{ClientIdentity, IdentificationStage};
use crate::operator::ActiveBan;
use crate::serve::stack::ban_view::BanView;
use crate::serve::stack::observed_call::ObservedCall;
use crate::serve::stack::record_verdict::{count_findings, record_verdict};
use crate::serve::stack::request_outcome::RequestOutcome;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{JointError, JointPart, JointVerdict};

/// Decides about a request.
///
/// # Errors
///
/// Its descriptors cannot be decided together: see [`JointError`]. Then nothing is counted.
pub(super) async fn decide(
    observed: &ObservedCall,
    request: &RateLimitRequest<'_>,
) -> Result<(RateLimitResponse, RequestOutcome), JointError> {
    let context = observed.context();
    let generation = &context.generation;
    let matched = match_descriptors(generation, request, context.peer.ip);
    // Not when the head of the call arrived: its message may have come much later.
    let now = generation.clock.now();
    let Some(first) = matched.first() else {
        let mut nothing = JointVerdict::default();
        nothing.verdict.is_admitted = true;
        let answered = Answered::new(generation, request, &matched, &nothing);
        return Ok((answer(&answered), RequestOutcome::Admitted));
    };
    if let Some((descriptor, ban)) = matched.iter().find_map(|descriptor| {
        let ban = find_ban(&generation.bans, generation, &descriptor.client, now)?;
        Some((descriptor, ban))
    }) {
        observed.set_route(descriptor.route_index);
        let _ = context.client.set(descriptor.client.clone());
        ban.count_hit();
        let remaining = ban.until.since(now);
        return Ok((
            refused_by_ban(request, descriptor.index, remaining),
            RequestOutcome::Banned,
        ));
    }
    let parts: Vec<JointPart<'_>> = matched
        .iter()
        .map(|descriptor| JointPart {
            rules: &generation.ruleset.routes[descriptor.route_index].rules,
            client: &descriptor.client,
            units: descriptor.units,
        })
        .collect();
    let deciding = generation
        .admission
        .decide_jointly(&generation.identifier, &parts, now);
    let joint = match deciding.await {
        Ok(joint) => joint,
        Err(error) => {
            observed.set_route(first.route_index);
            return Err(error);
        }
    };
    let deciding_part = joint.deciding_part().unwrap_or(0);
    let deciding_descriptor = matched.get(deciding_part).unwrap_or(first);
    observed.set_route(deciding_descriptor.route_index);
    let _ = context.client.set(deciding_descriptor.client.clone());
    record(observed, &matched, &joint, deciding_part, now);
    let outcome = match joint.verdict.is_admitted {
        true => RequestOutcome::Admitted,
        false => RequestOutcome::Refused,
    };
    let answered = Answered::new(generation, request, &matched, &joint);
    Ok((answer(&answered), outcome))
}

/// The descriptors that policies match, in their order.
fn match_descriptors(
    generation: &Generation,
    request: &RateLimitRequest<'_>,
    peer: IpAddr,
) -> Vec<MatchedDescriptor> {
    let descriptors = request.descriptors.iter().enumerate();
    let matched = descriptors.filter_map(|(index, descriptor)| {
        let entries = descriptor.entries.iter();
        let entries: Vec<(&str, &str)> = entries.map(|(key, value)| (&**key, &**value)).collect();
        let table = &generation.ruleset.descriptor_table;
        let route_index = table.find(&request.domain, &entries)?;
        let units = match descriptor.hits {
            None => request.hits,
            // No limit has so many units, so such a descriptor is refused.
            Some(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
        };
        let client = generation.identifier.client_of_entries(&entries, peer);
        Some(MatchedDescriptor {
            index,
            route_index,
            client: Rc::new(client),
            units,
        })
    });
    matched.collect()
}

/// The ban of a client, by its address or by other identities.
fn find_ban(
    bans: &BanView,
    generation: &Generation,
    client: &ClientIdentity,
    now: Nanos,
) -> Option<Arc<ActiveBan>> {
    let by_address = match client.is_ip_unclear {
        true => None,
        false => bans.find_address(client.ip, now),
    };
    let stage = IdentificationStage::Whole;
    by_address.or_else(|| bans.find_client(client, &generation.identifier, stage, now))
}

/// Counts what the limits say of each descriptor. A counter of several descriptors is counted for the one that decides if that
/// has it, or else for the first one that does.
fn record(
    observed: &ObservedCall,
    matched: &[MatchedDescriptor],
    joint: &JointVerdict,
    deciding_part: usize,
    now: Nanos,
) {
    let context = observed.context();
    let mut counted = vec![false; joint.verdict.findings.len()];
    // The deciding part comes first, so that the shared counters are recorded for it.
    let others = (0..matched.len()).filter(|part| *part != deciding_part);
    for part in std::iter::once(deciding_part).chain(others) {
        let Some(descriptor) = matched.get(part) else {
            continue;
        };
        let mut verdict = joint.of_part(part);
        let indexes = joint.findings_by_part.get(part);
        let mut is_new = indexes
            .into_iter()
            .flatten()
            .map(|index| {
                counted
                    .get_mut(*index)
                    .is_some_and(|seen| !std::mem::replace(seen, true))
            })
            .collect::<Vec<bool>>()
            .into_iter();
        verdict.findings.retain(|_| is_new.next().unwrap_or(false));
        verdict.is_admitted = joint.verdict.is_admitted;
        let rules = &joint.rules;
        if part == deciding_part {
            record_verdict(context, &verdict, rules, &descriptor.client, now);
        } else {
            count_findings(context, &verdict, rules, &descriptor.client);
        }
    }
}
