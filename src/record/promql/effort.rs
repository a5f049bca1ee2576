//! Bounds of the cost of a query: its work, and the labels that it writes.

use super::error::Error;
use super::source::SampleSource;

/// Most work of a query. Looking at one sample of a range is one unit.
const WORK: usize = 2_000_000_000;
/// Work between two checks whether a client still waits: a few milliseconds.
const UNCHECKED: usize = 1_000_000;
/// Most bytes of labels that one step writes.
const TEXT: usize = 2 << 20;
/// Bytes that a written label counts beside its text.
const LABEL: usize = 64;

/// Work of one number of a series. It is more than that of a sample, for an operator looks at labels too.
pub const POINT: usize = 64;

/// See the module.
pub struct Effort<'a> {
    source: &'a dyn SampleSource,
    work: usize,
    unchecked: usize,
    text: usize,
}

impl<'a> Effort<'a> {
    /// The budget of a query about samples of `source`.
    pub fn new(source: &'a dyn SampleSource) -> Effort<'a> {
        Effort {
            source,
            work: WORK,
            unchecked: 0,
            text: TEXT,
        }
    }

    /// Begins a step. The labels of the step before are dropped.
    pub fn step(&mut self) -> Result<(), Error> {
        self.text = TEXT;
        self.source.check_deadline()
    }

    /// Charges work.
    pub fn work(&mut self, units: usize) -> Result<(), Error> {
        self.work = self.work.checked_sub(units).ok_or_else(|| {
            let why = format!(
                "the query looks at more than {WORK} samples, where a series in a step counts for {POINT} with each operator: ask for fewer series, a shorter range or a longer step"
            );
            Error::execution(why)
        })?;
        self.unchecked += units;
        if self.unchecked >= UNCHECKED {
            self.unchecked = 0;
            self.source.check_deadline()?;
        }
        Ok(())
    }

    /// Charges a label that will be written.
    pub fn write(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.text.checked_sub(bytes.saturating_add(LABEL));
        self.text = left.ok_or_else(|| {
            let why = format!("the query writes labels of more than {TEXT} bytes: ask for fewer series, or write shorter ones");
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
    struct CountingSource(Cell<usize>);

    impl SampleSource for CountingSource {
        fn select(&self, _: &[Matcher], _: (i64, i64), _: usize) -> Result<SelectedSeries, Error> {
            Ok(SelectedSeries::default())
        }

        fn check_deadline(&self) -> Result<(), Error> {
            self.0.set(self.0.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn it_ends() {
        let source = CountingSource(Cell::new(0));
        let mut effort = Effort::new(&source);
        for _ in 0..20 {
            effort.work(UNCHECKED / 2).unwrap();
        }
        assert_eq!(source.0.get(), 10);
        let error = effort.work(WORK).unwrap_err().to_string();
        assert!(error.contains("looks at more than 2000000000"), "{error}");
        effort.write(TEXT - 2 * LABEL).unwrap();
        effort.write(0).unwrap();
        let error = effort.write(0).unwrap_err().to_string();
        assert!(
            error.contains("labels of more than 2097152 bytes"),
            "{error}"
        );
        effort.step().unwrap();
        effort.write(TEXT - LABEL).unwrap();
        effort.write(usize::MAX).unwrap_err();
    }
}
