//! What the middlewares of a router add up to.

use ipnet::IpNet;

use crate::import::budget::WorkBudget;
use crate::import::field_edits::FieldEdits;
use crate::import::model::{IdentityDrafts, LimitDraft};
use crate::import::report::ImportReport;
use crate::import::routing::region::intersect_networks;

/// What the middlewares of a router do with requests.
#[derive(Clone, Debug, Default)]
pub struct RouteRules {
    /// The limits of its middlewares, in their order.
    pub limits: Vec<LimitDraft>,
    /// The only networks of clients; `None` for all.
    pub clients: Option<Vec<IpNet>>,
    /// The largest body of a request in bytes.
    pub max_body: Option<u64>,
    /// Prefixes, of which the first that a path has is taken off.
    pub strip: Vec<String>,
    /// What is put before the path then.
    pub prefix: Option<String>,
    /// Changes of requests.
    pub request: FieldEdits,
    /// Changes of responses.
    pub response: FieldEdits,
    /// `cors` in flow YAML.
    pub cors: Option<String>,
    /// Whether responses are compressed.
    pub is_compressed: bool,
    /// Where all requests are sent.
    pub redirect: Option<RedirectRule>,
    /// Why clients get 503.
    pub blocked: Option<String>,
}

/// Where requests are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectRule {
    /// The scheme.
    pub scheme: String,
    /// The host; `None` for that of the request.
    pub host: Option<String>,
    /// The port; `None` for that of the scheme.
    pub port: Option<u16>,
    /// The status.
    pub status: u16,
}

impl RouteRules {
    /// Answers 503 in place of all that follows. The first reason stays.
    pub fn block(&mut self, reason: &str) {
        if self.blocked.is_none() {
            self.blocked = Some(reason.to_owned());
        }
    }

    /// Admits clients of these networks only, beside what is there.
    pub fn allow(&mut self, networks: Vec<IpNet>) {
        self.clients = Some(match &self.clients {
            Some(clients) => intersect_networks(clients, &networks),
            None => networks,
        });
    }
}

/// What a middleware is read with.
pub struct ChainContext<'r> {
    /// Identities of the configuration that is made.
    pub identities: &'r mut IdentityDrafts,
    /// What becomes of each line.
    pub report: &'r mut ImportReport,
    /// Whether the requests are over TLS.
    pub is_tls: bool,
    /// The only host of the router; `None` if there are several or any.
    pub host: Option<&'r str>,
    /// The ports of the listeners.
    pub ports: Vec<u16>,
    /// How much may still be read.
    pub budget: &'r mut WorkBudget,
}
