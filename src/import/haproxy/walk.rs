//! Goes through the rules of a frontend, and of the backend that it chooses, for one cell.

use super::action::{RuleAction, RulePhase, SectionRule};
use super::eval::{
    CellAction, CellOutcome, ChangedParts, ConditionReader, OpenTerms, PHASES, RequestCell, RuleId,
    RuleSection,
};
use super::sample::{SampleExpression, parse_sample};
use super::table::{StickTables, TrackedKey};
use crate::import::model::ImportDraft;
use crate::import::report::Fate;

/// Goes through rules.
pub struct RuleWalker<'w, 't> {
    /// The sections.
    pub sections: &'w [RuleSection],
    /// Tests conditions.
    pub reader: &'w mut ConditionReader<'t>,
    /// The tables.
    pub tables: &'w mut StickTables,
    /// The configuration that is made.
    pub draft: &'w mut ImportDraft,
}

/// What the rules have said so far.
#[derive(Default)]
pub(super) struct WalkState {
    pub(super) outcome: CellOutcome,
    pub(super) changed: ChangedParts,
    /// Whether a rule has changed the address.
    is_source_changed: bool,
    /// The rules that count requests, by the number of their counter.
    pub(super) counted: Vec<Vec<TrackedRequests>>,
    /// Why the requests cannot be served.
    pub(super) stub: Option<String>,
    /// Lists of addresses for which the rest of the phase does not hold.
    pub(super) skipped: Vec<usize>,
}

#[derive(Clone)]
pub(super) struct TrackedRequests {
    pub(super) rule: RuleId,
    pub(super) counted: TrackedKey,
    /// Whether every request has the key.
    pub(super) is_always: bool,
    pub(super) terms: OpenTerms,
}

impl RuleWalker<'_, '_> {
    /// What becomes of the requests of a cell at a frontend.
    pub fn outcome(&mut self, frontend: usize, cell: &RequestCell<'_>) -> CellOutcome {
        let mut state = WalkState {
            counted: vec![Vec::new(); 32],
            ..WalkState::default()
        };
        if let Some(last) = self.section(frontend, cell, &mut state) {
            return self.finish_at(state, last);
        }
        match self.choose(frontend, cell, &mut state) {
            None => {
                state.outcome.backend = None;
                state.stub.get_or_insert_with(|| "a backend".into());
            }
            Some(backend) => {
                state.outcome.backend = Some(backend);
                if backend != frontend
                    && let Some(last) = self.section(backend, cell, &mut state)
                {
                    return self.finish_at(state, last);
                }
            }
        }
        finish(state, CellAction::Forward, false)
    }

    /// The outcome where a rule decides. A rule that denies is as strict as one that could not be read.
    fn finish_at(&self, state: WalkState, last: CellAction) -> CellOutcome {
        let is_denied = match &last {
            CellAction::Rule((section, index, _)) => {
                let rules = self.sections.get(*section).map(|section| &section.rules);
                let rule = rules.and_then(|rules| rules.get(*index));
                rule.is_some_and(|rule| matches!(rule.action, RuleAction::Deny(_)))
            }
            _ => false,
        };
        finish(state, last, is_denied)
    }

    /// Goes through the rules of a section. Returns what happens, if a rule decides it.
    fn section(
        &mut self,
        section: usize,
        cell: &RequestCell<'_>,
        state: &mut WalkState,
    ) -> Option<CellAction> {
        let rules = self
            .sections
            .get(section)
            .map_or(&[][..], |section| &section.rules);
        let has_proxy_header = self
            .sections
            .get(section)
            .is_some_and(|section| section.has_proxy_header);
        let is_address_changed = state.changed.address;
        for phase in PHASES {
            state.skipped.clear();
            // Before the header of the PROXY protocol is read, the address is that of the proxy.
            let is_early = has_proxy_header && phase == RulePhase::Connection;
            state.changed.address = is_early || is_address_changed || state.is_source_changed;
            let of_phase = rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.phase == phase);
            for (index, rule) in of_phase {
                match self.rule((section, index, false), rule, cell, state) {
                    RuleResult::Next => {}
                    RuleResult::EndPhase => break,
                    RuleResult::Decided(action) => return Some(action),
                }
            }
        }
        None
    }

    fn rule(
        &mut self,
        id: RuleId,
        rule: &SectionRule,
        cell: &RequestCell<'_>,
        state: &mut WalkState,
    ) -> RuleResult {
        let mut alternatives = self
            .reader
            .open_terms(&rule.condition, cell, &state.changed);
        if matches!(rule.action, RuleAction::Track { .. }) && alternatives.len() > 1 {
            // A request is counted once, whichever of them holds.
            alternatives = vec![OpenTerms {
                is_unclear: true,
                ..OpenTerms::default()
            }];
        }
        for terms in alternatives {
            let result = match &rule.action {
                RuleAction::Deny(_) => self.deny(id, &terms, state),
                RuleAction::Allow => self.allow(id, &terms, state),
                RuleAction::Track {
                    counter,
                    key,
                    table,
                } => self.track(id, rule, (*counter, key, table.as_deref()), terms, state),
                RuleAction::Return { .. } | RuleAction::Redirect { .. } => {
                    self.answer(id, &terms, state)
                }
                RuleAction::Header(..) | RuleAction::Host(_) | RuleAction::Path { .. } => {
                    self.change(id, rule, &terms, cell, state)
                }
                RuleAction::Field(name) => {
                    state.changed.add_field(name.as_deref());
                    RuleResult::Next
                }
                RuleAction::Refuse("set-src") => {
                    state.changed.address = true;
                    state.is_source_changed = true;
                    let note = "the address of a header has no counterpart here: write the networks of the proxies under `identity: \
                                { ip: { trusted_proxies: [...] } }`";
                    self.reader.mark(id, Fate::Left, note);
                    RuleResult::Next
                }
                RuleAction::Refuse(what) => self.stub(id, what, state),
            };
            match result {
                RuleResult::Next => {}
                result => return result,
            }
        }
        RuleResult::Next
    }

    /// Requests that the rule may refuse get 503.
    pub(super) fn stub(&mut self, id: RuleId, what: &str, state: &mut WalkState) -> RuleResult {
        let note = format!(
            "{what} has no counterpart here. Requests that this may concern get 503, so that none passes without it; the policies \
             name the upstream in a comment"
        );
        self.reader.mark(id, Fate::Left, note);
        state.stub.get_or_insert_with(|| what.to_owned());
        RuleResult::Next
    }

    fn deny(&mut self, id: RuleId, terms: &OpenTerms, state: &mut WalkState) -> RuleResult {
        if !terms.rates.is_empty() {
            self.limit(id, terms, state);
            return RuleResult::Next;
        }
        if terms.is_unclear {
            return self.stub(id, "its condition", state);
        }
        match terms.present.as_slice() {
            [] => {}
            [(test, false)]
                if terms.only.is_none() && terms.except.is_empty() && state.skipped.is_empty() =>
            {
                let note = "a request without it gets 401";
                self.reader.mark(id, Fate::Changed, note);
                push_new(&mut state.outcome.require, *test);
                return RuleResult::Next;
            }
            _ => return self.stub(id, "its condition", state),
        }
        if let Some(only) = &terms.only {
            if !terms.except.is_empty() || !state.skipped.is_empty() {
                let note = "addresses that another list leaves out are denied too, if they are in this one";
                self.reader.mark(id, Fate::Changed, note);
            }
            for list in only {
                push_new(&mut state.outcome.deny, *list);
            }
            return RuleResult::Next;
        }
        let mut allowed = terms.except.clone();
        allowed.extend(&state.skipped);
        if allowed.is_empty() {
            return RuleResult::Decided(CellAction::Rule(id));
        }
        allowed.sort_unstable();
        allowed.dedup();
        push_new(&mut state.outcome.allow, allowed);
        RuleResult::Next
    }

    fn allow(&mut self, id: RuleId, terms: &OpenTerms, state: &mut WalkState) -> RuleResult {
        if terms.is_empty() {
            return RuleResult::EndPhase;
        }
        match &terms.only {
            Some(only) if terms.is_by_address() && terms.except.is_empty() => {
                for list in only {
                    push_new(&mut state.skipped, *list);
                }
            }
            _ => {
                let note = "the rules behind it hold for these requests too, which is stricter";
                self.reader.mark(id, Fate::Changed, note);
            }
        }
        RuleResult::Next
    }

    fn answer(&mut self, id: RuleId, terms: &OpenTerms, state: &mut WalkState) -> RuleResult {
        if terms.is_empty() && state.skipped.is_empty() {
            return RuleResult::Decided(CellAction::Rule(id));
        }
        if !terms.rates.is_empty() {
            self.limit(id, terms, state);
            return RuleResult::Next;
        }
        self.stub(id, "its condition", state)
    }

    fn change(
        &mut self,
        id: RuleId,
        rule: &SectionRule,
        terms: &OpenTerms,
        cell: &RequestCell<'_>,
        state: &mut WalkState,
    ) -> RuleResult {
        let is_whole = terms.is_empty() && state.skipped.is_empty();
        match &rule.action {
            RuleAction::Header(name, _) => {
                state.changed.add_field(Some(name));
                if !is_whole {
                    let note = "the field is removed from all requests, because its condition has no counterpart";
                    self.reader.mark(id, Fate::Changed, note);
                }
                state.outcome.headers.push((id.0, id.1, !is_whole));
            }
            RuleAction::Host(_) if is_whole => {
                state.changed.add_field(Some("host"));
                state.outcome.host = Some(id);
            }
            RuleAction::Path { paths, is_open, .. } if is_whole => {
                let paths = std::slice::from_ref(paths);
                let of = |index: usize| self.reader.table.paths.get(index).map(|(_, path)| path);
                let holds = paths.iter().all(|path| match (of(*path), of(cell.path)) {
                    (Some(path), Some(own)) => super::matching::includes(path, own),
                    _ => false,
                });
                match holds {
                    true if !state.changed.path => {
                        state.changed.path = true;
                        state.outcome.path = Some(id);
                    }
                    false if !is_open => {}
                    _ => return self.stub(id, "a changed path", state),
                }
            }
            _ => {
                state.changed.path = true;
                state.changed.add_field(Some("host"));
                return self.stub(id, "its condition", state);
            }
        }
        RuleResult::Next
    }

    fn track(
        &mut self,
        id: RuleId,
        rule: &SectionRule,
        (counter, key, table): (usize, &str, Option<&str>),
        terms: OpenTerms,
        state: &mut WalkState,
    ) -> RuleResult {
        let own = self.sections.get(id.0);
        let own_table = own.map_or("", |section| &section.name);
        let is_of_connections = matches!(rule.phase, RulePhase::Connection | RulePhase::Session);
        let has_proxy_header = own.is_some_and(|section| section.has_proxy_header);
        if has_proxy_header && is_of_connections {
            let note = "it counts the proxies that connect, before the header of the PROXY protocol names the client";
            self.reader.mark(id, Fate::Left, note);
        }
        let sample = parse_sample(key);
        let is_changed = sample
            .as_ref()
            .is_some_and(|sample| is_of_changed_field(sample, &state.changed));
        let is_unread = is_changed || (has_proxy_header && is_of_connections);
        if is_changed {
            let note = "a rule before it changes the field that it counts by, so it does not count what the client sends; write a limit by hand";
            self.reader.mark(id, Fate::Left, note);
        }
        // The first rule with a key that a request has is the only one that counts it by a counter.
        if let Some(slot) = state.counted.get_mut(counter) {
            self.reader.work += 1 + slot.len() as u64 + state.skipped.len() as u64;
            let mut whole = slot.iter().filter(|earlier| earlier.terms.is_empty());
            let has_earlier = whole.clone().next().is_some();
            if whole.any(|earlier| earlier.is_always) {
                return RuleResult::Next;
            }
            if has_earlier {
                let note = "it counts the requests that an earlier rule counts by another key too, which is stricter";
                self.reader.mark(id, Fate::Changed, note);
            }
            let mut terms = terms;
            terms.except.extend(&state.skipped);
            slot.push(TrackedRequests {
                rule: id,
                counted: TrackedKey {
                    table: table.unwrap_or(own_table).to_owned(),
                    // A key that cannot be read makes no limit.
                    key: if is_unread {
                        String::new()
                    } else {
                        key.to_owned()
                    },
                    is_of_connections,
                    is_proxy_address: state.changed.address,
                },
                is_always: sample.is_some_and(|sample| sample.is_always_there()),
                terms,
            });
        }
        RuleResult::Next
    }

    /// The backend that serves the requests of a cell.
    fn choose(
        &mut self,
        frontend: usize,
        cell: &RequestCell<'_>,
        state: &mut WalkState,
    ) -> Option<usize> {
        let choices = self
            .sections
            .get(frontend)
            .map_or(&[][..], |section| &section.choices);
        for (index, choice) in choices.iter().enumerate() {
            let id = (frontend, index, true);
            for terms in self
                .reader
                .open_terms(&choice.rule.condition, cell, &state.changed)
            {
                if terms.is_empty() {
                    return choice.target;
                }
                let target = choice.target.and_then(|target| self.sections.get(target));
                let is_refusal = target.is_none_or(|target| {
                    !target.has_servers
                        || target.rules.iter().any(|rule| {
                            matches!(rule.action, RuleAction::Deny(_) | RuleAction::Return { .. })
                                && rule.condition == super::action::always()
                        })
                });
                if !terms.rates.is_empty() && is_refusal {
                    self.limit(id, &terms, state);
                    continue;
                }
                if !terms.rates.is_empty() && target.is_none_or(RuleSection::is_restrictive) {
                    self.stub(id, "a backend with rules for clients above a rate", state);
                    continue;
                }
                if !terms.rates.is_empty() {
                    let note = "a backend for clients above a rate has no counterpart; write a limit, `throttle: soft` or `delay`";
                    self.reader.mark(id, Fate::Left, note);
                    continue;
                }
                if let Some(only) = terms
                    .only
                    .clone()
                    .filter(|_| terms.is_by_address() && terms.except.is_empty())
                {
                    let note =
                        "other addresses get 403 here; in HAProxy the next rule says where they go";
                    self.reader.mark(id, Fate::Changed, note);
                    push_new(&mut state.outcome.allow, only);
                    return choice.target;
                }
                if state.changed.path
                    || state.changed.host
                    || target.is_none_or(RuleSection::is_restrictive)
                {
                    self.stub(id, "its condition", state);
                    continue;
                }
                let note = "its condition has no counterpart, so these requests go where the next rule says";
                self.reader.mark(id, Fate::Left, note);
            }
        }
        None
    }
}

/// Whether an expression is of a header field, or a cookie, that a rule has changed.
fn is_of_changed_field(sample: &SampleExpression, changed: &ChangedParts) -> bool {
    let name = sample.name.trim_start_matches("req.");
    let field = match name.split(['_', '.']).next().unwrap_or(name) {
        "hdr" | "fhdr" | "shdr" => sample.argument(0).to_ascii_lowercase(),
        "cook" | "scook" => "cookie".to_owned(),
        _ if name.starts_with("base") || name.starts_with("url") => "host".to_owned(),
        _ => return false,
    };
    changed.any_field || field.is_empty() || changed.fields.contains(&field)
}

/// How it goes on behind a rule.
pub(super) enum RuleResult {
    Next,
    EndPhase,
    Decided(CellAction),
}

/// The outcome where `last` happens, unless an earlier rule may have refused the requests.
fn finish(state: WalkState, last: CellAction, is_denied: bool) -> CellOutcome {
    let mut outcome = state.outcome;
    if is_denied {
        // Nobody passes, so it does not matter who was denied before.
        outcome.deny.clear();
        outcome.allow.clear();
        outcome.require.clear();
    }
    outcome.action = match state.stub {
        Some(what) if !is_denied => CellAction::Stub(what),
        _ => last,
    };
    outcome
}

/// Adds an item that is not there yet.
pub(super) fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}
