//! The rules of a section that decide about requests: `http-request`, `tcp-request`, `redirect` and their kin.

use super::acl_test::{AclTable, AclTerm, AclTest, NamedAcls};
use super::action::{RuleAction, RulePhase, SectionRule, condition_start};
use super::changes::{header_action, path_action, touched_field};
use super::notes;
use super::response::{read_redirect, read_return};
use super::syntax::ConfigLine;
use crate::import::report::{Concern, ImportReport};

/// Actions that change neither who is served nor where requests go.
const HARMLESS: [&str; 31] = [
    "set-log-level",
    "set-nice",
    "set-mark",
    "set-tos",
    "set-fc-mark",
    "set-fc-tos",
    "set-bc-mark",
    "set-bc-tos",
    "set-priority-class",
    "set-priority-offset",
    "capture",
    "set-var",
    "set-var-fmt",
    "unset-var",
    "cache-use",
    "wait-for-body",
    "wait-for-handshake",
    "disable-l7-retry",
    "early-hint",
    "sc-inc-gpc0",
    "sc-inc-gpc1",
    "sc-inc-gpc",
    "sc-add-gpc",
    "sc-set-gpt0",
    "sc-set-gpt",
    "do-log",
    "do-resolve",
    "set-timeout",
    "strict-mode",
    "send-spoe-group",
    "pause",
];

/// What becomes of rules that may refuse a response.
const DENIED_RESPONSE: RuleAction = RuleAction::Refuse("a response that is denied");

/// Reads rules of a section.
pub struct RuleReader<'r> {
    /// All tests.
    pub table: &'r mut AclTable,
    /// The ACLs of the section so far.
    pub named: &'r NamedAcls,
    /// What becomes of each line.
    pub report: &'r mut ImportReport,
    /// Whether `src` names the client, because the proxies that change it are trusted.
    pub takes_set_src: bool,
}

impl RuleReader<'_> {
    /// Reads a line; `None` if it is no rule, or one that is reported and does nothing here.
    pub fn read(&mut self, line: &ConfigLine) -> Option<SectionRule> {
        let (phase, action, first) = match (line.word(0), line.word(1)) {
            ("http-request", _) => (RulePhase::Request, self.http_action(line)?, 2),
            ("tcp-request", "connection") => (RulePhase::Connection, self.tcp_action(line)?, 3),
            ("tcp-request", "session") => (RulePhase::Session, self.tcp_action(line)?, 3),
            ("tcp-request", "content") => (RulePhase::Content, self.tcp_action(line)?, 3),
            ("tcp-response", "content")
                if ["reject", "silent-drop", "close"].contains(&line.word(2)) =>
            {
                (RulePhase::Request, DENIED_RESPONSE, 3)
            }
            ("tcp-request" | "tcp-response", _) => {
                self.report
                    .left(line.origin, Concern::Other, &line.text, notes::NO_EFFECT);
                return None;
            }
            ("redirect", _) => (RulePhase::Redirect, self.redirect(line, line.rest(1)), 1),
            ("block", _) => (RulePhase::Request, RuleAction::Deny(403), 1),
            ("http-response", _) => (RulePhase::Request, DENIED_RESPONSE, 2),
            ("monitor-uri", path) => return self.page(line, path, false),
            ("stats", "uri") => return self.page(line, line.word(2), true),
            _ => (
                RulePhase::Request,
                RuleAction::Refuse("a rule by a regular expression"),
                1,
            ),
        };
        let start = condition_start(line, first);
        let condition = self
            .table
            .read_condition(line, start, self.named, self.report);
        // What decides about the response cannot be tested before it is there.
        let is_response = action == DENIED_RESPONSE;
        let condition = if is_response {
            vec![Vec::new()]
        } else {
            condition
        };
        Some(SectionRule {
            phase,
            action,
            condition,
            origin: line.origin,
            text: line.text.clone(),
        })
    }

    fn http_action(&mut self, line: &ConfigLine) -> Option<RuleAction> {
        let word = line.word(1);
        let name = word.split('(').next().unwrap_or(word);
        let (at, text) = (line.origin, &line.text);
        Some(match name {
            "deny" => RuleAction::Deny(self.status_of(line, "deny_status", 403)),
            "tarpit" => {
                let note = "it is answered at once; HAProxy lets the client wait";
                self.report.changed(at, Concern::Routing, text, note);
                RuleAction::Deny(self.status_of(line, "deny_status", 500))
            }
            "reject" | "silent-drop" => self.closed(line),
            "allow" => RuleAction::Allow,
            "return" => read_return(line, self.report),
            "redirect" => self.redirect(line, line.rest(2)),
            "set-header" | "del-header" => header_action(line, self.report),
            "add-header" => {
                self.report.left(at, Concern::Other, text, notes::NO_EFFECT);
                touched_field(line)
            }
            "set-path" | "replace-path" => path_action(line, self.table),
            "auth" => RuleAction::Refuse("a password"),
            "set-src" if self.takes_set_src => return None,
            "set-src" => RuleAction::Refuse("set-src"),
            _ if name.starts_with("track-sc") => self.track(line, 1)?,
            "normalize-uri" => {
                let note =
                    "paths are matched in their normal form, and forwarded as they were sent";
                self.report.changed(at, Concern::Routing, text, note);
                return None;
            }
            "set-bandwidth-limit" => {
                let note = "the speed of a response has no counterpart; `count: cost bytes out` counts the bytes of each client";
                self.report.left(at, Concern::Limits, text, note);
                return None;
            }
            "replace-header" | "replace-value" => {
                let note = "write `request: { set: … }` or `remove` in the policies: servers get what the client sends";
                self.report.left(at, Concern::Routing, text, note);
                touched_field(line)
            }
            "add-acl" | "del-acl" | "set-map" | "del-map" => RuleAction::Refuse("a changed list"),
            _ if HARMLESS.contains(&name) => {
                self.report.left(at, Concern::Other, text, notes::NO_EFFECT);
                return None;
            }
            _ => RuleAction::Refuse("an action that is not read"),
        })
    }

    fn tcp_action(&mut self, line: &ConfigLine) -> Option<RuleAction> {
        let word = line.word(2);
        let name = word.split('(').next().unwrap_or(word);
        let (at, text) = (line.origin, &line.text);
        Some(match name {
            "accept" => RuleAction::Allow,
            "reject" | "silent-drop" => self.closed(line),
            // Reported with the addresses of the section.
            "expect-proxy" => return None,
            "set-src" if self.takes_set_src => return None,
            "set-src" => RuleAction::Refuse("set-src"),
            _ if name.starts_with("track-sc") => self.track(line, 2)?,
            _ if HARMLESS.contains(&name) => {
                self.report.left(at, Concern::Other, text, notes::NO_EFFECT);
                return None;
            }
            _ => RuleAction::Refuse("an action that is not read"),
        })
    }

    fn closed(&mut self, line: &ConfigLine) -> RuleAction {
        let note = "clients get 403; to close the connection add `silent: true` beside the networks under `deny`";
        self.report
            .changed(line.origin, Concern::Routing, &line.text, note);
        RuleAction::Deny(403)
    }

    fn status_of(&mut self, line: &ConfigLine, word: &str, default: u16) -> u16 {
        let mut words = line.words.iter().skip_while(|other| *other != word).skip(1);
        let status = words.next().map_or(Some(default), |text| text.parse().ok());
        match status.filter(|status| (400..=599).contains(status)) {
            Some(status) => status,
            None => {
                let note = "clients get 403: its status is not from 400 to 599";
                self.report
                    .changed(line.origin, Concern::Routing, &line.text, note);
                403
            }
        }
    }

    fn redirect(&mut self, line: &ConfigLine, words: &[String]) -> RuleAction {
        match read_redirect(line, words, self.report) {
            Ok(action) => action,
            Err(reason) => {
                self.report
                    .left(line.origin, Concern::Routing, &line.text, &reason);
                RuleAction::Refuse("a redirect")
            }
        }
    }

    fn track(&mut self, line: &ConfigLine, index: usize) -> Option<RuleAction> {
        let counter = line.word(index).trim_start_matches("track-sc").parse().ok();
        let Some(counter) = counter.filter(|counter| *counter < 32) else {
            self.report.left(
                line.origin,
                Concern::Limits,
                &line.text,
                "it is not written as HAProxy reads it",
            );
            return None;
        };
        let table = match line.word(index + 2) {
            "table" => Some(line.word(index + 3).to_owned()),
            _ => None,
        };
        Some(RuleAction::Track {
            counter,
            key: match line.has_variable || line.is_conditional {
                true => String::new(),
                false => line.word(index + 1).to_owned(),
            },
            table,
        })
    }

    /// A page that HAProxy serves at a path.
    fn page(&mut self, line: &ConfigLine, path: &str, is_stats: bool) -> Option<SectionRule> {
        let path = path
            .split(['?', ';'])
            .next()
            .unwrap_or(path)
            .trim_end_matches('/');
        let index = (!line.has_variable)
            .then(|| self.table.add_path(path))
            .flatten();
        let below = index.and_then(|_| self.table.add_path(&format!("{path}/**")));
        let (Some(index), Some(below)) = (index, below) else {
            let note = "it is no path of a match; write a policy with `respond` for it";
            self.report
                .left(line.origin, Concern::Routing, &line.text, note);
            return None;
        };
        let (action, paths) = match is_stats {
            true => {
                let note = "the page is not served; its path gets 503. tollgate has a dashboard at its admin listener";
                self.report
                    .left(line.origin, Concern::Other, &line.text, note);
                (
                    RuleAction::Return {
                        status: 503,
                        body:
                            "This part of the configuration is not imported: a page of statistics\n"
                                .into(),
                        content_type: String::new(),
                    },
                    vec![index, below],
                )
            }
            false => (
                RuleAction::Return {
                    status: 200,
                    body: String::new(),
                    content_type: String::new(),
                },
                vec![index],
            ),
        };
        let test = self.table.add(AclTest::Path(paths));
        Some(SectionRule {
            phase: RulePhase::Page,
            action,
            condition: vec![vec![AclTerm {
                tests: vec![test].into(),
                is_negated: false,
            }]],
            origin: line.origin,
            text: line.text.clone(),
        })
    }
}
