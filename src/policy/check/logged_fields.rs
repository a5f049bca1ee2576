//! Checks the names in `fields` of the access log: each is a field of the log or an identity, and stands there once.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, LOGGED_NAMES, REQUEST_ID_NAME};
use super::super::tree::Located;
use crate::base::suggest::{list_words, nearest_word};

/// The members that JSON lines have without being listed. Another member of the same name would hide one of them.
const OWN_MEMBERS: [&str; 20] = [
    "bytes",
    "cost",
    "cost_unknown",
    "credential",
    "ip",
    "limit",
    "limit_at",
    "method",
    "outcome",
    "reason",
    "route",
    "seconds",
    "server",
    "standing",
    "status",
    "store",
    "target",
    "time",
    "user",
    // The bytes of the response, by the name that matches `bytes_in`.
    "bytes_out",
];

/// Reports names that are unknown, that stand twice, or that lines have anyway, and the id of requests that have none.
pub(super) fn check_logged_fields(cx: &mut LoadContext, gateway: &GatewayConfig) {
    let fields = &gateway.access_log.fields;
    for (index, name) in fields.iter().enumerate() {
        let is_repeated = (fields[..index].iter()).any(|earlier| earlier.value == name.value);
        if is_repeated {
            let message = format!("`{}` stands in `fields` twice", name.value);
            cx.error(name.location, message, Some("remove one of them".into()));
        } else {
            check_logged_name(cx, gateway, name);
        }
    }
}

fn check_logged_name(cx: &mut LoadContext, gateway: &GatewayConfig, name: &Located<String>) {
    let word = name.value.as_str();
    let identities = gateway.identity.custom.iter();
    let identities = identities.map(|custom| custom.name.value.as_str());
    let is_identity = identities.clone().any(|identity| identity == word);
    let is_listed = LOGGED_NAMES.contains(&word);
    let (message, help) = if OWN_MEMBERS.contains(&word) {
        let help = match word {
            _ if is_identity => "give the identity another name",
            "bytes_out" => "remove it; `bytes` are those of the answer's body",
            _ => "remove it",
        };
        let member = word.strip_suffix("_out").unwrap_or(word);
        (format!("each line has `{member}` without it"), help.into())
    } else if is_listed && is_identity {
        let message = format!("`{word}` is a field of the log, and an identity of your own");
        (message, "give the identity another name".into())
    } else if word == REQUEST_ID_NAME && gateway.request_id.is_none() {
        let help = "add `request_id: x-request-id` to the gateway file";
        ("requests have no id".into(), help.into())
    } else if is_listed || is_identity {
        return;
    } else {
        let has_own_name =
            |identity: &&str| !OWN_MEMBERS.contains(identity) && !LOGGED_NAMES.contains(identity);
        let identities = identities.filter(has_own_name);
        let words = LOGGED_NAMES.iter().copied().chain(identities);
        let help = match nearest_word(word, words.clone()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("the fields are {}", list_words(words)),
        };
        let message = format!("`{word}` is neither a field of the log nor an identity of your own");
        (message, help)
    };
    cx.error(name.location, message, Some(help));
}
