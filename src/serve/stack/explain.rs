//! Explains what the gateway would do with a request, without counting it. `tollgate explain` and the admin listener use
//! it.
//!
//! The request path's own parser, routing, identities and admission decide; this file only repeats their order.
//! `explanation.rs` describes each part as JSON, and renders the whole as text.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::ban_view::explain_refusal;
use super::body::BodyStart;
use super::credential_in_body;
use super::explained_descriptor::explain_descriptor;
use super::explained_response::{ExplainedDestination, find_page_file};
use super::explanation::{
    ExplainedLimit, add_grant, describe_client, describe_limit, describe_other_source,
    describe_pressure, describe_route, refusal_reason,
};
use super::found_route::FoundRoute;
use super::identification::{identifies_preflights, may_verify_credential};
use super::identified::{request_class, shed_cohort};
use super::matched_route::MatchedRoute;
use super::objection::{
    DISPUTED_ADDRESS, find_ambiguity, find_route_objection, find_size_objection,
};
use super::refusal::RefusalCause;
use super::request_to_explain::{ExplainError, RequestToExplain};
use super::reserved_units::{self, ReservedUnits};
use super::routing::find_route_by_head_and_body;
use super::screening::{
    find_address_objection, find_identity_denial, find_unrouted_denial, is_refused_for_credential,
    must_be_counted,
};
use super::unserved::{CountingLimits, identify_unrouted, preflight_cause};
use super::usage;
use crate::base::clock::Clock;
use crate::http::head::Head;
use crate::identity::{
    BufferedBody, CheckCondition, ClientIdentity, ConnectionPeer, FieldValue, IdentificationStage,
    Identifier, RequestParts, WantedIdentities,
};
use crate::limit::pressure::{RequestClass, Shed};
use crate::limit::{Rule, Rules};
use crate::route::Route;
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::{AdmissionRequest, Verdict};

/// The results of the steps before limits. The head is left out: it is an `Rc`, and the future of [`explain`] must be
/// `Send`.
struct ExaminedRequest {
    client: ClientIdentity,
    reserved_units: ReservedUnits,
    /// The route; `None` if the request has no route.
    matched_route: Option<MatchedRoute>,
    /// The response of the gateway itself; `None` if an upstream would serve the request once limits admit it.
    own_response: Option<OwnResponse>,
}

impl ExaminedRequest {
    /// A request that has no route, or whose route is not looked for.
    fn unrouted(client: ClientIdentity, cause: &RefusalCause) -> ExaminedRequest {
        let is_counted = !cause.is_about_client() || must_be_counted(&client);
        let counting_limits = is_counted.then_some(CountingLimits::Unrouted);
        ExaminedRequest {
            client,
            reserved_units: None,
            matched_route: None,
            own_response: Some(OwnResponse::new(counting_limits, cause)),
        }
    }
}

/// A response of the gateway itself, which the client gets if limits admit the request.
struct OwnResponse {
    /// The limits that count a request with such a response; `None` if none does, as for a client that is denied.
    counting_limits: Option<CountingLimits>,
    status: u16,
    /// Why the gateway itself responds, in words for operators.
    reason: String,
    /// Whether the client gets no response.
    is_silent: bool,
    /// The ban of the client, and the seconds in `Retry-After`; `None` for another response.
    ban: Option<(Box<str>, Option<u64>)>,
    /// The `Location` of a listener that redirects every request.
    location: Option<String>,
}

impl OwnResponse {
    fn new(counting_limits: Option<CountingLimits>, cause: &RefusalCause) -> OwnResponse {
        OwnResponse {
            counting_limits,
            status: cause.status().as_u16(),
            reason: refusal_reason(cause),
            is_silent: cause.is_silent(),
            ban: match cause {
                RefusalCause::Banned(refusal) => {
                    Some((refusal.ban.key.clone(), refusal.retry_after()))
                }
                _ => None,
            },
            location: match cause {
                RefusalCause::Redirected(location) => Some(location.clone()),
                _ => None,
            },
        }
    }
}

/// Takes the steps that the stack takes before limits, in the order of the stack.
struct Examiner<'a> {
    running_config: &'a RunningConfig,
    clock: &'a Clock,
    identifier: &'a Identifier,
}

impl Examiner<'_> {
    /// Parses the request, finds its route and identifies its client.
    ///
    /// # Errors
    ///
    /// See [`ExplainError`].
    fn examine(&self, request: &RequestToExplain) -> Result<ExaminedRequest, ExplainError> {
        let ruleset = &*self.running_config.ruleset;
        let subject = request.client_subject()?;
        let table = request.listener_table(ruleset)?;
        let ja4 = request.ja4.as_deref().map(Arc::from);
        let connection = ConnectionPeer {
            peer: request.ip.unwrap_or(Ipv4Addr::LOCALHOST.into()).into(),
            subject: subject.as_ref(),
            ja4: ja4.as_ref(),
        };
        let body = request.body.as_bytes();
        let (head, matched_route) = match request.read_head()? {
            Ok(head) => {
                let matched_route = find_route_by_head_and_body(&head, body, table, ruleset);
                (head, matched_route)
            }
            Err(cause) => (Rc::default(), Err(cause)),
        };
        let lists = &ruleset.unrouted.access;
        let denied = find_address_objection(self.identifier, lists, connection, &head.fields)
            .or_else(|| self.find_banned_address(connection, &head));
        let matched_route = match denied {
            // Nothing else is found out about a client that is denied for its address.
            Some((client, cause)) if cause.is_about_client() => {
                return Ok(ExaminedRequest::unrouted(client, &cause));
            }
            Some((_, cause)) => Err(cause),
            None => matched_route,
        };
        match matched_route {
            Ok(found_route) => Ok(self.examine_routed(found_route, connection, &head, body)),
            Err(cause) => {
                let client = identify_unrouted(
                    ruleset,
                    self.identifier,
                    connection,
                    &head,
                    self.clock.now(),
                    self.clock,
                );
                let denial = find_unrouted_denial(ruleset, &client, self.identifier);
                let cause = denial.map_or(cause, RefusalCause::from);
                Ok(ExaminedRequest::unrouted(client, &cause))
            }
        }
    }

    /// Why a client is refused whose address is banned, or is unclear while some address is banned.
    fn find_banned_address(
        &self,
        connection: ConnectionPeer<'_>,
        head: &Head,
    ) -> Option<(ClientIdentity, RefusalCause)> {
        let index = self.running_config.bans.index();
        let fields = &head.fields;
        let client = self.identifier.identify_by_address(connection, fields);
        if client.is_ip_disputed && index.needs_address() {
            return Some((client, RefusalCause::Bad(DISPUTED_ADDRESS)));
        }
        let now = self.clock.now();
        let ban = index.find_address(client.ip, now)?.clone();
        let refusal = explain_refusal(ban, self.running_config.ruleset.ban_response, now);
        (!client.is_ip_unclear).then_some((client, RefusalCause::Banned(refusal)))
    }

    /// The refusal of a client who is banned by another identity than its address, or whose identity is unclear while
    /// clients are banned by it.
    fn find_banned_client(
        &self,
        route: &Route,
        client: &ClientIdentity,
        stage: IdentificationStage,
    ) -> Option<RefusalCause> {
        if stage == IdentificationStage::Head && !identifies_preflights(route) {
            return None;
        }
        let (index, now) = (self.running_config.bans.index(), self.clock.now());
        let identifier = self.identifier;
        if let Some(cause) = find_ambiguity(client, identifier, index.identities()) {
            return Some(cause);
        }
        // An explanation finds the address on every route.
        let mut client = Cow::Borrowed(client);
        if !route.reads.email && client.email.is_some() {
            client.to_mut().email = None;
        }
        let ban = index.find_client(&client, identifier, stage, now)?.clone();
        let refusal = explain_refusal(ban, self.running_config.ruleset.ban_response, now);
        let is_refused_later = is_refused_for_credential(route, &client, self.identifier);
        (!is_refused_later).then_some(RefusalCause::Banned(refusal))
    }

    /// Identifies the client of a request that has a route.
    fn examine_routed(
        &self,
        found_route: FoundRoute,
        connection: ConnectionPeer<'_>,
        head: &Head,
        body: &[u8],
    ) -> ExaminedRequest {
        let FoundRoute {
            matched_route,
            is_preflight,
        } = found_route;
        let running_config = self.running_config;
        let identifier = self.identifier;
        let now = self.clock.now();
        let route = matched_route.route(&running_config.ruleset);
        let pressure = running_config
            .pressure_on(route)
            .map(|pressure| &**pressure);
        let admission = &running_config.admission;
        let may_verify = |client: &ClientIdentity| {
            may_verify_credential(admission, route, client, identifier, pressure, now)
        };
        let check = CheckCondition {
            now,
            may_check: &may_verify,
        };
        let body_start = BodyStart::new(body, true);
        let credential = credential_in_body::find_credential(route, identifier, head, body_start);
        let (credential_in_body, objection) = match credential {
            Ok(credential) => (credential, None),
            Err(cause) => (FieldValue::Absent, Some(cause)),
        };
        let request = RequestParts {
            head,
            credential_in_body,
            route: Some(route),
            // An explanation shows every custom identity, also those that no limit of the route counts by.
            wanted_custom: None,
        };
        let wall_time = || self.clock.wall();
        let mut client =
            identifier.identify_with_check(connection, request, wall_time, Some(&check));
        if !body.is_empty() {
            identifier.mark_email_if_unsearchable(&mut client, head);
        }
        // An explanation shows the email address whether or not a limit counts by it.
        let searched_identities = WantedIdentities::new(true, route.reads.custom);
        let whole_body = BufferedBody::whole(body);
        identifier.set_identities_in_fields(&mut client, head, searched_identities, whole_body);
        let reserved_units = match route.reads.reserve {
            true => reserved_units::read_reserved_units(&route.rules, head, body_start),
            false => Ok(None),
        };
        let unclear_cost = reserved_units.as_ref().err().copied();
        let declared_length = head.fields.text("content-length");
        let declared_length = declared_length.and_then(|text| text.parse().ok());
        let address_denial =
            find_address_objection(identifier, &route.access, connection, &head.fields)
                .map(|(_, cause)| cause)
                .filter(RefusalCause::is_about_client);
        let stage = match is_preflight {
            true => IdentificationStage::Head,
            false => IdentificationStage::Whole,
        };
        let find_denial = || {
            let denial = find_identity_denial(route, &client, identifier, stage);
            denial
                .map(RefusalCause::from)
                .or_else(|| self.find_banned_client(route, &client, stage))
        };
        let is_denied_by_address = address_denial.is_some();
        let objection = address_denial
            .or_else(find_denial)
            .or_else(|| find_size_objection(route, head, declared_length.unwrap_or(0)))
            .or(objection)
            .or(unclear_cost.map(RefusalCause::Bad))
            .or_else(|| find_route_objection(route, &client, identifier))
            // The size of a body in chunks is known only once it has come.
            .or_else(|| find_size_objection(route, head, body.len() as u64));
        let own_response = match (is_preflight, objection) {
            (true, Some(cause)) if cause.is_about_client() => Some(OwnResponse::new(None, &cause)),
            (true, _) => {
                let counting_limits = CountingLimits::Preflight(matched_route.clone());
                let cause = preflight_cause(route, head);
                Some(OwnResponse::new(Some(counting_limits), &cause))
            }
            (false, Some(cause)) => {
                let ruleset = &running_config.ruleset;
                let is_counted =
                    !cause.is_about_client() || !is_denied_by_address && must_be_counted(&client);
                let counting_limits =
                    is_counted.then(|| CountingLimits::for_route(&matched_route, ruleset, &client));
                let mut response = OwnResponse::new(counting_limits, &cause);
                if let RefusalCause::OtherUserSource = cause {
                    response.reason = describe_other_source(route, &client, identifier);
                }
                Some(response)
            }
            (false, None) => usage::refusal_status(route, head, identifier.settings())
                .map(|cause| OwnResponse::new(None, &cause)),
        };
        ExaminedRequest {
            client,
            reserved_units: reserved_units.unwrap_or_default(),
            matched_route: Some(matched_route),
            own_response,
        }
    }
}

/// The response that the gateway would give. The status is 200 for a request that an upstream would serve.
struct ExplainedOutcome {
    /// Whether the request gets the response of its route, from an upstream or from the gateway.
    is_admitted: bool,
    status: u16,
    reason: Option<String>,
    /// The seconds in `Retry-After`; `None` if the response has no such field.
    retry_after: Option<u64>,
}

impl ExplainedOutcome {
    /// The verdict of the limits comes first. If they admit the request, the gateway's own response comes next, then the
    /// pressure on the upstream. `route_status` is the status of the route's own response, if it has one.
    fn new(
        verdict: &Verdict,
        rules: &Rules,
        own_response: Option<&OwnResponse>,
        shed: Option<&Shed>,
        route_status: Option<StatusCode>,
    ) -> ExplainedOutcome {
        let (status, reason, retry_after) = match (verdict.is_admitted, own_response, shed) {
            (false, _, _) => (429, None, verdict.retry_after_secs(rules)),
            (true, Some(response), _) => {
                let retry_after = match &response.ban {
                    Some((_, retry_after)) => *retry_after,
                    None => verdict
                        .retry_after_secs(rules)
                        .filter(|_| response.status == 429),
                };
                (response.status, Some(response.reason.clone()), retry_after)
            }
            (true, None, Some(shed)) => {
                let class = shed.class.as_str();
                let reason = format!("shed as {class}: the upstream is under pressure");
                (503, Some(reason), Some(shed.retry_after.ceil_secs()))
            }
            (true, None, None) => {
                let status = route_status.unwrap_or(StatusCode::OK);
                (status.as_u16(), None, None)
            }
        };
        ExplainedOutcome {
            is_admitted: verdict.is_admitted && status < 400,
            status,
            reason,
            retry_after,
        }
    }
}

/// Explains a request as a JSON object: the response, the route, the client, the pressure on the upstream, and every limit
/// of the route with its finding. Calls the shared store if there is one.
///
/// # Errors
///
/// See [`ExplainError`].
pub async fn explain(
    running_config: &RunningConfig,
    request: &RequestToExplain,
    clock: &Clock,
) -> Result<Value, ExplainError> {
    if let Some(descriptor) = &request.descriptor {
        return Ok(explain_descriptor(running_config, descriptor, clock).await);
    }
    let ruleset = &*running_config.ruleset;
    let identifier = &running_config.build_identifier();
    let examiner = Examiner {
        running_config,
        clock,
        identifier,
    };
    let ExaminedRequest {
        client,
        reserved_units,
        matched_route,
        own_response,
    } = examiner.examine(request)?;
    let own_response = own_response.as_ref();
    let route = matched_route
        .as_ref()
        .map(|matched_route| matched_route.route(ruleset));
    let all_rules = route.map_or(&ruleset.unrouted.rules, |route| &route.rules);
    let no_rules = Rules::default();
    let rules = own_response.map_or(all_rules, |response| {
        let counting_limits = response.counting_limits.as_ref();
        counting_limits.map_or(&no_rules, |limits| limits.rules(ruleset))
    });
    let pressure = route.and_then(|route| running_config.pressure_on(route));
    let admission_request = AdmissionRequest {
        rules,
        client: &client,
        identifier,
        now: clock.now(),
        pressure: pressure.map(|pressure| &**pressure),
        reserved_units: reserved_units.as_deref().unwrap_or_default(),
    };
    let admission = &running_config.admission;
    let verdict = admission.peek_shared(&admission_request).await;
    // Limits that admit the request do not decide if the gateway itself responds.
    let do_limits_decide = !verdict.is_admitted || own_response.is_none();
    let decider = verdict.decider(rules).filter(|_| do_limits_decide);
    let decider_index = decider.map(|(rule, _)| rule.index);
    let explain_limit = |rule: &Arc<Rule>| {
        let mut findings = verdict.findings.iter();
        let rule_finding =
            findings.find(|rule_finding| rule_finding.rule.base(rules).index == rule.index);
        let limit = ExplainedLimit {
            rule: rule_finding.map_or(&**rule, |rule_finding| rule_finding.rule.resolve(rules)),
            counts_request: rules
                .iter()
                .any(|counting_rule| counting_rule.index == rule.index),
            rule_finding,
            decides: decider_index == Some(rule.index),
        };
        let mut description = describe_limit(&limit, &client, identifier);
        if let Value::Object(members) = &mut description {
            add_grant(members, limit.rule, &running_config.grants, clock.wall());
        }
        description
    };
    let limits: Vec<Value> = all_rules.iter().map(explain_limit).collect();
    let class = route.map(|route| request_class(route, &client, identifier));
    let pressure_and_class = pressure.zip(class).filter(|_| own_response.is_none());
    let shed = pressure_and_class.and_then(|(pressure, class)| {
        pressure.would_shed(class, || shed_cohort(&client, identifier))
    });
    let route_status = route.and_then(|route| route.action.own_status());
    let ExplainedOutcome {
        is_admitted,
        status,
        reason,
        retry_after,
    } = ExplainedOutcome::new(&verdict, rules, own_response, shed.as_ref(), route_status);
    let is_refused = match own_response {
        Some(response) => !verdict.is_admitted || !response.is_silent,
        None => !verdict.is_admitted || shed.is_some(),
    };
    let ban = own_response.filter(|_| verdict.is_admitted);
    let ban = ban.and_then(|response| response.ban.as_ref());
    let page_file = is_refused
        .then(|| find_page_file(request, ruleset, route, status))
        .flatten();
    let served_route = route.filter(|_| is_admitted && own_response.is_none());
    let destination = served_route.map_or_else(ExplainedDestination::default, |route| {
        ExplainedDestination::find(request, route)
    });
    let own_location = own_response.and_then(|response| response.location.clone());
    let location = destination
        .location
        .or(own_location.filter(|_| is_admitted));
    Ok(json!({
        "status": status,
        "admitted": is_admitted,
        "reason": reason,
        "location": location,
        "forwarded": destination.forwarded,
        "banned": ban.map(|(key, _)| key),
        "priority": class.map(RequestClass::as_str),
        "route": route.map(|route| describe_route(route, ruleset)),
        "who": describe_client(&client, identifier),
        "retry_after": retry_after,
        "page": page_file,
        "limits": limits,
        "pressure": pressure.map(|pressure| describe_pressure(pressure)),
    }))
}
