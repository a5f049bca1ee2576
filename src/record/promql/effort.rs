//! What answering a query may cost: work, and what it writes into labels.

use super::{Error, Source};

/// Work of a query: of one unit is a sample of a span that is looked at.
const WORK: usize = 2_000_000_000;
/// Work between two questions whether the answer is still wanted: few milliseconds.
const UNASKED: usize = 1_000_000;
/// Bytes of labels that are written in one step.
const TEXT: usize = 2 << 20;
/// What a written label takes beside its letters.
const LABEL: usize = 64;

/// Work of one number of a series: an operator looks at labels too.
pub const POINT: usize = 64;

/// See the module.
pub struct Effort<'a> {
    source: &'a dyn Source,
    work: usize,
    unasked: usize,
    text: usize,
}

impl<'a> Effort<'a> {
    /// All of a query that is about samples of `source`.
    pub fn new(source: &'a dyn Source) -> Effort<'a> {
        Effort {
            source,
            work: WORK,
            unasked: 0,
            text: TEXT,
        }
    }

    /// Begins a step: the labels of the one before are gone.
    pub fn step(&mut self) -> Result<(), Error> {
        self.text = TEXT;
        self.source.wanted()
    }

    /// Charges work.
    pub fn work(&mut self, units: usize) -> Result<(), Error> {
        self.work = self.work.checked_sub(units).ok_or_else(|| {
            let why = format!(
                "the query looks at more than {WORK} samples, where a series in a step counts for {POINT} with each operator: ask for fewer series, a shorter range or a longer step"
            );
            Error::execution(why)
        })?;
        self.unasked += units;
        if self.unasked >= UNASKED {
            self.unasked = 0;
            self.source.wanted()?;
        }
        Ok(())
    }

    /// Charges a label that is to be written.
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
    use crate::record::promql::Found;
    use crate::record::promql::labels::Matcher;
    use std::cell::Cell;

    /// Without samples; counts how often it is asked whether they are wanted.
    struct Asked(Cell<usize>);

    impl Source for Asked {
        fn select(&self, _: &[Matcher], _: (i64, i64), _: usize) -> Result<Found, Error> {
            Ok(Found::default())
        }

        fn wanted(&self) -> Result<(), Error> {
            self.0.set(self.0.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn it_ends() {
        let source = Asked(Cell::new(0));
        let mut effort = Effort::new(&source);
        for _ in 0..20 {
            effort.work(UNASKED / 2).unwrap();
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
