//! Frontends: their addresses, their routes, and the backends that no one uses.

use std::collections::{HashMap, HashSet};

use super::acl_test::AclTest;
use super::action::RuleAction;
use super::bind::{BindAddress, read_bind};
use super::eval::{ConditionReader, RuleId};
use super::routes::{CellRoutes, ListenerGroup};
use super::section::{ConfigSection, SectionKind};
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
        for (index, section) in self.sections.iter().enumerate() {
            if !section.is_http || !is_front(section) {
                self.report_binds(section);
                continue;
            }
            let mut binds = self.read_binds(section);
            // A socket for all addresses of IPv6 takes those of IPv4 too.
            let of_ipv6: HashSet<(String, bool)> = binds
                .iter()
                .filter(|bind| bind.listener.address.starts_with("[::]:"))
                .map(|bind| (ipv4_address(&bind.listener.address), bind.is_tls))
                .collect();
            binds.retain(|bind| !of_ipv6.contains(&(bind.listener.address.clone(), bind.is_tls)));
            binds.retain(|bind| {
                let is_new = used.insert(ipv4_address(&bind.listener.address));
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
        for line in &section.lines {
            if line.word(0) == "tcp-request" && line.word(2) == "expect-proxy" {
                let networks = line.words.iter().filter_map(|word| parse_network(word));
                proxies.extend(networks.map(network_text));
                match proxies.is_empty() {
                    true => self.report.left(
                        line.origin,
                        Concern::Routing,
                        &line.text,
                        "write `proxy_protocol` at the listener",
                    ),
                    false => self
                        .report
                        .taken(line.origin, Concern::Routing, &line.text, ""),
                }
            }
        }
        let mut binds = Vec::new();
        for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
            binds.extend(read_bind(line, &proxies, self.report));
        }
        binds
    }

    /// Reports backends that no frontend uses.
    fn report_unused(&mut self, frontends: &[(usize, Vec<BindAddress>)]) {
        for (index, section) in self.sections.iter().enumerate() {
            let is_backend = section.kind == SectionKind::Backend && section.is_http;
            let is_used = frontends.iter().any(|(frontend, _)| {
                let choices = self
                    .rules
                    .get(*frontend)
                    .map_or(&[][..], |rules| &rules.choices);
                choices.iter().any(|choice| choice.target == Some(index))
            });
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
        for (frontend, binds) in frontends {
            let is_tls = binds.first().map(|bind| bind.is_tls);
            let is_alike = binds.iter().all(|bind| Some(bind.is_tls) == is_tls);
            let ports: Vec<Option<u16>> = binds.iter().map(|bind| bind.port).collect();
            let tells_ports = self
                .table
                .tests
                .iter()
                .any(|test| matches!(test, AclTest::Port(_)));
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
                        port: bind.port,
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

/// The address with all of IPv4 in place of all of IPv6.
fn ipv4_address(address: &str) -> String {
    address.replace("[::]:", "0.0.0.0:")
}
