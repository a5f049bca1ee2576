//! [`RunningConfig`]: the running configuration as all workers get it. A reload, new keys and changes of grants replace it.

use std::collections::HashMap;
use std::sync::Arc;

use super::listen::RunningListener;
use crate::identity::{Identifier, Keyer};
use crate::limit::pressure::Pressure;
use crate::net::tls::acme::ChallengeTokens;
use crate::operator::{ApiKeyRegistry, BanRegistry, EntryRegistry, GrantRegistry};
use crate::policy::Ruleset;
use crate::record::insight::LiveInsight;
use crate::route::Route;
use crate::store;
use crate::throttle::admission::Admission;
use crate::upstream::Servers;

/// The running configuration, as all workers get it.
#[derive(Clone, Debug)]
pub struct RunningConfig {
    /// The compiled policies, with the grants that hold.
    pub ruleset: Arc<Ruleset>,
    /// The policies as the files are, without grants. The same as `ruleset` while there are none.
    pub loaded: Arc<Ruleset>,
    /// Admission by the limits of the policies, which have their places in the store already.
    pub admission: Admission,
    /// The state of the servers of each upstream.
    pub upstreams: Vec<Arc<Servers>>,
    /// Hashes stored keys with the process's own secret. Gateways that share a store use the secret of the store instead.
    pub process_keyer: Keyer,
    /// The TLS and proxy settings of each listener, in the order in which the process started them.
    pub listeners: Arc<[RunningListener]>,
    /// Responses to ACME challenges at listeners without TLS.
    pub challenge_tokens: ChallengeTokens,
    /// Top keys and samples; `None` if the record is off.
    pub insight: Option<Arc<LiveInsight>>,
    /// All that operators order at run time.
    pub entries: Arc<EntryRegistry>,
    /// The bans among them.
    pub bans: Arc<BanRegistry>,
    /// The grants among them.
    pub grants: Arc<GrantRegistry>,
    /// The API keys among them.
    pub api_keys: Arc<ApiKeyRegistry>,
}

impl RunningConfig {
    /// The pressure on the upstream of a route; `None` if it is not measured, or if the route has no upstream.
    pub fn pressure_on(&self, route: &Route) -> Option<&Arc<Pressure>> {
        self.upstreams.get(route.upstream_index()?)?.pressure()
    }

    /// Hashes stored keys: with the secret of the shared store, or else with the process's own.
    pub fn keyer(&self) -> Keyer {
        self.shared_secret()
            .map_or_else(|| self.process_keyer.clone(), Keyer::new)
    }

    /// Builds an identifier by the settings, the overrides and the grants of the policies. The first call hashes the keys of
    /// all overrides, which takes long if there are many.
    pub fn build_identifier(&self) -> Identifier {
        let identifier = self.build_identifier_of_files();
        identifier.with_grants(&self.ruleset.granted_keys)
    }

    /// Builds an identifier that finds no grants.
    pub fn build_identifier_of_files(&self) -> Identifier {
        let Ruleset {
            identity,
            rules,
            override_cache,
            ..
        } = &*self.loaded;
        Identifier::new(identity.clone(), self.keyer())
            .with_overrides(rules, override_cache)
            .with_runtime_keys(self.api_keys.runtime_keys())
    }

    /// The same configuration with the grants that hold now, whatever it had before.
    ///
    /// # Errors
    ///
    /// The store has no slot left for a limit with a grant.
    pub fn with_current_grants(self) -> Result<RunningConfig, store::Error> {
        let grants = self.grants.list();
        if grants.is_empty() && Arc::ptr_eq(&self.ruleset, &self.loaded) {
            return Ok(self);
        }
        let (ruleset, obstacles) = match grants.is_empty() {
            true => (self.loaded.clone(), HashMap::new()),
            false => {
                let identifier = self.build_identifier_of_files();
                let (ruleset, obstacles) = self.loaded.with_grants(grants, &identifier);
                (Arc::new(ruleset), obstacles)
            }
        };
        let admission = self.admission.with_rules(&ruleset.rules)?;
        // The former obstacles stay if the store has no room, because the former grants hold then.
        self.grants.set_obstacles(obstacles);
        Ok(RunningConfig {
            admission,
            ruleset,
            ..self
        })
    }

    /// The secret of the gateways that share a store; `None` without such a store, or before it has sent the secret.
    pub(super) fn shared_secret(&self) -> Option<[u8; 16]> {
        self.admission.shared_store()?.secret()
    }
}
