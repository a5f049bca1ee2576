//! What the annotations of an Ingress say.

use crate::import::model::LimitUseDraft;
use crate::import::nginx::variables::{network_text, parse_network};
use crate::import::report::Origin;

/// What the annotations of an Ingress say.
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    /// Indexes of its limits in the draft.
    pub limits: Vec<usize>,
    /// Networks that get 403.
    pub deny: Vec<String>,
    /// The only networks that are served; empty for all.
    pub allow: Vec<String>,
    /// What refuses clients and is not imported; `None` if nothing does.
    pub unread_check: Option<&'static str>,
    /// Whether that holds for all Ingresses of its hosts.
    pub is_check_of_hosts: bool,
    /// The largest body of a request in bytes; `None` for any size.
    pub max_body: Option<u64>,
    /// Further hosts.
    pub aliases: Vec<String>,
    /// Where requests for `/` are sent.
    pub app_root: Option<String>,
    /// Where all requests are sent, and the status.
    pub redirect: Option<(String, u16)>,
    /// The target of rewritten paths.
    pub rewrite_target: Option<String>,
    /// Whether paths without a type are regular expressions.
    pub uses_regex: bool,
    /// Whether it takes only a part of the requests.
    pub is_canary: bool,
    /// Whether servers speak TLS.
    pub is_tls_backend: bool,
    /// Whether servers speak gRPC.
    pub is_grpc_backend: bool,
    /// The host that servers get; `None` for the client's.
    pub upstream_host: Option<String>,
    /// Flow YAML of `balance`.
    pub balance: String,
    /// Entries of `timeouts` of the upstream.
    pub timeouts: Vec<String>,
}

impl Annotations {
    /// The limits of each route of the Ingress.
    pub fn limit_uses(&self) -> Vec<LimitUseDraft> {
        self.limits
            .iter()
            .map(|index| LimitUseDraft::Shared(*index))
            .collect()
    }
}

/// One annotation of ingress-nginx.
pub struct Annotation<'v> {
    /// The name without the prefix.
    pub name: &'v str,
    /// The value.
    pub value: &'v str,
    /// Where it stands.
    pub at: Origin,
    /// Name and value, for the report.
    pub text: String,
}

/// The networks of a list with commas, and what in it is none.
pub fn networks(list: &str) -> (Vec<String>, Vec<String>) {
    let (mut networks, mut others) = (Vec::new(), Vec::new());
    for text in list
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        match parse_network(text) {
            Some(network) => networks.push(network_text(network)),
            None => others.push(text.to_owned()),
        }
    }
    (networks, others)
}
