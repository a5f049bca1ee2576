//! Compiles `deny` and `allow` of the gateway file, of folders and of policies, and reads the files of networks that they
//! name. A list holds on all routes below its file, beside the lists of other files.

use std::path::Path;
use std::sync::Arc;

use super::super::context::LoadContext;
use super::super::decode::{
    ClientListConfig, DefaultsConfig, GatewayConfig, NetworksItem, PolicyConfig,
};
use super::super::shared_limits::is_in_folder;
use super::super::source::Files;
use super::super::tree::Located;
use super::identity::network_list::{counted_network, read_networks};
use super::rules::normalise_condition;
use crate::identity;
use crate::limit::{AccessEffect, AccessList, AccessLists, NetworkTable};

/// Compiles lists. Those of the gateway file and of folders are compiled once, and shared by routes.
pub(super) struct AccessListCompiler<'c> {
    files: &'c dyn Files,
    base: &'c Path,
    gateway: &'c GatewayConfig,
    identity: &'c identity::Settings,
    /// The lists of the gateway file.
    of_gateway: Vec<Arc<AccessList>>,
    /// Those parts of the lists of the gateway file that need more than the address, which every route has.
    on_every_route: Vec<Arc<AccessList>>,
    /// The lists of each folder that has some, by the folder's name; a folder before its sub-folders.
    folders: Vec<(&'c str, Vec<Arc<AccessList>>)>,
}

impl<'c> AccessListCompiler<'c> {
    /// Compiles the lists of the gateway file and of all folders.
    pub(super) fn new(
        cx: &mut LoadContext,
        files: &'c dyn Files,
        base: &'c Path,
        gateway: &'c GatewayConfig,
        defaults: &'c [DefaultsConfig],
        identity: &'c identity::Settings,
    ) -> AccessListCompiler<'c> {
        let mut compiler = AccessListCompiler {
            files,
            base,
            gateway,
            identity,
            of_gateway: Vec::new(),
            on_every_route: Vec::new(),
            folders: Vec::new(),
        };
        compiler.of_gateway = compiler.compile_file(cx, &gateway.deny, &gateway.allow);
        let identity_parts = compiler.of_gateway.iter();
        let identity_parts = identity_parts.filter_map(|list| list.identity_part());
        compiler.on_every_route = identity_parts.map(Arc::new).collect();
        for folder in defaults {
            let lists = compiler.compile_file(cx, &folder.deny, &folder.allow);
            compiler.folders.push((&folder.name.value, lists));
        }
        compiler
    }

    /// The lists of the gateway file.
    pub(super) fn of_gateway(&self) -> AccessLists {
        self.of_gateway.iter().cloned().collect()
    }

    /// The parts of the lists of the gateway file that every route has.
    pub(super) fn on_every_route(&self) -> AccessLists {
        self.on_every_route.iter().cloned().collect()
    }

    /// The lists that hold on the routes of a policy, without those of the gateway file by address. None hold for
    /// descriptors.
    pub(super) fn compile_policy(
        &self,
        cx: &mut LoadContext,
        policy: &PolicyConfig,
    ) -> AccessLists {
        if policy.domain.is_some() {
            return AccessLists::default();
        }
        let folders = self.folders.iter();
        let folders_above = folders.filter(|(folder, _)| is_in_folder(&policy.name, folder));
        let lists = self.on_every_route.iter();
        let lists = lists
            .chain(folders_above.flat_map(|(_, lists)| lists))
            .cloned();
        let own_lists = self.compile_file(cx, &policy.deny, &policy.allow);
        lists.chain(own_lists).collect()
    }

    /// Compiles the lists of one file.
    fn compile_file(
        &self,
        cx: &mut LoadContext,
        deny: &Option<ClientListConfig>,
        allow: &Option<ClientListConfig>,
    ) -> Vec<Arc<AccessList>> {
        let written = [(AccessEffect::Deny, deny), (AccessEffect::Allow, allow)];
        let written = written
            .into_iter()
            .filter_map(|(effect, list)| Some((effect, list.as_ref()?)));
        written
            .map(|(effect, list)| Arc::new(self.compile_list(cx, effect, list)))
            .collect()
    }

    /// Compiles one list. Mistakes in its files are reported to `cx`.
    fn compile_list(
        &self,
        cx: &mut LoadContext,
        effect: AccessEffect,
        written: &ClientListConfig,
    ) -> AccessList {
        let fields = &written.value;
        let networks = fields.networks.as_ref();
        let networks = networks.map(|items| self.compile_networks(cx, effect, items));
        let conditions = fields.conditions().into_iter();
        AccessList {
            effect,
            origin: cx.sources.origin(written.location),
            is_silent: fields.is_silent,
            networks,
            conditions: conditions
                .map(|condition| normalise_condition(cx, self.identity, condition))
                .collect(),
        }
    }

    /// The networks of a list, each with the text of its entry. Warns of an `allow` whose files leave no network.
    fn compile_networks(
        &self,
        cx: &mut LoadContext,
        effect: AccessEffect,
        items: &Located<Vec<NetworksItem>>,
    ) -> NetworkTable {
        let nat64 = &self.gateway.identity.ip.nat64;
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut networks = Vec::new();
        for item in &items.value {
            let (name, listed) = match item {
                NetworksItem::Network(network) => (network.to_string(), vec![*network]),
                NetworksItem::File(file) => {
                    let listed = read_networks(cx, self.files, self.base, file);
                    (file.value.clone(), listed)
                }
            };
            for network in listed {
                let network = counted_network(cx, items.location, network, nat64);
                networks.push((network, names.len()));
            }
            names.push(name.into());
        }
        if networks.is_empty() && effect == AccessEffect::Allow && !cx.has_errors() {
            let message = "the files have no network that holds now: every request gets 403";
            let help = "write the networks into the file, or remove `ip`";
            cx.warn(items.location, message, Some(help.into()));
        }
        NetworkTable::new(names, networks)
    }
}
