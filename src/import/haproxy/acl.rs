//! Conditions: named and anonymous ACLs, and how `if`, `unless`, `or` and `!` join them.

use std::rc::Rc;

use super::acl_test::{AclTable, AclTerm, AclTest, NamedAcls, RuleCondition};
use super::matching::read_test;
use super::syntax::ConfigLine;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of alternatives of a condition.
const MAX_ALTERNATIVES: usize = 64;

impl AclTable {
    /// Reads a line `acl NAME CRITERION …` into the ACLs of a section.
    pub fn read_acl(
        &mut self,
        line: &ConfigLine,
        named: &mut NamedAcls,
        report: &mut ImportReport,
    ) {
        let (test, differences) = match line.has_variable || line.is_conditional {
            true => (AclTest::Unknown(super::notes::VARIABLE.into()), Vec::new()),
            false => read_test(line.rest(2), self),
        };
        let (at, text) = (line.origin, &line.text);
        match &test {
            AclTest::Unknown(reason) => report.left(at, Concern::Routing, text, reason),
            // Reported where a rule uses it.
            _ => report.taken(at, Concern::Routing, text, ""),
        }
        for difference in differences {
            report.changed(at, Concern::Routing, text, &difference);
        }
        let index = self.add(test);
        let tests = named.entry(line.word(1).to_owned()).or_default();
        Rc::make_mut(tests).push(index);
    }

    /// Reads the condition at the end of a line, from its `if` or `unless` on. Without one it holds always.
    pub fn read_condition(
        &mut self,
        line: &ConfigLine,
        start: usize,
        named: &NamedAcls,
        report: &mut ImportReport,
    ) -> RuleCondition {
        let words = line.rest(start);
        if line.has_variable || line.is_conditional {
            let test = self.add(AclTest::Unknown(super::notes::VARIABLE.into()));
            return vec![vec![AclTerm {
                tests: vec![test].into(),
                is_negated: false,
            }]];
        }
        let Some(keyword) = words.first() else {
            return vec![Vec::new()];
        };
        let alternatives = self.read_terms(line, words.get(1..).unwrap_or_default(), named, report);
        let unknown = |table: &mut AclTable, reason: &str| {
            let test = table.add(AclTest::Unknown(reason.into()));
            vec![vec![AclTerm {
                tests: vec![test].into(),
                is_negated: false,
            }]]
        };
        match (keyword.as_str(), alternatives) {
            (_, None) => unknown(self, "its condition is not written as HAProxy reads it"),
            ("if", Some(alternatives)) if alternatives.len() <= MAX_ALTERNATIVES => alternatives,
            ("unless", Some(alternatives)) => {
                negated(&alternatives).unwrap_or_else(|| unknown(self, "its condition is too long"))
            }
            ("if", _) => unknown(self, "its condition is too long"),
            _ => unknown(self, "a word of it is not known here"),
        }
    }

    fn read_terms(
        &mut self,
        line: &ConfigLine,
        words: &[String],
        named: &NamedAcls,
        report: &mut ImportReport,
    ) -> Option<RuleCondition> {
        let mut alternatives = vec![Vec::new()];
        let mut is_negated = false;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut word = word.as_str();
            if word == "or" || word == "||" {
                if is_negated {
                    return None;
                }
                alternatives.push(Vec::new());
                continue;
            }
            while let Some(rest) = word.strip_prefix('!') {
                is_negated = !is_negated;
                word = rest;
            }
            if word.is_empty() {
                continue;
            }
            let tests = match word {
                "{" => {
                    let inner: Vec<String> = words
                        .by_ref()
                        .take_while(|word| *word != "}")
                        .cloned()
                        .collect();
                    vec![self.read_anonymous(line, &inner, report)].into()
                }
                name => match named.get(name) {
                    Some(tests) => Rc::clone(tests),
                    None => vec![self.add(predefined(name))].into(),
                },
            };
            alternatives.last_mut()?.push(AclTerm { tests, is_negated });
            is_negated = false;
        }
        let is_whole = !is_negated && alternatives.iter().all(|terms| !terms.is_empty());
        is_whole.then_some(alternatives)
    }

    fn read_anonymous(
        &mut self,
        line: &ConfigLine,
        words: &[String],
        report: &mut ImportReport,
    ) -> usize {
        let (mut test, differences) = read_test(words, self);
        if let AclTest::Address(list) = test
            && self.lists.get(list).is_some_and(|list| list.is_empty())
        {
            test = AclTest::Constant(false);
        }
        for difference in differences {
            report.changed(line.origin, Concern::Routing, &line.text, &difference);
        }
        self.add(test)
    }
}

/// What does not hold where one of the alternatives does; `None` if it has too many alternatives.
fn negated(alternatives: &RuleCondition) -> Option<RuleCondition> {
    let mut out: RuleCondition = vec![Vec::new()];
    for terms in alternatives {
        let length = out.len().checked_mul(terms.len())?;
        if length > MAX_ALTERNATIVES {
            return None;
        }
        let mut next = Vec::with_capacity(length);
        for begun in &out {
            for term in terms {
                let mut longer = begun.clone();
                longer.push(AclTerm {
                    tests: Rc::clone(&term.tests),
                    is_negated: !term.is_negated,
                });
                next.push(longer);
            }
        }
        out = next;
    }
    Some(out)
}

/// ACLs that every configuration has.
fn predefined(name: &str) -> AclTest {
    let methods = |methods: &[&str]| {
        AclTest::Method(methods.iter().map(|method| (*method).to_owned()).collect())
    };
    match name {
        "TRUE" | "HTTP" => AclTest::Constant(true),
        "FALSE" => AclTest::Constant(false),
        "METH_GET" => methods(&["GET", "HEAD"]),
        "METH_CONNECT" | "METH_DELETE" | "METH_HEAD" | "METH_OPTIONS" | "METH_POST"
        | "METH_PUT" | "METH_TRACE" => methods(&[name.trim_start_matches("METH_")]),
        _ => AclTest::Unknown("no ACL of this name is there".into()),
    }
}
