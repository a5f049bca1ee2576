//! The budget of a query: it bounds the work of the evaluation and the labels that it writes, and checks the deadline.
//!
//! The evaluator charges its work here before or right after it is done. Bounds of samples and results are in
//! `limits.rs`.

use super::error::Error;
use super::source::SampleSource;

/// The most units of work of a query, some seconds of one core. Reading one sample of a range takes one unit.
const MAX_WORK: usize = 2_000_000_000;
/// Units of work between two checks of the deadline: a few milliseconds.
const DEADLINE_CHECK_WORK: usize = 1_000_000;
/// The most bytes of labels that one step may write: 2 MiB. They are in memory until the next step.
const MAX_STEP_LABEL_BYTES: usize = 2 << 20;
/// Bytes that are charged for a written label beside its text, for the pointers and counts that memory holds for it.
const LABEL_OVERHEAD_BYTES: usize = 64;

/// Units of work for one element of a vector. It is more than for a sample, because an operator compares labels too.
pub const ELEMENT_WORK: usize = 64;

/// The remaining budget of a query.
pub struct QueryBudget<'a> {
    source: &'a dyn SampleSource,
    remaining_work: usize,
    /// Work since the deadline was checked last.
    unchecked_work: usize,
    /// Bytes of labels that the current step may still write.
    remaining_label_bytes: usize,
}

impl<'a> QueryBudget<'a> {
    /// Makes the whole budget of a query. `source` says when its deadline has passed.
    pub fn new(source: &'a dyn SampleSource) -> QueryBudget<'a> {
        QueryBudget {
            source,
            remaining_work: MAX_WORK,
            unchecked_work: 0,
            remaining_label_bytes: MAX_STEP_LABEL_BYTES,
        }
    }

    /// Begins a step: the labels of the step before no longer count.
    ///
    /// # Errors
    ///
    /// Fails if the deadline has passed.
    pub fn begin_step(&mut self) -> Result<(), Error> {
        self.remaining_label_bytes = MAX_STEP_LABEL_BYTES;
        self.source.check_deadline()
    }

    /// Charges units of work.
    ///
    /// # Errors
    ///
    /// Fails if the work exceeds the budget, or if the deadline has passed.
    pub fn charge_work(&mut self, units: usize) -> Result<(), Error> {
        self.remaining_work = self.remaining_work.checked_sub(units).ok_or_else(|| {
            let why = format!(
                "the query looks at more than {MAX_WORK} samples, where a series in a step counts for {ELEMENT_WORK} with each operator: ask for fewer series, a shorter range or a longer step"
            );
            Error::execution(why)
        })?;
        self.unchecked_work += units;
        if self.unchecked_work >= DEADLINE_CHECK_WORK {
            self.unchecked_work = 0;
            self.source.check_deadline()?;
        }
        Ok(())
    }

    /// Charges a label of this many bytes that is about to be written.
    ///
    /// # Errors
    ///
    /// Fails if the labels of this step exceed the budget.
    pub fn charge_label(&mut self, bytes: usize) -> Result<(), Error> {
        let charged = bytes.saturating_add(LABEL_OVERHEAD_BYTES);
        let remaining = self.remaining_label_bytes.checked_sub(charged);
        self.remaining_label_bytes = remaining.ok_or_else(|| {
            let why = format!("the query writes labels of more than {MAX_STEP_LABEL_BYTES} bytes: ask for fewer series, or write shorter ones");
            Error::execution(why)
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::promql::labels::Matcher;
    use crate::record::promql::source::SelectedSeries;
    use std::cell::Cell;

    /// A source without samples, which counts the checks of its deadline.
    struct CountingSource {
        check_count: Cell<usize>,
    }

    impl SampleSource for CountingSource {
        fn select(&self, _: &[Matcher], _: (i64, i64), _: usize) -> Result<SelectedSeries, Error> {
            Ok(SelectedSeries::default())
        }

        fn check_deadline(&self) -> Result<(), Error> {
            self.check_count.set(self.check_count.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn work_and_labels_are_bounded() {
        let source = CountingSource {
            check_count: Cell::new(0),
        };
        let mut budget = QueryBudget::new(&source);
        for _ in 0..20 {
            budget.charge_work(DEADLINE_CHECK_WORK / 2).unwrap();
        }
        assert_eq!(source.check_count.get(), 10);
        let error = budget.charge_work(MAX_WORK).unwrap_err().to_string();
        assert!(error.contains("looks at more than 2000000000"), "{error}");
        budget
            .charge_label(MAX_STEP_LABEL_BYTES - 2 * LABEL_OVERHEAD_BYTES)
            .unwrap();
        budget.charge_label(0).unwrap();
        let error = budget.charge_label(0).unwrap_err().to_string();
        assert!(
            error.contains("labels of more than 2097152 bytes"),
            "{error}"
        );
        budget.begin_step().unwrap();
        budget
            .charge_label(MAX_STEP_LABEL_BYTES - LABEL_OVERHEAD_BYTES)
            .unwrap();
        budget.charge_label(usize::MAX).unwrap_err();
    }
}
