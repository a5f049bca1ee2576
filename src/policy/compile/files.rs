//! Reads the files that the gateway file names, all in the same way: see [`text`]. No message about a file of secrets
//! shows its content. Nor does one about a missing file show its name: that may be the secret itself.

use std::path::Path;

use super::super::collect::Cx;
use super::super::model::Located;
use super::super::source::Files;
use super::super::text::{self, TextError};
use super::super::tree::SourcePlace;

/// Most bytes of a file with keys.
const MOST: usize = 1024 * 1024;

/// The bytes of a file that holds no secret; what is wrong is on record.
pub(super) fn named_file(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<Vec<u8>> {
    match files.read(&base.join(&name.value), MOST) {
        Ok(bytes) => without_mark(cx, base, name, bytes),
        Err(reason) => {
            let message = format!("cannot read {what} `{}`: {reason}", name.value);
            let help = "paths are relative to the folder of the gateway file";
            cx.error(name.place, message, Some(help.into()));
            None
        }
    }
}

/// The bytes of a file that holds a secret; what is wrong is on record.
pub(super) fn hidden_file(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<Vec<u8>> {
    match files.read(&base.join(&name.value), MOST) {
        Ok(bytes) => without_mark(cx, base, name, bytes),
        Err(reason) => {
            cx.hide(name.place);
            let message = format!("cannot read the file of {what}: {reason}");
            let help = "name a file, relative to the folder of the gateway file; the secret itself does not belong here";
            cx.error(name.place, message, Some(help.into()));
            None
        }
    }
}

/// The bytes as the reader of all files leaves them; what is wrong is on record.
fn without_mark(
    cx: &mut Cx,
    base: &Path,
    name: &Located<String>,
    bytes: Vec<u8>,
) -> Option<Vec<u8>> {
    let read = text::bytes(bytes);
    read.map_err(|wrong| report_text_error(cx, base, name, wrong))
        .ok()
}

/// The text of a file that holds secrets; what is wrong is on record.
pub(super) fn hidden_text(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<String> {
    let bytes = hidden_file(cx, files, base, name, what)?;
    let read = text::text(bytes);
    read.map_err(|wrong| report_text_error(cx, base, name, wrong))
        .ok()
}

/// The one secret of a file; what is wrong is on record.
pub(super) fn named_secret(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    name: &Located<String>,
    what: &str,
) -> Option<String> {
    let text = hidden_text(cx, files, base, name, what)?;
    secret_of(cx, base, name, &text)
}

/// The one secret of a text that was read; what is wrong is on record.
pub(super) fn secret_of(
    cx: &mut Cx,
    base: &Path,
    name: &Located<String>,
    text: &str,
) -> Option<String> {
    let read = text::secret(text).map(str::to_owned);
    read.map_err(|wrong| report_text_error(cx, base, name, wrong))
        .ok()
}

fn report_text_error(cx: &mut Cx, base: &Path, name: &Located<String>, wrong: TextError) {
    let path = base.join(&name.value);
    let place = SourcePlace {
        file: cx.sources.add_hidden(&path.display().to_string()),
        line: wrong.line,
        column: 1,
        width: 1,
        more: 0,
    };
    cx.error(place, wrong.message, Some(wrong.help.into()));
}
