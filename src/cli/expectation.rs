//! What `tollgate explain --expect` wants of an explanation, such as `status=429` or `limit!=per-user`. It reads the JSON of
//! an explanation, so it is the same for a configuration and for a running gateway.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::base::suggest::{list_words, nearest_word};

/// The value that stands for nothing, such as `route=none` for a request without a policy.
const NOTHING: &str = "none";

/// One `--expect`: what a fact of the explanation must be, or must not be.
#[derive(Clone, Debug)]
pub struct Expectation {
    fact: Fact,
    /// Whether the fact must have the value; otherwise it must not.
    is_wanted: bool,
    value: String,
}

/// A fact of an explanation that an expectation can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Status,
    Route,
    Upstream,
    /// The limits that apply to the request.
    Limit,
    /// The limit that decides.
    Decides,
    User,
    Plan,
}

impl Fact {
    const ALL: [Fact; 7] = [
        Fact::Status,
        Fact::Route,
        Fact::Upstream,
        Fact::Limit,
        Fact::Decides,
        Fact::User,
        Fact::Plan,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Fact::Status => "status",
            Fact::Route => "route",
            Fact::Upstream => "upstream",
            Fact::Limit => "limit",
            Fact::Decides => "decides",
            Fact::User => "user",
            Fact::Plan => "plan",
        }
    }

    /// The values of this fact in an explanation. Only `limit` may have several.
    fn values(self, explanation: &Value) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let limits_with = |member: &str| {
            limits(explanation)
                // A candidate rate has the name of its limit, and refuses nothing.
                .filter(|limit| limit[member] == true && limit["try"] != true)
                .filter_map(|limit| text(&limit["limit"]))
                .collect()
        };
        match self {
            Fact::Status => text(&explanation["status"]).into_iter().collect(),
            Fact::Route => text(&explanation["route"]["name"]).into_iter().collect(),
            Fact::Upstream => text(&explanation["route"]["upstream"])
                .into_iter()
                .collect(),
            Fact::Limit => limits_with("applies"),
            Fact::Decides => limits_with("decides"),
            Fact::User => text(&explanation["who"]["user"]).into_iter().collect(),
            Fact::Plan => text(&explanation["who"]["plan"]).into_iter().collect(),
        }
    }
}

impl Expectation {
    /// Compares the expectation with an explanation. Returns what differs, in one line; `None` if they agree.
    pub fn difference(&self, explanation: &Value) -> Option<String> {
        let values = self.fact.values(explanation);
        let has_value = match &*self.value {
            NOTHING => values.is_empty(),
            wanted => values.iter().any(|value| value == wanted),
        };
        if has_value == self.is_wanted {
            return None;
        }
        let actual = match values.is_empty() {
            true => NOTHING.to_owned(),
            false => values.join(", "),
        };
        let mut difference = format!("expected {self}, found {}={actual}", self.fact.as_str());
        let hint = match self.fact {
            Fact::Limit if self.is_wanted => self.limit_hint(explanation),
            Fact::Status => explanation["reason"].as_str().map(str::to_owned),
            _ => None,
        };
        if let Some(hint) = hint {
            difference += &format!(" ({hint})");
        }
        Some(difference)
    }

    /// Why the expected limit does not apply, or which name is nearest to it.
    fn limit_hint(&self, explanation: &Value) -> Option<String> {
        let mut own_limits = limits(explanation).filter(|limit| limit["limit"] == *self.value);
        if let Some(limit) = own_limits.next() {
            return limit["reason"].as_str().map(str::to_owned);
        }
        let names: Vec<&str> = limits(explanation)
            .filter_map(|limit| limit["limit"].as_str())
            .collect();
        match nearest_word(&self.value, names) {
            Some(name) => Some(format!("did you mean `{name}`?")),
            None if self.value == NOTHING => None,
            None => Some("the request meets no limit of this name".into()),
        }
    }
}

/// The limits of an explanation.
fn limits(explanation: &Value) -> impl Iterator<Item = &Value> {
    explanation["limits"].as_array().into_iter().flatten()
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_wanted { "=" } else { "!=" };
        write!(f, "{}{sign}{}", self.fact.as_str(), self.value)
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("write for instance `status=429` or `limit=per-user`")?;
        let (name, is_wanted) = match name.strip_suffix('!') {
            Some(name) => (name, false),
            None => (name, true),
        };
        let mut facts = Fact::ALL.into_iter();
        let fact = facts.find(|fact| fact.as_str() == name).ok_or_else(|| {
            let names = Fact::ALL.map(Fact::as_str);
            match nearest_word(name, names) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("write {} before the `=`", list_words(names)),
            }
        })?;
        let is_status = || {
            value
                .parse::<u16>()
                .is_ok_and(|status| (100..600).contains(&status))
        };
        if fact == Fact::Status && !is_status() {
            return Err("a status is a number from 100 to 599".into());
        }
        if value.is_empty() {
            return Err(format!("write `{name}={NOTHING}` if there is none"));
        }
        Ok(Expectation {
            fact,
            is_wanted,
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(expectation: &str, expected: Option<&str>) {
        let explanation = json!({
            "status": 401,
            "reason": "this route requires a valid user",
            "route": { "name": "api", "upstream": "shop" },
            "who": { "user": null, "plan": "free" },
            "limits": [
                { "limit": "per-ip", "applies": true, "decides": false },
                { "limit": "per-user", "applies": false, "reason": "none of its keys is known" },
                { "limit": "per-key", "applies": true, "decides": false },
            ],
        });
        let expectation: Expectation = expectation.parse().unwrap();
        let difference = expectation.difference(&explanation);
        assert_eq!(difference.as_deref(), expected, "{expectation}");
    }

    #[test]
    fn differences() {
        for agreed in [
            "status=401",
            "status!=200",
            "route=api",
            "route!=none",
            "upstream=shop",
            "limit=per-ip",
            "limit=per-key",
            "limit!=per-user",
            "limit!=none",
            "decides=none",
            "user=none",
            "plan=free",
        ] {
            check(agreed, None);
        }
        check(
            "status=200",
            Some("expected status=200, found status=401 (this route requires a valid user)"),
        );
        check(
            "route=shop/api",
            Some("expected route=shop/api, found route=api"),
        );
        check("route=none", Some("expected route=none, found route=api"));
        check("user=ann", Some("expected user=ann, found user=none"));
        check(
            "limit=per-user",
            Some(
                "expected limit=per-user, found limit=per-ip, per-key (none of its keys is known)",
            ),
        );
        check(
            "limit=per-kye",
            Some("expected limit=per-kye, found limit=per-ip, per-key (did you mean `per-key`?)"),
        );
        check(
            "limit=budget",
            Some(
                "expected limit=budget, found limit=per-ip, per-key (the request meets no limit of this name)",
            ),
        );
        check(
            "limit!=per-ip",
            Some("expected limit!=per-ip, found limit=per-ip, per-key"),
        );
        check(
            "limit=none",
            Some("expected limit=none, found limit=per-ip, per-key"),
        );
        check(
            "decides=per-ip",
            Some("expected decides=per-ip, found decides=none"),
        );
    }

    #[test]
    fn an_explanation_without_a_route_has_none() {
        let explanation = json!({ "status": 404, "route": null, "limits": [] });
        for text in ["route=none", "upstream=none", "limit=none", "user=none"] {
            let expectation: Expectation = text.parse().unwrap();
            assert_eq!(expectation.difference(&explanation), None, "{text}");
        }
    }

    #[test]
    fn mistakes() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Expectation>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("429", "`status=429`");
        check("statsu=429", "did you mean `status`?");
        check("colour=red", "`route`");
        check("status=4xx", "a number from 100 to 599");
        check("status=none", "a number from 100 to 599");
        check("status=99", "a number from 100 to 599");
        check("user=", "`user=none`");
    }
}
