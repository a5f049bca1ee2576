//! Says what the gateway would do with a request, and why, without counting it: by the parser, the routing, the
//! identities and the admission of the request path. Nothing is decided here a second time.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::body::MAX_AHEAD;
use super::ending::{CountingLimits, unrouted_who};
use super::identify::{class, cohort, may_check, objection};
use super::in_body;
use super::matched::MatchedRoute;
use super::refusal::RefusalCause;
use super::reserve::{self, Reserved};
use super::routing::find_route;
use crate::base::clock::{Clock, Nanos};
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::{ClientIdentity, ConnectionPeer, CredentialCheck, Identifier, Unverified};
use crate::limit::pressure::{Pressure, RequestClass};
use crate::limit::{Rule, RuleLimit};
use crate::net::Subject;
use crate::route::Route;
use crate::serve::http1::{repeat::RepeatCache, request};
use crate::serve::worker::generation::RunningConfig;
use crate::throttle::admission::{AdmissionRequest, Finding};

/// A request to explain.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestToExplain {
    /// `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The `Host`; `localhost` when absent.
    #[serde(default)]
    pub host: Option<String>,
    /// Name and value of each field.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The address of the connection's other end; 127.0.0.1 when absent.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// The certificate that the client shows, in PEM; taken as verified.
    #[serde(default)]
    pub client_cert: Option<String>,
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unclear(String);

impl RequestToExplain {
    /// The head as the gateway reads it from a connection, or why it does not.
    fn read(&self) -> Result<Result<Rc<Head>, RefusalCause>, Unclear> {
        let unclear = |text: &str, what: &str| Unclear(format!("`{text}` is not {what}"));
        let lines = |text: &str| text.contains(['\r', '\n']);
        if self.method.is_empty() || lines(&self.method) {
            return Err(unclear(&self.method, "a method"));
        }
        if self.path.is_empty() || lines(&self.path) {
            return Err(unclear(&self.path, "a path"));
        }
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has = |name: &str| {
            let mut names = self.headers.iter().map(|(name, _)| name);
            names.any(|other| other.eq_ignore_ascii_case(name))
        };
        let mut add = |name: &str, value: &str| {
            HeaderName::try_from(name).map_err(|_| unclear(name, "a field name"))?;
            HeaderValue::try_from(value)
                .map_err(|_| Unclear(format!("the value of `{name}` is not one")))?;
            for part in [name, ": ", value, "\r\n"] {
                text.push_str(part);
            }
            Ok(())
        };
        for (name, value) in &self.headers {
            add(name, value)?;
        }
        if !has("host") {
            add("host", self.host.as_deref().unwrap_or("localhost"))?;
        }
        if !self.body.is_empty() && !has("content-length") && !has("transfer-encoding") {
            add("content-length", &self.body.len().to_string())?;
        }
        text.push_str("\r\n");
        match request::parse_request(&mut text.as_bytes().into(), &mut RepeatCache::default()) {
            Ok(Some(request)) => Ok(Ok(request.head)),
            Ok(None) => Err(unclear(&self.method, "a method")),
            Err(bad) => Ok(Err(bad.into())),
        }
    }

    fn subject(&self) -> Result<Option<Subject>, Unclear> {
        let pem = self.client_cert.as_ref();
        let subject = pem.map(|pem| Subject::from_pem(pem.as_bytes())).transpose();
        subject.map_err(|_| Unclear("the client's certificate is none in PEM".into()))
    }
}

/// What is decided of a request before its limits are asked. Holds nothing of its head, for that may not wait.
struct Examined {
    who: ClientIdentity,
    /// What it holds of limits on cost.
    reserved: Reserved,
    matched: Option<MatchedRoute>,
    ends: Option<OwnResponse>,
}

/// That the gateway answers it itself.
struct OwnResponse {
    /// The limits that count it.
    counted: CountingLimits,
    status: u16,
    reason: String,
}

/// Takes the steps that the gateway takes, in its order.
fn examine(
    running: &RunningConfig,
    question: &RequestToExplain,
    clock: &Clock,
    identifier: &Identifier,
) -> Result<Examined, Unclear> {
    let ruleset = &*running.ruleset;
    let subject = question.subject()?;
    let connection = ConnectionPeer {
        peer: question.ip.unwrap_or(Ipv4Addr::LOCALHOST.into()).into(),
        subject: subject.as_ref(),
    };
    let (now, wall) = (clock.now(), || clock.wall());
    let (head, found) = match question.read()? {
        Ok(head) => {
            let route = find_route(&head, question.body.as_bytes(), ruleset);
            (head, route)
        }
        Err(why) => (Rc::default(), Err(why)),
    };
    let ends = |counted, why: &RefusalCause| OwnResponse {
        counted,
        status: why.status().as_u16(),
        reason: reason(why),
    };
    match found {
        Ok(matched) => {
            let route = matched.route(ruleset);
            let servers = running.upstreams.get(route.upstream);
            let pressure = servers.and_then(|servers| Some(&**servers.pressure()?));
            let may = |who: &ClientIdentity| {
                may_check(&running.admission, route, (who, identifier), pressure, now)
            };
            let check = CredentialCheck { now, may: &may };
            let body = question.body.as_bytes();
            let whole = body.len() <= MAX_AHEAD;
            let (in_body, refused) = match in_body::find(route, identifier, &head, body, whole) {
                Ok(found) => (found, None),
                Err(why) => (FieldValue::Absent, Some(why)),
            };
            let mut who = identifier.identify_if(connection, (&*head, in_body), wall, Some(&check));
            let hidden = !body.is_empty() && identifier.hides_body(&mut who, &head);
            if !hidden {
                identifier.set_email(&mut who, &head, body, true);
            }
            let why = refused.or_else(|| objection(route, &who, identifier));
            let ends = why.map(|why| ends(CountingLimits::of(&matched, ruleset, &who), &why));
            let reserved = match route.reads.reserve {
                true => reserve::reserved(&route.rules, &head, body, whole),
                false => None,
            };
            Ok(Examined {
                who,
                reserved,
                matched: Some(matched),
                ends,
            })
        }
        Err(why) => Ok(Examined {
            who: unrouted_who(ruleset, identifier, connection, &head, (now, wall)),
            reserved: None,
            matched: None,
            ends: Some(ends(CountingLimits::Unrouted, &why)),
        }),
    }
}

/// What would happen, as JSON: `status`, `route`, `who`, and of each limit its key, what remains and
/// whether it decides.
pub async fn explain(
    running: &RunningConfig,
    question: &RequestToExplain,
    clock: &Clock,
) -> Result<Value, Unclear> {
    let ruleset = &*running.ruleset;
    let identifier = Identifier::new(ruleset.identity.clone(), running.keyer());
    let Examined {
        who,
        reserved,
        matched,
        ends,
    } = examine(running, question, clock, &identifier)?;
    let route = matched.as_ref().map(|matched| matched.route(ruleset));
    let all = route.map_or(&ruleset.unrouted.rules, |route| &route.rules);
    let by_gateway = ends.as_ref().map(|ends| ends.counted.rules(ruleset));
    let rules = by_gateway.unwrap_or(all);
    let servers = route.and_then(|route| running.upstreams.get(route.upstream));
    let pressure = servers.and_then(|servers| servers.pressure());
    let ask = AdmissionRequest {
        rules,
        client: &who,
        identifier: &identifier,
        now: clock.now(),
        pressure: pressure.map(|pressure| &**pressure),
        reserved: reserved.as_deref().unwrap_or_default(),
    };
    let verdict = running.admission.peek_shared(&ask).await;
    let speaks = !verdict.admitted || ends.is_none();
    let speaker = verdict.decider(rules).filter(|_| speaks);
    let speaker = speaker.map(|(rule, _)| rule.index);
    let limits = all.iter().map(|rule| {
        let counts = rules.iter().any(|other| other.index == rule.index);
        let mut findings = verdict.findings.iter();
        let finding = findings.find(|finding| rules[finding.rule].index == rule.index);
        let decides = speaker == Some(rule.index);
        limit((rule, counts), finding, &who, &identifier, decides)
    });
    let class = route.map(|route| class(route, &who, &identifier));
    let shed = pressure.zip(class).filter(|_| ends.is_none());
    let shed = shed.and_then(|(at, class)| at.would_shed(class, || cohort(&who, &identifier)));
    let (status, reason) = match (&ends, verdict.admitted, &shed) {
        (_, false, _) => (429, None),
        (Some(ends), true, _) => (ends.status, Some(ends.reason.clone())),
        (None, true, Some(shed)) => {
            let class = shed.class.as_str();
            let reason = format!("shed as {class}: the upstream is under pressure");
            (503, Some(reason))
        }
        (None, true, None) => (200, None),
    };
    let retry_after = match shed.filter(|_| status == 503) {
        Some(shed) => Some(shed.retry_after.ceil_secs()),
        None => verdict.retry_after(rules).filter(|_| status == 429),
    };
    let upstream = |route: &Route| ruleset.upstreams.get(route.upstream).map(|u| &*u.name);
    Ok(json!({
        "status": status,
        "admitted": status == 200,
        "reason": reason,
        "priority": class.map(RequestClass::as_str),
        "route": route.map(|route| describe_route(route, upstream(route))),
        "who": describe_who(&who, &identifier),
        "retry_after": retry_after,
        "limits": limits.collect::<Vec<_>>(),
        "pressure": pressure.map(|pressure| describe_pressure(pressure)),
    }))
}

/// Why the gateway answers a request itself, in operators' words.
fn reason(why: &RefusalCause) -> String {
    match why {
        RefusalCause::Unidentified(identity) => {
            format!("this route requires a valid {}", identity.as_str())
        }
        RefusalCause::Unverified(reason) => format!("the request comes with {reason}"),
        RefusalCause::Bad(detail) => (*detail).to_owned(),
        other => {
            let mut detail = other.detail();
            detail[..1].make_ascii_lowercase();
            detail.trim_end_matches('.').to_owned()
        }
    }
}

/// How busy an upstream is and what follows from it, as operators see it.
pub fn describe_pressure(pressure: &Pressure) -> Value {
    let now = pressure.figures();
    let millis = |span: Option<Nanos>| span.map(|span| span.0 as f64 / 1e6);
    let shed = RequestClass::ALL.into_iter().zip(now.shed);
    let shed: Map<String, Value> = shed
        .map(|(class, many)| (class.as_str().into(), many.into()))
        .collect();
    json!({
        "load": now.load,
        "concurrency_limit": now.limit,
        "open": now.open,
        "elastic_factor": now.factor.get(),
        "latency_ms": { "base": millis(now.baseline), "p50": millis(now.p50), "p90": millis(now.p90) },
        "reported_load": now.reported,
        "gateway_cpu": now.cpu,
        "shedding_level": now.level,
        "lent": now.lent,
        "shed": shed,
    })
}

/// A route, as operators see it.
pub fn describe_route(route: &Route, upstream: Option<&str>) -> Value {
    let require: Vec<&str> = route
        .require
        .iter()
        .map(|identity| identity.as_str())
        .collect();
    let limits: Vec<&str> = route.rules.iter().map(|rule| rule.name.as_str()).collect();
    json!({
        "name": &*route.name,
        "match": route.pattern.to_string(),
        "upstream": upstream,
        "require": require,
        "limits": limits,
    })
}

fn describe_who(who: &ClientIdentity, identifier: &Identifier) -> Value {
    let plans = &identifier.settings().plan.plans;
    json!({
        "ip": who.ip.to_string(),
        "user": who.user.as_deref(),
        "token": who.token.is_some(),
        "email": who.email.is_some(),
        "plan": who.plan.and_then(|plan| plans.get(plan)).map(|plan| &plan.name),
        "unverified": who.credential_fault().map(Unverified::as_str),
    })
}

fn limit(
    (rule, counts): (&Arc<Rule>, bool),
    finding: Option<&Finding>,
    who: &ClientIdentity,
    identifier: &Identifier,
    decides: bool,
) -> Value {
    let mut value = describe_rule(rule);
    value.insert("applies".into(), json!(finding.is_some()));
    let Some(finding) = finding else {
        let absent = rule.key.iter().all(|part| !who.has(*part));
        let why = match (counts, absent) {
            (false, _) => "it does not count what the gateway answers itself",
            (true, true) => "none of its keys is known",
            (true, false) => "the address is exempt",
        };
        value.insert("reason".into(), json!(why));
        return Value::Object(value);
    };
    value.insert("key".into(), json!(identifier.key_name(who, &rule.key)));
    value.extend(reading(finding, rule));
    value.insert("decides".into(), json!(decides));
    Value::Object(value)
}

/// What a limit says of a key.
pub fn reading(finding: &Finding, rule: &Rule) -> Map<String, Value> {
    let reading = &finding.reading;
    let seconds = |nanos: crate::base::clock::Nanos| Duration::from(nanos).as_secs_f64();
    let rate = rule.limit.window(reading.window);
    let (remaining, reset) = rule.limit.client_figures(reading);
    let value = json!({
        "standing": reading.standing.as_str(),
        "window": rate.map(|rate| rate.window().ceil_secs()),
        "quota": reading.quota,
        "remaining": remaining,
        "next_unit_in": reset.map_or(0.0, seconds),
        "wait": seconds(reading.wait),
        "sketched": reading.sketched,
    });
    value.as_object().cloned().unwrap_or_default()
}

/// A limit, as operators see it.
pub fn describe_rule(rule: &Rule) -> Map<String, Value> {
    let key: Vec<&str> = rule.key.iter().map(|part| part.as_str()).collect();
    let value = json!({
        "limit": rule.name.as_str(),
        "at": rule.origin,
        "scope": rule.scope,
        "counts_by": key,
        "guarantee": rule.guarantee(),
        "shadow": rule.shadow,
    });
    let mut value = value.as_object().cloned().unwrap_or_default();
    if let Some(condition) = &rule.condition {
        value.insert("while".into(), json!(condition.as_str()));
    }
    match &rule.limit {
        RuleLimit::Rate(limit) => {
            let rates: Vec<String> = limit.windows.iter().map(ToString::to_string).collect();
            value.insert("rate".into(), json!(rates));
            value.insert("algorithm".into(), json!(limit.algorithm.as_str()));
        }
        RuleLimit::Open(limit) => {
            value.insert("concurrent".into(), json!(limit.max_open));
        }
    }
    value
}

/// The text form of an explanation.
pub fn render(explanation: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut out = String::new();
    let status = text(&explanation["status"]);
    let what = match explanation["status"].as_u64() {
        Some(200) => "admitted",
        Some(429) => "refused by a limit",
        _ => "not served",
    };
    out += &format!("{status} {what}");
    if let Some(reason) = explanation["reason"].as_str() {
        out += &format!(": {reason}");
    }
    if let Some(wait) = explanation["retry_after"].as_u64() {
        out += &format!("; admitted again in {wait} s");
    }
    out.push('\n');
    let route = &explanation["route"];
    if route.is_object() {
        let upstream = text(&route["upstream"]);
        out += &format!(
            "route {} ({}) to {upstream}\n",
            text(&route["name"]),
            text(&route["match"])
        );
    }
    let who = &explanation["who"];
    if who.is_object() {
        out += &format!("from ip {}", text(&who["ip"]));
        for name in ["user", "plan"] {
            if let Some(value) = who[name].as_str() {
                out += &format!(", {name} {value}");
            }
        }
        let reason = who["unverified"].as_str();
        let known = |word| Unverified::ALL.into_iter().find(|one| one.as_str() == word);
        if let Some(reason) = reason.and_then(known) {
            out += &format!(", with {reason}");
        }
        out.push('\n');
    }
    let pressure = &explanation["pressure"];
    if let Some((load, factor)) = pressure["load"]
        .as_f64()
        .zip(pressure["elastic_factor"].as_f64())
    {
        out += &format!(
            "priority {}; upstream load {load:.2}, elastic limits lend {:.2} times their rate\n",
            text(&explanation["priority"]),
            factor - 1.0
        );
    }
    for limit in explanation["limits"].as_array().into_iter().flatten() {
        let mark = if limit["decides"] == true { "*" } else { " " };
        out += &format!("{mark} {} ({})", text(&limit["limit"]), text(&limit["at"]));
        if limit["applies"] == true {
            out += &format!(
                ": {} for {}; {} of {} ",
                text(&limit["standing"]),
                text(&limit["key"]),
                text(&limit["remaining"]),
                text(&limit["quota"]),
            );
            match limit["window"].as_u64() {
                Some(window) => {
                    let next = limit["next_unit_in"].as_f64().unwrap_or(0.0);
                    out += &format!("left in {window} s, next unit in {next:.3} s");
                }
                None => out += "permits free",
            }
        } else {
            out += &format!(": does not apply, {}", text(&limit["reason"]));
        }
        if limit["shadow"] == true {
            out += " (shadow: never refuses)";
        }
        out += &format!("\n    {}", text(&limit["guarantee"]));
        if let Some(condition) = limit["while"].as_str() {
            out += &format!(", while {condition}");
        }
        out.push('\n');
    }
    let limits = explanation["limits"].as_array();
    if limits.is_some_and(|limits| !limits.is_empty()) {
        out += "* decides\n";
    }
    out
}
