//! `label_join` and `label_replace`, which write labels. The labels that they write, and the matching of patterns, are
//! charged to the budget of the query.

use std::rc::Rc;

use regex_lite::Regex;

use super::{Error, Evaluator, VectorElement};
use crate::record::promql::labels::{compile_pattern, is_label_name};

impl Evaluator<'_> {
    /// Applies `label_join`. `texts` are the target label, the separator, and the source labels. An empty result
    /// removes the target label. Fails if the target is no name of a label, or if the budget is exceeded.
    pub(super) fn join_labels(
        &mut self,
        elements: Vec<VectorElement>,
        texts: &[&str],
    ) -> Result<Vec<VectorElement>, Error> {
        let [target, separator, sources @ ..] = texts else {
            // The parser has checked the number of texts.
            return Ok(elements);
        };
        if !is_label_name(target) {
            let why = format!("invalid destination label name in label_join(): {target}");
            return Err(Error::execution(why));
        }
        let mut joined_elements = Vec::with_capacity(elements.len());
        for element in elements {
            let values: Vec<_> = sources
                .iter()
                .map(|name| element.labels.get(name))
                .collect();
            let value_bytes: usize = values.iter().map(|value| value.len()).sum();
            let separator_bytes = separator.len() * values.len();
            self.budget
                .charge_label(target.len() + value_bytes + separator_bytes)?;
            joined_elements.push(VectorElement {
                labels: element.labels.with(target, &values.join(separator)),
                value: element.value,
            });
        }
        Ok(joined_elements)
    }

    /// Applies `label_replace`. `texts` are the target label, the replacement, the source label, and the pattern.
    /// Series whose value does not match stay as they are. An empty result removes the target label.
    ///
    /// Fails if the target is no name of a label, or if the pattern is refused ([`compile_pattern`]). Fails also if the
    /// budget is exceeded or the deadline has passed.
    pub(super) fn replace_labels(
        &mut self,
        elements: Vec<VectorElement>,
        texts: &[&str],
    ) -> Result<Vec<VectorElement>, Error> {
        let [target, replacement, source, pattern] = texts else {
            // The parser has checked the number of texts.
            return Ok(elements);
        };
        if !is_label_name(target) {
            let why = format!("invalid destination label name in label_replace(): {target}");
            return Err(Error::execution(why));
        }
        let compiled = self.compiled_pattern(pattern)?;
        let reference_count = replacement.matches('$').count();
        let mut replaced_elements = Vec::with_capacity(elements.len());
        for mut element in elements {
            let value = element.labels.get(source);
            // The time of a match grows with the product of both lengths.
            self.budget.charge_work(pattern.len() * value.len())?;
            if let Some(captures) = compiled.captures(value) {
                // Each `$` may insert the whole value.
                let max_bytes = replacement.len() + reference_count * value.len();
                self.budget.charge_label(target.len() + max_bytes)?;
                let mut expanded = String::new();
                captures.expand(replacement, &mut expanded);
                element.labels = element.labels.with(target, &expanded);
            }
            replaced_elements.push(element);
        }
        Ok(replaced_elements)
    }

    /// Returns a compiled pattern. It is compiled once for all steps. Fails if it is invalid, too large, or has too
    /// many groups.
    fn compiled_pattern(&mut self, text: &str) -> Result<Rc<Regex>, Error> {
        if let Some(compiled) = self.patterns.get(text) {
            return Ok(compiled.clone());
        }
        let compiled = compile_pattern(text).map_err(|_| {
            let why = format!("invalid regular expression in label_replace(): {text}");
            Error::execution(why)
        })?;
        let compiled = Rc::new(compiled);
        self.patterns.insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }
}
