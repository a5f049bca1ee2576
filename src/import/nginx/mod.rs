//! Imports `nginx.conf`.

use super::error::ImportError;
use super::files::SourceFile;
use super::model::ImportDraft;
use super::report::ImportReport;

mod syntax;

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is not the syntax of nginx.
pub fn read(
    files: &[SourceFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    for (index, file) in files.iter().enumerate() {
        for directive in syntax::parse(index, file)? {
            let note = "it is not read yet";
            report.left(
                directive.origin,
                super::Concern::Other,
                &directive.text(),
                note,
            );
        }
    }
    let _ = draft;
    Ok(())
}
