//! Keys that are the same for all clients that they count: variables of requests as identities, and the limits that they
//! make.

use super::variables::{VariableTable, is_address, split_text, variable_names};
use crate::import::model::{ClientsDraft, IdentityDrafts, IdentityPlace};
use crate::import::report::Origin;

/// Methods that a request may well have.
pub const COMMON_METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
];

/// One limit that a zone becomes. Most zones become one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCase {
    /// Parts of the key, as a limit has them; `everyone` alone for a constant key.
    pub parts: Vec<String>,
    /// The clients that it counts; empty for all.
    pub clients: ClientsDraft,
    /// Networks that it does not count.
    pub exempt: Vec<String>,
    /// The methods that it counts.
    pub methods: MethodChoice,
    /// Whether each server of nginx counts for itself.
    pub is_per_server: bool,
}

/// The methods that a limit counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// Requests with every method.
    #[default]
    Any,
    /// Requests with these methods.
    Only(Vec<String>),
    /// Requests with any other method than these.
    Except(Vec<String>),
}

impl MethodChoice {
    /// Whether requests with this method are counted; `None` stands for any method that no list names.
    pub fn includes(&self, method: Option<&str>) -> bool {
        let is_in =
            |list: &Vec<String>| method.is_some_and(|method| list.iter().any(|own| own == method));
        match self {
            MethodChoice::Any => true,
            MethodChoice::Only(list) => is_in(list),
            MethodChoice::Except(list) => !is_in(list),
        }
    }

    /// The methods that it names.
    pub fn named(&self) -> &[String] {
        match self {
            MethodChoice::Any => &[],
            MethodChoice::Only(list) | MethodChoice::Except(list) => list,
        }
    }
}

/// The key of a zone.
#[derive(Clone, Debug, Default)]
pub struct ZoneKey {
    /// The limits that it becomes.
    pub cases: Vec<KeyCase>,
    /// What differs from nginx, if anything does.
    pub differences: Vec<String>,
    /// Remarks without a difference.
    pub remarks: Vec<String>,
    /// Where the maps are defined that it comes from.
    pub origins: Vec<Origin>,
}

/// Reads a key that is the same for all clients that it counts: literals and variables of requests.
///
/// # Errors
///
/// Why it has no counterpart, and the nearest way by hand.
pub fn read_parts(
    text: &str,
    variables: &VariableTable,
    identities: &mut IdentityDrafts,
    differences: &mut Vec<String>,
) -> Result<KeyCase, String> {
    let parts = split_text(text);
    let names = variable_names(&parts);
    let mut case = KeyCase::default();
    let is_alone = names.len() == 1;
    for name in names.iter().copied() {
        if variables.get(name).is_some() {
            return Err(format!(
                "`${name}` of a map beside other variables has no counterpart; write one limit for each of its values, with `for`"
            ));
        }
        match read_variable(name, is_alone, identities, differences)? {
            VariableMeaning::Part(word) if !case.parts.contains(&word) => case.parts.push(word),
            VariableMeaning::Part(_) | VariableMeaning::Nothing => {}
            VariableMeaning::PerServer => case.is_per_server = true,
        }
    }
    if case.parts.is_empty() || case.parts == ["route"] {
        case.parts.insert(0, "everyone".into());
        case.parts.truncate(1);
    }
    Ok(case)
}

/// What a variable adds to a key.
pub enum VariableMeaning {
    /// A part of the key.
    Part(String),
    /// The key differs by the server of nginx.
    PerServer,
    /// Nothing; a difference was noted if there is one.
    Nothing,
}

/// Reads one variable of a key.
///
/// # Errors
///
/// Why it has no counterpart, and the nearest way by hand.
pub fn read_variable(
    name: &str,
    is_alone: bool,
    identities: &mut IdentityDrafts,
    differences: &mut Vec<String>,
) -> Result<VariableMeaning, String> {
    let has_user = identities.user.is_some();
    let mut word = |place: IdentityPlace| {
        let word = identities.word(&place);
        let word = word.ok_or_else(|| format!("`${name}` cannot become an identity: no request has it, there are too many, or `token` counts another credential already"))?;
        Ok(VariableMeaning::Part(word))
    };
    match name {
        _ if is_address(name) => Ok(VariableMeaning::Part("ip".into())),
        "realip_remote_addr" => Err("the address of the proxy has no counterpart; count by `ip`, the client's".into()),
        "http_x_forwarded_for" | "http_x_real_ip" | "http_cf_connecting_ip" | "http_true_client_ip"
        | "http_forwarded" | "proxy_add_x_forwarded_for" => {
            differences.push(format!(
                "any client can write `${name}`; this counts by the address, which trusted proxies name by X-Forwarded-For or Forwarded"
            ));
            Ok(VariableMeaning::Part("ip".into()))
        }
        "server_name" | "server_port" | "server_addr" => Ok(VariableMeaning::PerServer),
        "host" | "http_host" => {
            differences.push(format!(
                "`${name}` counts each name of a server for itself; here all names of a server count together, so that no client chooses its counter"
            ));
            Ok(VariableMeaning::PerServer)
        }
        "uri" | "request_uri" | "document_uri" | "request" | "args" | "query_string" if is_alone => Err(format!(
            "a counter for each `${name}` has no counterpart; write policies for the paths that matter, each with `key: everyone`"
        )),
        "uri" | "request_uri" | "document_uri" | "request" | "args" | "query_string" => {
            differences.push(format!(
                "`${name}` counts each URL for itself; here all URLs of a location count together, which is stricter"
            ));
            Ok(VariableMeaning::Part("route".into()))
        }
        "request_method" if is_alone => {
            Err("a counter for each method has no counterpart; write a policy for each, such as `match: POST /api/**`".into())
        }
        "request_method" | "scheme" | "server_protocol" | "ssl_protocol" => {
            differences.push(format!(
                "`${name}` makes counters of its own; here they count together, which is stricter"
            ));
            Ok(VariableMeaning::Nothing)
        }
        "remote_user" | "http_authorization" => {
            if name == "remote_user" {
                differences.push("the whole credential of Authorization counts, not the user in it; keep one limit by ip".into());
            }
            word(IdentityPlace::Header("authorization".into()))
        }
        "http_cookie" => word(IdentityPlace::Header("cookie".into())),
        _ if name.starts_with("ssl_client_") => Err(format!(
            "`${name}` needs `client_roots` at a listener and `identity: {{ certificate: {{ tls: subject }} }}`; then count by `certificate`"
        )),
        _ => match name.split_once('_') {
            Some(("http", header)) => word(IdentityPlace::Header(header.replace('_', "-"))),
            Some(("cookie", cookie)) => word(IdentityPlace::Cookie(cookie.into())),
            Some(("arg", argument)) => word(IdentityPlace::Query(argument.into())),
            Some(("jwt", claim)) if claim.starts_with("claim_") => {
                let claim = claim.trim_start_matches("claim_");
                match has_user && claim == "sub" {
                    true => Ok(VariableMeaning::Part("user".into())),
                    false if has_user => word(IdentityPlace::Claim(claim.into())),
                    false => Err(format!(
                        "`${name}` needs the issuer's keys: add `identity: {{ user: {{ jwt: {claim}, jwks: FILE-OR-URL }} }}`, and count by `user`"
                    )),
                }
            }
            _ => Err(format!("`${name}` has no counterpart; count by `ip`, a header, a cookie or a claim")),
        },
    }
}
