//! The limits of rules that refuse requests where a counter of a table is above a number.

use super::acl_test::AclTest;
use super::action::{RuleAction, RulePhase};
use super::eval::{MAX_WORK, OpenTerms, RuleId};
use super::table::{TableLimitKey, TrackedKey};
use super::walk::{RuleWalker, TrackedRequests, WalkState, push_new};
use crate::import::model::ClientsDraft;
use crate::import::nginx::variables::network_text;
use crate::import::report::Fate;

impl RuleWalker<'_, '_> {
    /// Makes a limit of a rule that refuses where a counter is above a number.
    pub(super) fn limit(&mut self, id: RuleId, terms: &OpenTerms, state: &mut WalkState) {
        if terms.is_below {
            self.stub(id, "a rule that refuses below a number", state);
            return;
        }
        let [test] = terms.rates.as_slice() else {
            self.stub(
                id,
                "a rule that refuses where several counters are above numbers",
                state,
            );
            return;
        };
        let Some(test) = self.reader.rate(*test) else {
            return;
        };
        if is_general_counter(&test.what) || test.most.is_none() {
            self.stub(id, "a comparison of a counter", state);
            return;
        }
        let own_table = self.sections.get(id.0).map_or("", |section| &section.name);
        let tracked = match test.counter {
            Some(counter) => state.counted.get(counter).cloned().unwrap_or_default(),
            None => self
                .tracked_by_address(test.table.as_deref().unwrap_or(own_table))
                .into_iter()
                .collect(),
        };
        let is_of_table = |tracked: &TrackedRequests| {
            test.table
                .as_ref()
                .is_none_or(|table| *table == tracked.counted.table)
        };
        let tracked: Vec<TrackedRequests> = tracked.into_iter().filter(is_of_table).collect();
        if tracked.is_empty() {
            let note = "no rule before it counts these requests in this table, as far as its condition is known";
            return self.reader.mark(id, Fate::Left, note);
        }
        if terms.is_unclear && !terms.is_unclear_negated {
            self.stub(id, "its condition", state);
            return;
        }
        let most = test.most.unwrap_or(0);
        if most == 0 && !matches!(test.what.as_str(), "http_err_rate" | "http_fail_rate") {
            self.stub(id, "a rule that refuses the first request", state);
            return;
        }
        for tracked in tracked {
            self.limit_of(id, terms, (&test.what, most), &tracked, state);
        }
    }

    /// Makes the limit of the requests that one rule counts.
    fn limit_of(
        &mut self,
        id: RuleId,
        terms: &OpenTerms,
        (what, most): (&str, u64),
        tracked: &TrackedRequests,
        state: &mut WalkState,
    ) {
        let other = &tracked.terms;
        let mut is_wider = terms.is_unclear || other.is_unclear || !other.rates.is_empty();
        is_wider |= terms.only.is_some() && other.only.is_some();
        let mut present = terms.present.clone();
        present.extend(&other.present);
        present.sort_unstable();
        present.dedup();
        self.reader.work += (present.len() * present.len() + state.outcome.limits.len()) as u64;
        if self.reader.work > MAX_WORK {
            return;
        }
        let mut wanted: Vec<(usize, bool)> = Vec::new();
        for (test, is_present) in present {
            let same = wanted
                .iter()
                .find(|(other, _)| self.is_same_place(*other, test));
            match same {
                None => wanted.push((test, is_present)),
                Some((_, other)) if *other == is_present => {}
                Some(_) => {
                    let note = "of requests that a rule counts only with a field, and this one refuses only without it, there are none";
                    return self.reader.mark(id, Fate::Changed, note);
                }
            }
        }
        let present = wanted;
        let mut exempt: Vec<usize> = [&terms.except, &other.except, &state.skipped]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        self.reader.work += exempt.len() as u64;
        exempt.sort_unstable();
        exempt.dedup();
        let key = TableLimitKey {
            table: tracked.counted.table.clone(),
            key: tracked.counted.key.clone(),
            what: what.to_owned(),
            most,
            only: terms
                .only
                .clone()
                .or_else(|| other.only.clone())
                .unwrap_or_default(),
            present,
            exempt,
        };
        let made = match self.tables.made(&key) {
            Some(made) => made.clone(),
            None => {
                let clients = self.clients(&key);
                let exempt = self.networks(&key.exempt);
                self.tables
                    .make(&key, &tracked.counted, (clients, exempt), self.draft)
            }
        };
        match made {
            // Requests that the rule may refuse must not pass without it.
            Err(reason) => {
                self.reader.mark(id, Fate::Left, reason);
                state
                    .stub
                    .get_or_insert_with(|| "a comparison of a counter".into());
            }
            Ok(made) => {
                self.reader.used.insert(tracked.rule);
                self.reader.mark(id, Fate::Changed, made.note);
                for note in made.key_notes {
                    self.reader.mark(tracked.rule, Fate::Changed, note);
                }
                if is_wider {
                    let note = "it holds for more requests than in HAProxy, because a part of a condition has no counterpart";
                    self.reader.mark(id, Fate::Changed, note);
                }
                push_new(&mut state.outcome.limits, made.limit);
            }
        }
    }

    /// Whether two tests look for the same thing.
    fn is_same_place(&self, test: usize, other: usize) -> bool {
        let place = |test: usize| match self.reader.table.tests.get(test) {
            Some(AclTest::Present(place)) => Some(place),
            _ => None,
        };
        test == other || place(test).is_some() && place(test) == place(other)
    }

    /// The clients that a limit is for.
    fn clients(&mut self, key: &TableLimitKey) -> ClientsDraft {
        let mut clients: ClientsDraft = Vec::new();
        if !key.only.is_empty() {
            clients.push(("ip".into(), self.networks(&key.only)));
        }
        for (test, is_present) in &key.present {
            let value = if *is_present { "present" } else { "absent" };
            if let Some(word) = self.presence_word(*test)
                && !clients.iter().any(|(other, _)| *other == word)
            {
                clients.push((word, vec![value.into()]));
            }
        }
        clients
    }

    /// The word by which `for` names what a test looks for.
    fn presence_word(&mut self, test: usize) -> Option<String> {
        match self.reader.table.tests.get(test) {
            Some(AclTest::Present(place)) => self.draft.identities.word(place),
            _ => None,
        }
    }

    /// The rule of any section that counts addresses in a table.
    fn tracked_by_address(&mut self, table: &str) -> Option<TrackedRequests> {
        let count = self.sections.iter().map(|section| section.rules.len() + 1);
        self.reader.work += count.sum::<usize>() as u64;
        if self.reader.work > MAX_WORK {
            return None;
        }
        let rules = self
            .sections
            .iter()
            .enumerate()
            .flat_map(|(number, section)| {
                let rules = section.rules.iter().enumerate();
                rules.map(move |(index, rule)| ((number, index, false), section, rule))
            });
        for (id, section, rule) in rules {
            if let RuleAction::Track {
                key, table: own, ..
            } = &rule.action
                && key == "src"
                && own.as_ref().unwrap_or(&section.name) == table
            {
                return Some(TrackedRequests {
                    rule: id,
                    counted: TrackedKey {
                        table: table.to_owned(),
                        key: key.clone(),
                        is_of_connections: matches!(
                            rule.phase,
                            RulePhase::Connection | RulePhase::Session
                        ),
                        is_proxy_address: false,
                    },
                    is_always: true,
                    terms: OpenTerms::default(),
                });
            }
        }
        None
    }

    /// The networks of lists, as policies write them.
    fn networks(&self, lists: &[usize]) -> Vec<String> {
        let lists = lists
            .iter()
            .filter_map(|list| self.reader.table.lists.get(*list));
        let mut networks: Vec<String> = lists
            .flatten()
            .map(|network| network_text(*network))
            .collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }
}

/// Whether a counter is one that rules of the configuration set, such as a mark of banned clients.
fn is_general_counter(what: &str) -> bool {
    what.contains("gpc") || what.contains("gpt")
}
