//! Frontends: their addresses, their routes, and the backends that no one uses.

use std::collections::{HashMap, HashSet};

use super::acl_test::AclTest;
use super::action::RuleAction;
use super::bind::{BindAddress, bind_addresses, read_bind};
use super::eval::{ConditionReader, RuleId};
use super::routes::{CellRoutes, ListenerGroup};
use super::section::{ConfigSection, SectionKind};
use super::syntax::ConfigLine;
use super::{SectionReader, has_only_table, is_front};
use crate::import::error::ImportError;
use crate::import::files::MAX_ROUTES;
use crate::import::names::UniqueNames;
use crate::import::nginx::variables::{network_text, parse_network};
use crate::import::report::{Concern, Fate, Origin};

impl SectionReader<'_> {
    /// Reads the addresses of frontends, and adds their routes.
    pub(super) fn add_routes(mut self) -> Result<(), ImportError> {
        let mut frontends: Vec<(usize, Vec<BindAddress>)> = Vec::new();
        let mut used: HashSet<String> = HashSet::new();
        let of_ipv4 = self.addresses_of_ipv4();
        for (index, section) in self.sections.iter().enumerate() {
            if !section.is_http || !is_front(section) {
                self.report_binds(section);
                continue;
            }
            let mut binds = self.read_binds(section);
            self.merge_addresses(&mut binds);
            binds.retain(|bind| {
                let ipv4 = ipv4_address(&bind.listener.address);
                // Clients of IPv4 reach the section that names the port of IPv4.
                let is_others = ipv4 != bind.listener.address
                    && of_ipv4.get(&ipv4).is_some_and(|other| *other != index);
                let is_new = !is_others && used.insert(ipv4);
                if !is_new {
                    let note = "another section listens at this address";
                    self.report.left(
                        bind.listener.origin,
                        Concern::Routing,
                        &section.header.text,
                        note,
                    );
                }
                is_new
            });
            if binds.is_empty() {
                let note = "none of its addresses has a counterpart, so it has no policies";
                let concern = Concern::Limits;
                self.report
                    .left(section.header.origin, concern, &section.header.text, note);
            } else {
                frontends.push((index, binds));
            }
        }
        self.report_unused(&frontends);
        let origins: Vec<Origin> = self
            .sections
            .iter()
            .map(|section| section.header.origin)
            .collect();
        let groups = self.listener_groups(&frontends);
        let has_tls = self
            .draft
            .listeners
            .iter()
            .any(|listener| !listener.certificates.is_empty());
        let mut cells = CellRoutes {
            sections: &self.rules,
            upstreams: &self.upstreams,
            origins: &origins,
            reader: ConditionReader::new(&self.table),
            tables: &mut self.tables,
            draft: self.draft,
            has_tls,
            texts: HashMap::new(),
        };
        for (frontend, group) in &groups {
            if cells.draft.routes.len() > MAX_ROUTES {
                break;
            }
            let added = cells.add(*frontend, group);
            if let Err(message) = added {
                let section = self.sections.get(*frontend).map(|section| &section.header);
                let origin = section.map_or(Origin::default(), |header| header.origin);
                let path = self.report.path(origin).to_owned();
                return Err(ImportError::at(&path, origin.line, 1, message)
                    .with_help("import a part of it at a time"));
            }
        }
        let (marks, used) = (cells.reader.marks, cells.reader.used);
        self.report_uncounted(&used);
        for ((section, index, is_choice), fate, note) in marks {
            let Some(section) = self.rules.get(section) else {
                continue;
            };
            let rule = match is_choice {
                true => section.choices.get(index).map(|choice| &choice.rule),
                false => section.rules.get(index),
            };
            if let Some(rule) = rule {
                let concern = match fate == Fate::Left
                    && !rule.text.contains("_rate")
                    && !rule.text.contains("track-sc")
                {
                    true => Concern::Routing,
                    false => Concern::Limits,
                };
                self.report
                    .add(rule.origin, fate, concern, &rule.text, &note);
            }
        }
        self.tables.finish(self.report);
        Ok(())
    }

    /// The first section that listens at each address of IPv4.
    fn addresses_of_ipv4(&self) -> HashMap<String, usize> {
        let mut addresses = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            let is_served = section.is_http && is_front(section);
            let lines = section
                .lines
                .iter()
                .filter(|line| is_served && line.word(0) == "bind");
            for address in lines.flat_map(bind_addresses) {
                if !address.starts_with("[::]:") {
                    addresses.entry(address).or_insert(index);
                }
            }
        }
        addresses
    }

    /// Leaves out addresses of IPv4 where a socket for all addresses of IPv6 takes them, with equal options.
    fn merge_addresses(&mut self, binds: &mut Vec<BindAddress>) {
        let of_ipv4: HashMap<String, BindAddress> = binds
            .iter()
            .filter(|bind| !bind.listener.address.starts_with("[::]:"))
            .map(|bind| (bind.listener.address.clone(), bind.clone()))
            .collect();
        let mut merged: HashSet<String> = HashSet::new();
        binds.retain(|bind| {
            let own = &bind.listener;
            let ipv4 = ipv4_address(&own.address);
            let Some(other) = of_ipv4.get(&ipv4).filter(|_| ipv4 != own.address) else {
                return true;
            };
            let is_alike = bind.is_tls == other.is_tls
                && own.proxy_protocol == other.listener.proxy_protocol
                && own.certificates == other.listener.certificates;
            if is_alike {
                merged.insert(ipv4);
            } else {
                let text = format!("bind {}", own.address);
                let note = "its options differ from those of the same port of IPv4, which it would take too; it is not opened";
                self.report.left(own.origin, Concern::Routing, &text, note);
            }
            is_alike
        });
        binds.retain(|bind| !merged.contains(&bind.listener.address));
    }

    /// Reports rules that count requests for no limit.
    fn report_uncounted(&mut self, used: &HashSet<RuleId>) {
        for (section, rules) in self.rules.iter().enumerate() {
            for (index, rule) in rules.rules.iter().enumerate() {
                let is_track = matches!(rule.action, RuleAction::Track { .. });
                if is_track && !used.contains(&(section, index, false)) {
                    let note = "no limit that is taken counts by it";
                    self.report
                        .left(rule.origin, Concern::Limits, &rule.text, note);
                }
            }
        }
    }

    fn report_binds(&mut self, section: &ConfigSection) {
        if section.kind != SectionKind::Backend || !section.is_http {
            return;
        }
        for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
            self.report.left(
                line.origin,
                Concern::Routing,
                &line.text,
                "a backend has no address",
            );
        }
    }

    fn read_binds(&mut self, section: &ConfigSection) -> Vec<BindAddress> {
        let mut proxies: Vec<String> = Vec::new();
        let mut is_known = true;
        for line in &section.lines {
            if line.word(0) == "tcp-request" && line.word(2) == "expect-proxy" {
                let (at, text) = (line.origin, &line.text);
                match expected_proxies(line) {
                    Some(networks) => {
                        proxies.extend(networks);
                        self.report.taken(at, Concern::Routing, text, "");
                    }
                    None => {
                        is_known = false;
                        let note = "from which proxies it expects a header is not read; write `proxy_protocol` at the listener";
                        self.report.left(at, Concern::Routing, text, note);
                    }
                }
            }
        }
        let mut binds = Vec::new();
        for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
            if !is_known {
                let note = "it is not opened, because its proxies are not known";
                self.report
                    .left(line.origin, Concern::Routing, &line.text, note);
                continue;
            }
            binds.extend(read_bind(line, &proxies, self.report));
        }
        binds
    }

    /// Reports backends that no frontend uses.
    fn report_unused(&mut self, frontends: &[(usize, Vec<BindAddress>)]) {
        let used: HashSet<usize> = frontends
            .iter()
            .filter_map(|(frontend, _)| self.rules.get(*frontend))
            .flat_map(|rules| rules.choices.iter().filter_map(|choice| choice.target))
            .collect();
        for (index, section) in self.sections.iter().enumerate() {
            let is_backend = section.kind == SectionKind::Backend && section.is_http;
            let is_used = used.contains(&index);
            let has_rules = self
                .rules
                .get(index)
                .is_some_and(|rules| !rules.rules.is_empty());
            if is_backend && !is_used && !has_only_table(section) {
                let concern = if has_rules {
                    Concern::Limits
                } else {
                    Concern::Routing
                };
                self.report.left(
                    section.header.origin,
                    concern,
                    &section.header.text,
                    "no frontend uses it",
                );
            }
        }
    }

    /// The listeners of each frontend, apart where its rules tell them apart. Adds them to the draft.
    fn listener_groups(
        &mut self,
        frontends: &[(usize, Vec<BindAddress>)],
    ) -> Vec<(usize, ListenerGroup)> {
        let mut names = UniqueNames::default();
        let mut groups: Vec<(usize, ListenerGroup)> = Vec::new();
        let tells_ports = self
            .table
            .tests
            .iter()
            .any(|test| matches!(test, AclTest::Port(_)));
        for (frontend, binds) in frontends {
            let is_tls = binds.first().map(|bind| bind.is_tls);
            let is_alike = binds.iter().all(|bind| Some(bind.is_tls) == is_tls);
            // A header of the PROXY protocol names another port.
            let known_port = |bind: &BindAddress| {
                let is_known = bind.listener.proxy_protocol.is_empty();
                bind.port.filter(|_| is_known)
            };
            let ports: Vec<Option<u16>> = binds.iter().map(known_port).collect();
            let is_one = is_alike
                && (!tells_ports || ports.windows(2).all(|pair| pair.first() == pair.last()));
            let mut own: Vec<ListenerGroup> = Vec::new();
            for bind in binds {
                let mut listener = bind.listener.clone();
                let hint = bind.port.map_or_else(
                    || format!("at-{}", listener.address),
                    |port| format!("port-{port}"),
                );
                listener.name = names.name(&hint, "listener");
                match own.first_mut().filter(|_| is_one) {
                    Some(group) => group.names.push(listener.name.clone()),
                    None => own.push(ListenerGroup {
                        names: vec![listener.name.clone()],
                        is_tls: Some(bind.is_tls),
                        port: known_port(bind),
                    }),
                }
                self.draft.listeners.push(listener);
            }
            groups.extend(own.into_iter().map(|group| (*frontend, group)));
        }
        if let [(_, group)] = groups.as_mut_slice() {
            group.names.clear();
            self.draft
                .listeners
                .iter_mut()
                .for_each(|listener| listener.name.clear());
        }
        groups
    }
}

/// The networks of `tcp-request connection expect-proxy layer4 if { src NETWORKS }`; `None` for anything else.
fn expected_proxies(line: &ConfigLine) -> Option<Vec<String>> {
    let networks = match line.rest(1) {
        [phase, _, layer, keyword, open, source, networks @ .., close]
            if phase == "connection"
                && layer == "layer4"
                && keyword == "if"
                && open == "{"
                && source == "src"
                && close == "}" =>
        {
            networks
        }
        _ => return None,
    };
    if line.has_variable || line.is_conditional || networks.is_empty() {
        return None;
    }
    let read = networks.iter().map(|text| parse_network(text));
    read.map(|network| network.map(network_text)).collect()
}

/// The address with all of IPv4 in place of all of IPv6.
fn ipv4_address(address: &str) -> String {
    address.replace("[::]:", "0.0.0.0:")
}
