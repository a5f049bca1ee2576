//! Bounds how much an import reads again: parts that many routes share are read for each of them.

/// Maximum number of values of the input that are read, with those that are read again.
const MAX_WORK: usize = 400_000;
/// Maximum number of values that are written: networks, servers, hosts, paths, and pieces of longer texts.
const MAX_WRITTEN: usize = 60_000;

/// What is left of the bounds of an import.
#[derive(Debug)]
pub struct WorkBudget {
    work: usize,
    written: usize,
}

/// The input would take too much work, or become too much text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuchWork;

impl WorkBudget {
    /// The whole budget of an import.
    pub fn new() -> WorkBudget {
        WorkBudget {
            work: MAX_WORK,
            written: MAX_WRITTEN,
        }
    }

    /// Takes the work of reading so many values.
    ///
    /// # Errors
    ///
    /// That much is not left.
    pub fn read(&mut self, values: usize) -> Result<(), TooMuchWork> {
        self.work = self.work.checked_sub(values).ok_or(TooMuchWork)?;
        Ok(())
    }

    /// Takes the room of writing so many values.
    ///
    /// # Errors
    ///
    /// That much is not left.
    pub fn write(&mut self, values: usize) -> Result<(), TooMuchWork> {
        self.written = self.written.checked_sub(values).ok_or(TooMuchWork)?;
        Ok(())
    }
}
