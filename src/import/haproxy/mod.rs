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
//! | `set_src` | proxies that name the client |
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
use set_src::find_trusted_proxies;
use syntax::{ConfigLine, MAX_LINES};
use table::StickTables;

use super::error::ImportError;
use super::files::InputFile;
use super::model::{ImportDraft, UpstreamDraft};
use super::report::{Concern, ImportReport, Origin};

mod acl;
mod acl_test;
mod action;
mod backend;
mod bind;
mod changes;
mod eval;
mod frontends;
mod limits;
mod matching;
mod notes;
mod policy;
mod response;
mod routes;
mod rules;
mod sample;
mod section;
mod set_src;
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
        if lines.len() > MAX_LINES {
            let message = format!("more than {MAX_LINES} lines in all files together");
            return Err(ImportError::at(&file.path, 1, 1, message).with_help("split them"));
        }
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
        if !defaults.is_inherited {
            notes::report_all(defaults.own_lines(), "no section inherits it", self.report);
        }
    }

    /// Reads rules, tables and all other lines but those of servers and addresses.
    fn read_rules(&mut self, section: &ConfigSection, out: &mut RuleSection) {
        // ACLs of `defaults` are for the rules of these only, and the other way round.
        let mut named: Vec<NamedAcls> = vec![NamedAcls::new(); section.layers.len() + 1];
        // A later line of a name adds to the ACL that earlier rules use.
        for (index, line) in section.lines.iter().enumerate() {
            if line.word(0) == "acl"
                && let Some(named) = named.get_mut(section.layer(index))
            {
                self.table.read_acl(line, named, self.report);
            }
        }
        if section.inherits_unknown {
            let (at, text) = (section.header.origin, &section.header.text);
            let note = "the `defaults` that it inherits are not read";
            self.report.left(at, Concern::Routing, text, note);
            out.rules
                .push(refused_section(section, "what `defaults` have"));
        }
        let has_header = |line: &ConfigLine| {
            line.word(0) == "bind" && line.words.iter().any(|word| word == "accept-proxy")
                || line.word(0) == "tcp-request" && line.word(2) == "expect-proxy"
        };
        out.has_proxy_header = section.lines.iter().any(has_header);
        for (index, line) in section.lines.iter().enumerate() {
            let Some(named) = named.get(section.layer(index)) else {
                continue;
            };
            let (at, text) = (line.origin, &line.text);
            match (line.word(0), line.word(1)) {
                ("acl", _) => {}
                (
                    "http-request" | "tcp-request" | "redirect" | "block" | "reqdeny" | "reqideny"
                    | "reqtarpit" | "reqitarpit" | "reqpass" | "reqipass" | "reqallow"
                    | "reqiallow" | "rspdeny" | "rspideny" | "tcp-response" | "monitor-uri",
                    _,
                )
                | ("stats", "uri")
                | ("http-response", "deny" | "return" | "redirect" | "silent-drop" | "reject") => {
                    let concern = match text.contains("track-sc") || text.contains("_rate") {
                        true => Concern::Limits,
                        false => Concern::Routing,
                    };
                    let rule = RuleReader {
                        table: &mut self.table,
                        named,
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
                ("use_backend" | "default_backend", _) => self.add_choice(line, named, out),
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
                    out.rules
                        .push(refused_section(section, "a disabled section"));
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
        // The last `default_backend` counts, and stands behind all other choices.
        let default = out.choices.pop_if(|choice| choice.is_default);
        let is_default = line.word(0) == "default_backend";
        let is_known = !line.has_variable && !line.is_conditional;
        let choice = BackendChoice {
            rule: SectionRule {
                phase: RulePhase::Request,
                action: RuleAction::Allow,
                condition,
                origin: line.origin,
                text: line.text.clone(),
            },
            is_default,
            name: is_known.then(|| line.word(1).to_owned()),
            target: None,
        };
        out.choices.push(choice);
        out.choices.extend(default.filter(|_| !is_default));
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
                let name = choice.name.as_deref();
                choice.target = name.and_then(|name| names.get(name).copied());
                if choice.target.is_none() {
                    let note = "no section of this name with `mode http` is there, so that its requests get 503; a name with variables, or under a condition, is not read";
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
                    is_default: true,
                    name: None,
                    target: Some(index),
                });
            }
        }
    }
}

/// A rule by which all requests of a section get 503.
fn refused_section(section: &ConfigSection, what: &'static str) -> SectionRule {
    SectionRule {
        phase: RulePhase::Page,
        action: RuleAction::Refuse(what),
        condition: always(),
        origin: section.header.origin,
        text: section.header.text.clone(),
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
