//! What the plugins of a route add up to.

use ipnet::IpNet;

use crate::import::field_edits::FieldEdits;
use crate::import::model::ActionDraft;

/// What the plugins of a route do.
#[derive(Clone, Debug, Default)]
pub struct PluginRules {
    /// Indexes of limits of the draft.
    pub limits: Vec<usize>,
    /// The only networks of clients; `None` for all.
    pub allow: Option<Vec<IpNet>>,
    /// Networks of clients that get 403.
    pub deny: Vec<IpNet>,
    /// The largest body of a request in bytes.
    pub max_body: Option<u64>,
    /// Changes of requests.
    pub request: FieldEdits,
    /// Changes of responses.
    pub response: FieldEdits,
    /// `cors` in flow YAML.
    pub cors: Option<String>,
    /// The response of the gateway itself.
    pub response_action: Option<ActionDraft>,
    /// Why clients get 503.
    pub blocked: Option<String>,
}

impl PluginRules {
    /// Answers 503 in place of all that follows. The first reason stays.
    pub fn block(&mut self, reason: &str) {
        if self.blocked.is_none() {
            self.blocked = Some(reason.to_owned());
        }
    }
}
