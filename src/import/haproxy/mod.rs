//! Imports `haproxy.cfg`.
//!
//! | file | what it is |
//! |---|---|
//! | `syntax`, `section` | words and lines; sections, and what they inherit |
//! | `sample`, `acl`, `acl_test`, `matching` | sample expressions, conditions, and what a single ACL tests |
//! | `action`, `rules`, `answer`, `changes` | rules of requests; responses and redirects; changed fields and paths |
//! | `eval`, `walk` | what becomes of the requests with one host, path and method |
//! | `table` | tables that count, and the limits that they become |
//! | `limits` | the limits of rules that look at counters |
//! | `routes`, `policy` | policies from these requests |
//! | `bind`, `frontends`, `backend` | where clients connect; the servers behind |
//! | `notes` | what the report says of all other lines |

use std::collections::HashMap;

use acl_test::{AclTable, NamedAcls};
use action::{RuleAction, RulePhase, SectionRule, always, condition_start};
use backend::read_upstream;
use eval::{BackendChoice, RuleSection};
use policy::share_lists;
use rules::RuleReader;
use section::{ConfigSection, SectionKind, group};
use syntax::ConfigLine;
use table::StickTables;

use super::error::ImportError;
use super::files::InputFile;
use super::model::{ImportDraft, UpstreamDraft};
use super::nginx::variables::{network_text, parse_network};
use super::report::{Concern, ImportReport, Origin};

mod acl;
mod acl_test;
mod action;
mod answer;
mod backend;
mod bind;
mod changes;
mod eval;
mod frontends;
mod limits;
mod matching;
mod notes;
mod policy;
mod routes;
mod rules;
mod sample;
mod section;
mod syntax;
mod table;
mod walk;

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is not the syntax of HAProxy, or too many hosts, paths or conditions.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let mut lines = Vec::new();
    for (index, file) in files.iter().enumerate() {
        lines.extend(syntax::parse(index, file)?);
    }
    let sections = group(lines, report)?;
    let mut reader = SectionReader {
        sections: &sections,
        table: AclTable::default(),
        tables: StickTables::default(),
        rules: Vec::new(),
        upstreams: Vec::new(),
        takes_set_src: find_trusted_proxies(&sections, draft),
        draft,
        report,
    };
    reader.table.add_path("/**");
    for index in 0..sections.len() {
        reader.read_section(index);
    }
    reader.find_backends();
    reader.add_routes()?;
    let first_path = files.first().map_or("", |file| file.path.as_str());
    share_lists(draft, first_path)?;
    report.note("Timeouts that are not written are those of tollgate: 2 s to connect, 60 s for the first byte.");
    report.note("A path with and without a slash at its end is one: `/api/**` takes /api, and `/login` takes /login/. Hosts count without their case and port.");
    report.note("IPv6: HAProxy counts each address for itself. tollgate counts a /64 as one client, with budgets for the networks around it.");
    report.note("A limit answers 429 with `Retry-After`, whatever status the rule has.");
    Ok(())
}

/// Trusts the proxies whose `X-Forwarded-For` every frontend takes for the client's address before all other rules. Returns
/// whether there are such.
fn find_trusted_proxies(sections: &[ConfigSection], draft: &mut ImportDraft) -> bool {
    let mut proxies: Option<Vec<String>> = None;
    let frontends = sections
        .iter()
        .filter(|section| section.is_http && is_front(section));
    for section in frontends {
        let is_rule = |line: &&ConfigLine| {
            line.word(0) == "http-request"
                || line.word(0) == "tcp-request" && line.word(1) != "inspect-delay"
        };
        let first = section.lines.iter().find(is_rule);
        let own = first.and_then(set_src_networks);
        if own.is_none() || proxies.is_some() && proxies != own {
            return false;
        }
        proxies = own;
    }
    match proxies {
        Some(networks) => {
            draft.trusted_proxies = networks;
            true
        }
        None => false,
    }
}

/// The networks of `http-request set-src hdr(x-forwarded-for) if { src NETWORKS }`.
fn set_src_networks(line: &ConfigLine) -> Option<Vec<String>> {
    let is_source = [
        "hdr(x-forwarded-for)",
        "req.hdr(x-forwarded-for)",
        "hdr_ip(x-forwarded-for)",
        "req.hdr_ip(x-forwarded-for)",
    ]
    .contains(&line.word(2).to_ascii_lowercase().trim_end_matches(",-1)"));
    let condition = line.rest(3);
    let is_condition = condition.first()?.as_str() == "if"
        && condition.get(1)?.as_str() == "{"
        && condition.get(2)?.as_str() == "src"
        && condition.last()?.as_str() == "}";
    if line.word(1) != "set-src"
        || !is_source
        || !is_condition
        || line.has_variable
        || line.is_conditional
    {
        return None;
    }
    let networks = condition.get(3..condition.len().checked_sub(1)?)?;
    let networks: Option<Vec<String>> = networks
        .iter()
        .map(|text| parse_network(text).map(network_text))
        .collect();
    networks.filter(|networks| !networks.is_empty())
}

fn is_front(section: &ConfigSection) -> bool {
    matches!(section.kind, SectionKind::Frontend | SectionKind::Listen)
}

/// Reads sections one after the other.
struct SectionReader<'r> {
    sections: &'r [ConfigSection],
    table: AclTable,
    tables: StickTables,
    /// The rules of each section.
    rules: Vec<RuleSection>,
    /// The servers of each section.
    upstreams: Vec<Option<UpstreamDraft>>,
    takes_set_src: bool,
    draft: &'r mut ImportDraft,
    report: &'r mut ImportReport,
}

impl SectionReader<'_> {
    fn read_section(&mut self, index: usize) {
        let Some(section) = self.sections.get(index) else {
            return;
        };
        let (at, text) = (section.header.origin, &section.header.text);
        let mut rules = RuleSection {
            name: section.name.clone(),
            ..RuleSection::default()
        };
        let mut upstream = None;
        match section.kind {
            SectionKind::Frontend | SectionKind::Backend | SectionKind::Listen
                if section.is_http =>
            {
                self.report.taken(at, Concern::Routing, text, "");
                if section.kind != SectionKind::Frontend {
                    upstream = read_upstream(section, self.report);
                }
                rules.has_servers = upstream.is_some();
                self.read_rules(section, &mut rules);
            }
            SectionKind::Backend if has_only_table(section) => {
                self.report.taken(at, Concern::Limits, text, "");
                self.read_rules(section, &mut rules);
            }
            SectionKind::Frontend | SectionKind::Backend | SectionKind::Listen => {
                let note = "only `mode http` is proxied; a section without a mode has `tcp`";
                self.report.left(at, Concern::Routing, text, note);
                notes::report_all(&section.lines, note, self.report);
            }
            // Their lines are reported where sections inherit them.
            SectionKind::Defaults => {
                self.report.taken(at, Concern::Other, text, "");
                self.report_uninherited(section);
            }
            SectionKind::Peers => {
                self.report.left(
                    at,
                    Concern::Other,
                    text,
                    "gateways share counts by `store: redis://HOST:6379`",
                );
                for line in &section.lines {
                    match line.word(0) {
                        "table" => {
                            let name = format!("{}/{}", section.name, line.word(1));
                            self.tables.add(&name, line, 2, self.report);
                        }
                        _ => notes::report_other(line, self.report),
                    }
                }
            }
            SectionKind::Global | SectionKind::Other => {
                let note = "it has no counterpart";
                match section.kind {
                    SectionKind::Global => self.report.taken(at, Concern::Other, text, ""),
                    _ => self.report.left(at, Concern::Other, text, note),
                }
                for line in &section.lines {
                    notes::report_other(line, self.report);
                }
            }
        }
        self.rules.push(rules);
        self.upstreams.push(upstream);
    }

    fn report_uninherited(&mut self, defaults: &ConfigSection) {
        let is_inherited = |line: &ConfigLine| {
            let mut others = self
                .sections
                .iter()
                .filter(|other| other.kind != SectionKind::Defaults);
            others.any(|other| {
                other
                    .lines
                    .first()
                    .is_some_and(|first| first.origin == line.origin)
            })
        };
        if !defaults.lines.first().is_some_and(is_inherited) {
            notes::report_all(&defaults.lines, "no section inherits it", self.report);
        }
    }

    /// Reads rules, tables and all other lines but those of servers and addresses.
    fn read_rules(&mut self, section: &ConfigSection, out: &mut RuleSection) {
        let mut named = NamedAcls::new();
        // A later line of a name adds to the ACL that earlier rules use.
        for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
            self.table.read_acl(line, &mut named, self.report);
        }
        let has_header = |line: &ConfigLine| {
            line.word(0) == "bind" && line.words.iter().any(|word| word == "accept-proxy")
                || line.word(0) == "tcp-request" && line.word(2) == "expect-proxy"
        };
        out.has_proxy_header = section.lines.iter().any(has_header);
        for line in &section.lines {
            let (at, text) = (line.origin, &line.text);
            match (line.word(0), line.word(1)) {
                ("acl", _) => {}
                (
                    "http-request" | "tcp-request" | "redirect" | "block" | "reqdeny" | "reqideny"
                    | "reqtarpit" | "reqitarpit" | "reqpass" | "reqipass" | "reqallow"
                    | "reqiallow" | "monitor-uri",
                    _,
                )
                | ("stats", "uri")
                | ("http-response", "deny" | "return" | "redirect") => {
                    let concern = match text.contains("track-sc") || text.contains("_rate") {
                        true => Concern::Limits,
                        false => Concern::Routing,
                    };
                    let rule = RuleReader {
                        table: &mut self.table,
                        named: &named,
                        report: self.report,
                        takes_set_src: self.takes_set_src,
                    }
                    .read(line);
                    if let Some(rule) = rule {
                        self.report.taken(at, concern, text, "");
                        out.rules.push(rule);
                    } else if line.word(1) == "set-src" {
                        let note = "of the addresses in the header, the last that is of no proxy is the client's; HAProxy takes the last one. So clients in the networks of the proxies can name another address here";
                        self.report.changed(at, Concern::Routing, text, note);
                    }
                }
                ("use_backend" | "default_backend", _) => self.add_choice(line, &named, out),
                ("stick-table", _) => self.tables.add(&section.name, line, 1, self.report),
                ("mode", _) => self.report.taken(at, Concern::Other, text, ""),
                (
                    "bind" | "server" | "server-template" | "default-server" | "balance"
                    | "dispatch",
                    _,
                )
                | ("http-check", "send") => {}
                ("option", "httpchk") | ("timeout", "connect" | "server") => {
                    if section.kind == SectionKind::Frontend {
                        self.report.taken(at, Concern::Other, text, "");
                    }
                }
                ("option", "forwardfor") => match line.words.len() {
                    2 => self
                        .report
                        .taken(at, Concern::Other, text, "tollgate does that anyway"),
                    _ => {
                        let note = "tollgate writes X-Forwarded-For for every request, and keeps the entries of trusted proxies only: write \
                                    their networks under `trusted_proxies`";
                        self.report.changed(at, Concern::Routing, text, note);
                    }
                },
                ("no", "option") | ("description" | "id" | "enabled", _) => {
                    self.report.taken(at, Concern::Other, text, "");
                }
                ("disabled", _) => {
                    let note = "the section is not used by HAProxy; leave it out";
                    self.report.left(at, Concern::Routing, text, note);
                    out.rules.push(SectionRule {
                        phase: RulePhase::Page,
                        action: RuleAction::Refuse("a disabled section"),
                        condition: always(),
                        origin: at,
                        text: text.clone(),
                    });
                }
                _ => notes::report_other(line, self.report),
            }
        }
        // HAProxy goes through the phases, whatever the order of lines.
        out.rules.sort_by_key(|rule| rule.phase);
    }

    fn add_choice(&mut self, line: &ConfigLine, named: &NamedAcls, out: &mut RuleSection) {
        let condition = match line.word(0) {
            "use_backend" => {
                let start = condition_start(line, 2);
                self.table.read_condition(line, start, named, self.report)
            }
            _ => always(),
        };
        self.report
            .taken(line.origin, Concern::Routing, &line.text, "");
        let mut is_default =
            |choice: &BackendChoice| choice.rule.text.starts_with("default_backend");
        if line.word(0) == "default_backend" {
            // The last one counts.
            out.choices.retain(|choice| !is_default(choice));
        }
        let choice = BackendChoice {
            rule: SectionRule {
                phase: RulePhase::Request,
                action: RuleAction::Allow,
                condition,
                origin: line.origin,
                text: line.text.clone(),
            },
            target: None,
        };
        let place = match line.word(0) {
            "use_backend" => out.choices.iter().position(&mut is_default),
            _ => None,
        };
        match place {
            Some(place) => out.choices.insert(place, choice),
            None => out.choices.push(choice),
        }
    }

    /// Finds the sections that `use_backend` and `default_backend` name.
    fn find_backends(&mut self) {
        let mut names: HashMap<&str, usize> = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            if matches!(section.kind, SectionKind::Backend | SectionKind::Listen) && section.is_http
            {
                names.entry(&section.name).or_insert(index);
            }
        }
        for (index, rules) in self.rules.iter_mut().enumerate() {
            for choice in &mut rules.choices {
                let name = choice.rule.text.split_whitespace().nth(1).unwrap_or("");
                choice.target = names.get(name).copied();
                if choice.target.is_none() {
                    let note = "no section of this name with `mode http` is there, so that its requests get 503; a name with variables is not read";
                    self.report.left(
                        choice.rule.origin,
                        Concern::Routing,
                        &choice.rule.text,
                        note,
                    );
                }
            }
            let is_listen = self
                .sections
                .get(index)
                .is_some_and(|section| section.kind == SectionKind::Listen);
            let has_default = rules
                .choices
                .iter()
                .any(|choice| choice.rule.condition == always());
            if is_listen && rules.has_servers && !has_default {
                let origin = self
                    .sections
                    .get(index)
                    .map_or(Origin::default(), |section| section.header.origin);
                rules.choices.push(BackendChoice {
                    rule: SectionRule {
                        phase: RulePhase::Request,
                        action: RuleAction::Allow,
                        condition: always(),
                        origin,
                        text: String::new(),
                    },
                    target: Some(index),
                });
            }
        }
    }
}

/// Whether a section is there for its table.
fn has_only_table(section: &ConfigSection) -> bool {
    let mut lines = section.lines.iter();
    let has_table = section
        .lines
        .iter()
        .any(|line| line.word(0) == "stick-table");
    has_table
        && !lines.any(|line| matches!(line.word(0), "server" | "http-request" | "server-template"))
}
