//! Explains what the gateway would do with a request, without counting it. The request path's own parser, routing,
//! identities and admission decide; nothing is decided here a second time. `explanation.rs` says how the result reads.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::MAX_READ_AHEAD;
use super::credential_in_body;
use super::explanation::{
    describe_client, describe_limit, describe_pressure, describe_route, refusal_reason,
};
use super::identified::{request_class, shed_cohort};
use super::identify::{find_objection, may_check};
use super::matched_route::MatchedRoute;
use super::refusal::RefusalCause;
use super::reserve::{self, ReservedUnits};
use super::routing::find_route;
use super::unserved::{CountingLimits, identify_unrouted};
use crate::base::clock::Clock;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::{ClientIdentity, ConnectionPeer, CredentialCheck, Identifier};
use crate::limit::Rules;
use crate::limit::pressure::{RequestClass, Shed};
use crate::net::Subject;
use crate::serve::http1::{repeat::RepeatCache, request};
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::{AdmissionRequest, Verdict};

/// A request to explain.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestToExplain {
    /// The method, such as `GET`.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The value of `Host`; `localhost` if absent.
    #[serde(default)]
    pub host: Option<String>,
    /// The name and the value of each header field.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The address at the other end of the connection; 127.0.0.1 if absent.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// The client's certificate in PEM, which counts as verified.
    #[serde(default)]
    pub client_cert: Option<String>,
}

/// A request to explain that cannot be sent over HTTP/1.1 at all.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The method is empty, or has characters that no method has.
    #[error("`{0}` is not a method")]
    Method(String),
    /// The path is empty, or has a line break.
    #[error("`{0}` is not a path")]
    Path(String),
    /// The name of a header field has characters that no name has.
    #[error("`{0}` is not a field name")]
    FieldName(String),
    /// The value of the header field of this name has characters that no value has.
    #[error("the value of `{0}` is not one")]
    FieldValue(String),
    /// The certificate is not in PEM.
    #[error("the client's certificate is none in PEM")]
    Certificate,
}

impl RequestToExplain {
    /// The head as the gateway reads it from a connection. The inner error is why the gateway refuses it.
    fn read_head(&self) -> Result<Result<Rc<Head>, RefusalCause>, ExplainError> {
        let method_error = || ExplainError::Method(self.method.clone());
        let has_line_break = |text: &str| text.contains(['\r', '\n']);
        if self.method.is_empty() || has_line_break(&self.method) {
            return Err(method_error());
        }
        if self.path.is_empty() || has_line_break(&self.path) {
            return Err(ExplainError::Path(self.path.clone()));
        }
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            write_field(&mut text, name, value)?;
        }
        if !self.has_field("host") {
            let host = self.host.as_deref().unwrap_or("localhost");
            write_field(&mut text, "host", host)?;
        }
        let has_framing = self.has_field("content-length") || self.has_field("transfer-encoding");
        if !self.body.is_empty() && !has_framing {
            write_field(&mut text, "content-length", &self.body.len().to_string())?;
        }
        text.push_str("\r\n");
        match request::parse_request(&mut text.as_bytes().into(), &mut RepeatCache::default()) {
            Ok(Some(request)) => Ok(Ok(request.head)),
            Ok(None) => Err(method_error()),
            Err(error) => Ok(Err(error.into())),
        }
    }

    fn has_field(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|other| other.eq_ignore_ascii_case(name))
    }

    /// The subject of the client's certificate, if there is one.
    fn subject(&self) -> Result<Option<Subject>, ExplainError> {
        let pem = self.client_cert.as_ref();
        let subject = pem.map(|pem| Subject::from_pem(pem.as_bytes())).transpose();
        subject.map_err(|_| ExplainError::Certificate)
    }
}

/// Appends a header field to the text of a head.
fn write_field(text: &mut String, name: &str, value: &str) -> Result<(), ExplainError> {
    HeaderName::try_from(name).map_err(|_| ExplainError::FieldName(name.to_owned()))?;
    HeaderValue::try_from(value).map_err(|_| ExplainError::FieldValue(name.to_owned()))?;
    for part in [name, ": ", value, "\r\n"] {
        text.push_str(part);
    }
    Ok(())
}

/// What is known of a request before its limits are asked. Keeps nothing of its head, which cannot be held across an
/// await.
struct Examined {
    client: ClientIdentity,
    reserved: ReservedUnits,
    /// The route; none if the request has none.
    matched: Option<MatchedRoute>,
    /// The response of the gateway itself; none if an upstream would serve the request.
    own_response: Option<OwnResponse>,
}

/// A response that the gateway gives itself, if limits admit the request.
struct OwnResponse {
    /// The limits that count the request.
    counted: CountingLimits,
    status: u16,
    reason: String,
}

impl OwnResponse {
    fn new(counted: CountingLimits, cause: &RefusalCause) -> OwnResponse {
        OwnResponse {
            counted,
            status: cause.status().as_u16(),
            reason: refusal_reason(cause),
        }
    }
}

/// Takes the steps that the stack takes before limits, in its order.
struct Examiner<'a> {
    running: &'a RunningConfig,
    clock: &'a Clock,
    identifier: &'a Identifier,
}

impl Examiner<'_> {
    fn examine(&self, question: &RequestToExplain) -> Result<Examined, ExplainError> {
        let ruleset = &*self.running.ruleset;
        let subject = question.subject()?;
        let connection = ConnectionPeer {
            peer: question.ip.unwrap_or(Ipv4Addr::LOCALHOST.into()).into(),
            subject: subject.as_ref(),
        };
        let body = question.body.as_bytes();
        let (head, matched) = match question.read_head()? {
            Ok(head) => {
                let matched = find_route(&head, body, ruleset);
                (head, matched)
            }
            Err(cause) => (Rc::default(), Err(cause)),
        };
        match matched {
            Ok(matched) => Ok(self.examine_routed(matched, connection, &head, body)),
            Err(cause) => {
                let client = identify_unrouted(
                    ruleset,
                    self.identifier,
                    connection,
                    &head,
                    self.clock.now(),
                    self.clock,
                );
                Ok(Examined {
                    client,
                    reserved: None,
                    matched: None,
                    own_response: Some(OwnResponse::new(CountingLimits::Unrouted, &cause)),
                })
            }
        }
    }

    fn examine_routed(
        &self,
        matched: MatchedRoute,
        connection: ConnectionPeer<'_>,
        head: &Head,
        body: &[u8],
    ) -> Examined {
        let (running, identifier) = (self.running, self.identifier);
        let (now, wall) = (self.clock.now(), || self.clock.wall());
        let route = matched.route(&running.ruleset);
        let servers = running.upstreams.get(route.upstream_index);
        let pressure = servers.and_then(|servers| Some(&**servers.pressure()?));
        let may = |client: &ClientIdentity| {
            may_check(&running.admission, route, client, identifier, pressure, now)
        };
        let check = CredentialCheck {
            now,
            may_check: &may,
        };
        let is_whole = body.len() <= MAX_READ_AHEAD;
        let in_body = credential_in_body::find_credential(route, identifier, head, body, is_whole);
        let (in_body, objection) = match in_body {
            Ok(credential) => (credential, None),
            Err(cause) => (FieldValue::Absent, Some(cause)),
        };
        let mut client =
            identifier.identify_with_check(connection, (head, in_body), wall, Some(&check));
        let is_hidden = !body.is_empty() && identifier.mark_hidden_email(&mut client, head);
        if !is_hidden {
            identifier.set_email(&mut client, head, body, true);
        }
        let objection = objection.or_else(|| find_objection(route, &client, identifier));
        let own_response = objection.map(|cause| {
            let counted = CountingLimits::for_route(&matched, &running.ruleset, &client);
            OwnResponse::new(counted, &cause)
        });
        let reserved = match route.reads.reserve {
            true => reserve::read_reserved(&route.rules, head, body, is_whole),
            false => None,
        };
        Examined {
            client,
            reserved,
            matched: Some(matched),
            own_response,
        }
    }
}

/// What the gateway would respond. A request that an upstream would serve counts as 200.
struct ExplainedOutcome {
    status: u16,
    reason: Option<String>,
    /// The seconds in `Retry-After`.
    retry_after: Option<u64>,
}

impl ExplainedOutcome {
    /// The verdict of the limits comes first, then the gateway's own response, then the pressure on the upstream.
    fn new(
        verdict: &Verdict,
        rules: &Rules,
        own_response: Option<&OwnResponse>,
        shed: Option<&Shed>,
    ) -> ExplainedOutcome {
        let (status, reason, retry_after) = match (verdict.is_admitted, own_response, shed) {
            (false, _, _) => (429, None, verdict.retry_after_secs(rules)),
            (true, Some(own), _) => {
                let retry_after = verdict
                    .retry_after_secs(rules)
                    .filter(|_| own.status == 429);
                (own.status, Some(own.reason.clone()), retry_after)
            }
            (true, None, Some(shed)) => {
                let class = shed.class.as_str();
                let reason = format!("shed as {class}: the upstream is under pressure");
                (503, Some(reason), Some(shed.retry_after.ceil_secs()))
            }
            (true, None, None) => (200, None, None),
        };
        ExplainedOutcome {
            status,
            reason,
            retry_after,
        }
    }
}

/// Explains a request as JSON: its `status`, `route` and `who`, and each limit's key, what remains of it and whether it
/// decides.
///
/// # Errors
///
/// The request cannot be sent over HTTP/1.1 at all.
pub async fn explain(
    running: &RunningConfig,
    question: &RequestToExplain,
    clock: &Clock,
) -> Result<Value, ExplainError> {
    let ruleset = &*running.ruleset;
    let identifier = &Identifier::new(ruleset.identity.clone(), running.keyer());
    let examiner = Examiner {
        running,
        clock,
        identifier,
    };
    let Examined {
        client,
        reserved,
        matched,
        own_response,
    } = examiner.examine(question)?;
    let own_response = own_response.as_ref();
    let route = matched.as_ref().map(|matched| matched.route(ruleset));
    let all_rules = route.map_or(&ruleset.unrouted.rules, |route| &route.rules);
    let rules = own_response.map_or(all_rules, |own| own.counted.rules(ruleset));
    let servers = route.and_then(|route| running.upstreams.get(route.upstream_index));
    let pressure = servers.and_then(|servers| servers.pressure());
    let request = AdmissionRequest {
        rules,
        client: &client,
        identifier,
        now: clock.now(),
        pressure: pressure.map(|pressure| &**pressure),
        reserved_units: reserved.as_deref().unwrap_or_default(),
    };
    let verdict = running.admission.peek_shared(&request).await;
    let limits_decide = !verdict.is_admitted || own_response.is_none();
    let decider = verdict.decider(rules).filter(|_| limits_decide);
    let decider = decider.map(|(rule, _)| rule.index);
    let limits = all_rules.iter().map(|rule| {
        let counts = rules.iter().any(|other| other.index == rule.index);
        let mut findings = verdict.findings.iter();
        let finding = findings.find(|finding| rules[finding.rule_index].index == rule.index);
        let decides = decider == Some(rule.index);
        describe_limit(rule, counts, finding, &client, identifier, decides)
    });
    let limits: Vec<Value> = limits.collect();
    let class = route.map(|route| request_class(route, &client, identifier));
    let shed = pressure.zip(class).filter(|_| own_response.is_none());
    let shed = shed.and_then(|(pressure, class)| {
        pressure.would_shed(class, || shed_cohort(&client, identifier))
    });
    let ExplainedOutcome {
        status,
        reason,
        retry_after,
    } = ExplainedOutcome::new(&verdict, rules, own_response, shed.as_ref());
    let upstream = |index: usize| ruleset.upstreams.get(index).map(|upstream| &*upstream.name);
    Ok(json!({
        "status": status,
        "admitted": status == 200,
        "reason": reason,
        "priority": class.map(RequestClass::as_str),
        "route": route.map(|route| describe_route(route, upstream(route.upstream_index))),
        "who": describe_client(&client, identifier),
        "retry_after": retry_after,
        "limits": limits,
        "pressure": pressure.map(|pressure| describe_pressure(pressure)),
    }))
}
