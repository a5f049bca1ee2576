//! Tells a caller what it has left of its limits: the response of the route of `usage`. Nothing is counted or taken, and
//! the shared store is not asked.
//!
//! A caller sees only limits that are disclosed, and only the counts of keys that are its own.

use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use serde_json::{Map, Value, json};

use super::explanation;
use super::matched_route::MatchedRoute;
use super::objection::find_route_objection;
use super::refusal::{Refusal, RefusalCause};
use super::screening::{find_address_objection, find_identity_denial};
use super::stages::Identified;
use super::target::find_route_by_head;
use crate::base::clock::Nanos;
use crate::http::head::{Head, Response, ResponseHead};
use crate::identity::custom::Source;
use crate::identity::token::{self, TokenSource};
use crate::identity::{
    self, BufferedBody, CheckCondition, ClientIdentity, FieldValue, IdentificationStage,
    RequestParts, WantedIdentities, form,
};
use crate::limit::{CountMode, Disclose, Identity, Rule};
use crate::route::{ListedLimit, Route, UsageList};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::AdmissionRequest;

/// Maximum number of limits in a response, so that its cost is bounded.
const MAX_SHOWN_LIMITS: usize = 64;

/// The methods that the path takes.
const METHODS: &str = "GET, HEAD";

/// The response to a caller that asks what it has left, in the form of a refusal: no upstream is involved.
///
/// By default that is all limits of `list` that its head shows the key of. With `?path=` it is the limits of a request to
/// that path, by the method in `method` or else GET.
pub(super) fn respond(identified: &Identified, list: &UsageList) -> Refusal {
    let arrival = &identified.routed.arrival;
    let head = &arrival.head;
    let settings = arrival.context.generation.identifier.settings();
    let cause = match read_question(head, settings) {
        Err(cause) => cause,
        Ok(None) => usage_response(&usage_of_list(identified, list)),
        Ok(Some((method, uri))) => match usage_of_target(identified, method, uri) {
            Ok(usage) => usage_response(&usage),
            Err(cause) => cause,
        },
    };
    Refusal::unsent(cause, &head.fields)
}

/// Why the route refuses a request with this head, whatever it could tell its client; `None` for a route of another kind.
pub(super) fn refusal_status(
    route: &Route,
    head: &Head,
    settings: &identity::Settings,
) -> Option<RefusalCause> {
    let question = route
        .action
        .is_usage()
        .then(|| read_question(head, settings))?;
    question.err()
}

/// Reads the method and the target that a caller asks about; `None` if it asks about none.
///
/// # Errors
///
/// The method is not one of [`METHODS`], the query cannot be read, or a credential is in the target. Guesses of it would be
/// verified after all limits, and none would count them.
fn read_question(
    head: &Head,
    settings: &identity::Settings,
) -> Result<Option<(Method, Uri)>, RefusalCause> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(RefusalCause::WrongMethod(METHODS.to_owned()));
    }
    let query = head.uri.query().unwrap_or_default();
    let Some((method, uri)) = parse_target_query(query).map_err(RefusalCause::Bad)? else {
        return Ok(None);
    };
    // Only the target, because cookies are those of the request itself.
    let target = Head {
        uri,
        ..Head::default()
    };
    match find_credential_in_query(settings, &target) {
        FieldValue::Absent => Ok(Some((method, target.uri))),
        _ => Err(RefusalCause::Bad(CREDENTIAL_IN_PATH)),
    }
}

/// The credential that counts among those in the query, and in the cookies of the same names.
fn find_credential_in_query<'h>(settings: &identity::Settings, head: &'h Head) -> FieldValue<'h> {
    let sources = settings.token_sources.iter();
    let in_query = sources.filter(|source| matches!(source, TokenSource::Query(_)));
    let mut credentials = in_query.map(|source| token::find_credential(source, head));
    let credential = credentials.find(|credential| *credential != FieldValue::Absent);
    credential.unwrap_or(FieldValue::Absent)
}

/// A response with this JSON, which no cache may keep.
fn usage_response(usage: &Value) -> RefusalCause {
    let mut head = ResponseHead::default();
    head.fields.add("content-type", b"application/json");
    head.fields.add("cache-control", b"no-store");
    RefusalCause::Usage(Rc::new(Response {
        head,
        body: usage.to_string().into(),
    }))
}

/// Reads the method and the target that a caller asks about; `None` without `path`.
///
/// # Errors
///
/// Why the query cannot be read.
fn parse_target_query(query: &str) -> Result<Option<(Method, Uri)>, &'static str> {
    let (mut path, mut method) = (None, None);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let earlier = match name {
            "path" => path.replace(form::decode(value.as_bytes())),
            "method" => method.replace(form::decode(value.as_bytes())),
            // Credentials may stand in the query too.
            _ => None,
        };
        if earlier.is_some() {
            return Err("`path` or `method` is there twice");
        }
    }
    let method = match &method {
        None => Method::GET,
        Some(name) if name.iter().all(u8::is_ascii_uppercase) => {
            Method::from_bytes(name).map_err(|_| BAD_METHOD)?
        }
        Some(_) => return Err(BAD_METHOD),
    };
    let Some(path) = path else { return Ok(None) };
    let path = std::str::from_utf8(&path).ok();
    let path = path.filter(|path| path.starts_with('/')).ok_or(BAD_PATH)?;
    let target = PathAndQuery::from_str(path).map_err(|_| BAD_PATH)?;
    Ok(Some((method, target.into())))
}

/// Why a caller gets 400 for its `path`.
const BAD_PATH: &str = "`path` is not a path such as /api/items, with escapes for `&`, `%` and `+`";
/// Why a caller gets 400 for its `method`.
const BAD_METHOD: &str = "`method` is not a method such as POST";
/// Why a caller gets 400 for a credential in its `path`.
const CREDENTIAL_IN_PATH: &str = "send the credential beside `path`, not in it";

/// What the caller has left of the limits of `list` that hold for it at this listener.
fn usage_of_list(identified: &Identified, list: &UsageList) -> Value {
    let context = &identified.routed.arrival.context;
    let generation = &*context.generation;
    let client = &*identified.client;
    let may_be_used = |index: &usize| {
        context.table().has_route(*index)
            && may_use(generation, client, &generation.ruleset.routes[*index])
    };
    let mut shown = ShownLimits::new(generation, client, identified.routed.now);
    shown.is_complete = list.is_complete;
    for limit in &list.limits {
        let mut route_indexes = limit.route_indexes.iter();
        let route_index = route_indexes.find(|index| may_be_used(index));
        let route = route_index.map(|index| &*generation.ruleset.routes[*index]);
        if route.is_some() || limit.holds_everywhere {
            // What an elastic limit lends depends on the upstream, and a limit of several routes may have several.
            let route = route.filter(|_| limit.route_name.is_some());
            shown.add(&limit.rule, limit.route_name.as_deref(), route);
        } else if limit.route_indexes.len() == ListedLimit::MAX_ROUTES {
            // A route that is not in the list may still be one that the client may use.
            shown.is_complete = false;
        }
    }
    shown.into_json()
}

/// Whether the route would serve the client, as far as the head shows.
fn may_use(generation: &Generation, client: &ClientIdentity, route: &Route) -> bool {
    let identifier = &generation.identifier;
    let has_required = |identity: &Identity| {
        let settings = identifier.settings();
        client.has(*identity) || settings.is_in_body(*identity) || settings.is_in_path(*identity)
    };
    let is_denied = || {
        let lists = &route.access;
        let stage = IdentificationStage::Whole;
        !lists.is_empty()
            && (identifier.find_address_denial(lists, client).is_some()
                || identifier
                    .find_identity_denial(lists, client, stage)
                    .is_some())
    };
    let is_of_source = client.user.is_none() || route.user_sources.accepts(client.user_source);
    route.require.iter().all(has_required) && is_of_source && !is_denied()
}

/// What the caller has left of the limits of a request to another target, with the rest of its head.
///
/// # Errors
///
/// Why the caller would be refused there, except by a limit. That no policy takes the target is no error: the limits of
/// requests without a route hold then, and nobody can look for paths here.
fn usage_of_target(
    identified: &Identified,
    method: Method,
    uri: Uri,
) -> Result<Value, RefusalCause> {
    let arrival = &identified.routed.arrival;
    let context = &arrival.context;
    let generation = &*context.generation;
    let ruleset = &*generation.ruleset;
    let head = Head {
        method,
        uri,
        upgrade: None,
        ..(*arrival.head).clone()
    };
    let host = head.fields.text("host");
    let now = identified.routed.now;
    let matched_route = match find_route_by_head(&head, host, context.table(), ruleset) {
        Ok(matched_route) => matched_route,
        Err(cause @ RefusalCause::Bad(_)) => return Err(cause),
        Err(_) => {
            let mut shown = ShownLimits::new(generation, &identified.client, now);
            for rule in ruleset.unrouted.rules.iter() {
                shown.add(rule, None, None);
            }
            return Ok(shown.into_json());
        }
    };
    let route = matched_route.route(ruleset);
    let client = identify_at(identified, &head, &matched_route)?;
    let mut shown = ShownLimits::new(generation, &client, now);
    for rule in route.rules.iter() {
        let mut identities = rule.key.identities().chain(rule.clients.identities());
        let settings = generation.identifier.settings();
        // Without the body it is not known by which key such a limit would count.
        if identities.all(|identity| client.has(identity) || !settings.is_in_body(identity)) {
            shown.add(rule, None, Some(route));
        }
    }
    Ok(shown.into_json())
}

/// The caller as the route would identify it by this head.
///
/// # Errors
///
/// Why the route would refuse the caller, whatever its limits decide.
fn identify_at(
    identified: &Identified,
    head: &Head,
    matched_route: &MatchedRoute,
) -> Result<ClientIdentity, RefusalCause> {
    let context = &identified.routed.arrival.context;
    let generation = &*context.generation;
    let identifier = &generation.identifier;
    let route = matched_route.route(&generation.ruleset);
    let connection = context.peer.connection_peer();
    let is_denial = |cause: &RefusalCause| matches!(cause, RefusalCause::Denied(_));
    let address_denial =
        find_address_objection(identifier, &route.access, connection, &head.fields)
            .map(|(_, cause)| cause)
            .filter(is_denial);
    if let Some(cause) = address_denial {
        return Err(cause);
    }
    let request = RequestParts {
        head,
        // The query of `head` has none.
        credential_in_body: find_credential_in_query(
            identifier.settings(),
            &identified.routed.arrival.head,
        ),
        route: Some(route),
        wanted_custom: Some(route.reads.custom),
    };
    // This credential was checked a moment ago, when limits by ip allowed it.
    let check = CheckCondition {
        now: identified.routed.now,
        may_check: &|_| true,
    };
    let wall_time = || generation.clock.wall();
    let mut client = identifier.identify_with_check(connection, request, wall_time, Some(&check));
    let searched = WantedIdentities::new(route.reads.email, route.reads.custom);
    let no_body = BufferedBody::whole(b"");
    identifier.set_identities_in_fields(&mut client, head, searched, no_body);
    if let Some(denial) =
        find_identity_denial(route, &client, identifier, IdentificationStage::Whole)
    {
        return Err(denial.into());
    }
    match find_route_objection(route, &client, identifier) {
        // It may come with the body of the request itself.
        Some(RefusalCause::Unidentified(identity))
            if identifier.settings().is_in_body(identity) =>
        {
            Ok(client)
        }
        Some(cause) => Err(cause),
        None => Ok(client),
    }
}

/// The limits of a response.
struct ShownLimits<'g> {
    generation: &'g Generation,
    client: &'g ClientIdentity,
    now: Nanos,
    limits: Vec<Value>,
    /// Whether all limits are shown.
    is_complete: bool,
}

impl<'g> ShownLimits<'g> {
    fn new(generation: &'g Generation, client: &'g ClientIdentity, now: Nanos) -> ShownLimits<'g> {
        ShownLimits {
            generation,
            client,
            now,
            limits: Vec::new(),
            is_complete: true,
        }
    }

    /// Adds what the client has left of a limit. A limit is left out if it does not apply, if it is hidden, or if its key is
    /// not certainly the client's own. `route_name` is the policy that the limit belongs to. `route` has the upstream on whose
    /// pressure an elastic limit depends.
    fn add(&mut self, rule: &Arc<Rule>, route_name: Option<&str>, route: Option<&Route>) {
        let is_hidden = rule.shadow || rule.disclose == Disclose::None;
        if is_hidden || !self.has_own_key(rule) {
            return;
        }
        if self.limits.len() == MAX_SHOWN_LIMITS {
            self.is_complete = false;
            return;
        }
        let pressure = route.and_then(|route| self.generation.pressure_on(route));
        let rules = std::slice::from_ref(rule);
        let verdict = self.generation.admission.peek(&AdmissionRequest {
            rules,
            client: self.client,
            identifier: &self.generation.identifier,
            now: self.now,
            pressure: pressure.map(|pressure| &**pressure),
            reserved_units: &[(0, 1)],
        });
        let Some(rule_finding) = verdict.findings.first() else {
            return;
        };
        let (finding, rule) = (&rule_finding.finding, rule_finding.rule.resolve(rules));
        // Nobody may take an account that this gateway has not yet heard of for a full one.
        let admission = &self.generation.admission;
        let is_known = !rule.limit.is_credits() || admission.knows_use(rule, rule_finding.key);
        let (remaining, reset) = rule.limit.client_figures(finding);
        let mut members = Map::new();
        let mut add_member = |name: &str, value: Value| members.insert(name.to_owned(), value);
        add_member("limit", rule.name.as_str().into());
        if let Some(route_name) = route_name {
            add_member("route", route_name.into());
        }
        add_member("counts", describe_count(rule).into());
        add_member("quota", finding.quota.into());
        if let Some(length) = rule.limit.window_length(finding) {
            add_member("window", length.ceil_secs().into());
        }
        if is_known {
            add_member("remaining", remaining.into());
        }
        match rule.limit.is_credits() {
            true if is_known => add_member(
                "credits",
                explanation::describe_credits(finding.quota, finding.remaining),
            ),
            true => add_member("credits", json!({ "added": finding.quota })),
            false => None,
        };
        if let Some(reset) = reset {
            add_member("reset", rule.limit.whole_seconds(reset).into());
        }
        if !finding.standing.admits()
            && let Some(seconds) = verdict.retry_after_secs(rules)
        {
            add_member("retry_after", seconds.into());
        }
        self.limits.push(members.into());
    }

    /// Whether the key by which the limit counts the client belongs to it: no part of it can be named freely, or a part is
    /// the client's own. Otherwise the count could be that of another client.
    fn has_own_key(&self, rule: &Rule) -> bool {
        let settings = self.generation.identifier.settings();
        let selected = rule.key.select(|identity| self.client.has(identity));
        let is_selected = |identity: &Identity| selected.contains(*identity);
        let mut parts = rule.key.identities().filter(is_selected);
        let mut own_parts = rule.key.identities().filter(is_selected);
        own_parts.any(|identity| is_own(identity, settings))
            || parts.all(|identity| settings.is_unforgeable(identity))
    }

    fn into_json(self) -> Value {
        json!({ "limits": self.limits, "complete": self.is_complete })
    }
}

/// Whether the identity is the client's own: proven, or a secret. What many clients share, such as a plan or a country, is
/// not.
fn is_own(identity: Identity, settings: &identity::Settings) -> bool {
    match identity {
        Identity::Ip | Identity::User | Identity::Token => true,
        Identity::Email | Identity::Plan => false,
        Identity::Custom(custom) => matches!(
            settings.custom_source(custom),
            Some(Source::Claim(_) | Source::ApiKeys | Source::Certificate(_))
        ),
    }
}

/// What a limit counts, in words for callers.
fn describe_count(rule: &Rule) -> String {
    if rule.limit.open().is_some() {
        return "open requests".to_owned();
    }
    match rule.count {
        CountMode::All => "requests".to_owned(),
        CountMode::Status { from, to } if from == to => format!("responses with status {from}"),
        CountMode::Status { from, to } => format!("responses with status {from}-{to}"),
        CountMode::CostHeader(_) | CountMode::CostJson(_) | CountMode::CostRequest(_) => {
            "cost".to_owned()
        }
        CountMode::CostBytes(_) => "bytes".to_owned(),
        CountMode::CostMessages => "requests and messages".to_owned(),
    }
}
