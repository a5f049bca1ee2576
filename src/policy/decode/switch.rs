//! Words that may stand in the place of a path: those that switch something on or off, and slips of others.

use super::super::collect::Cx;
use super::super::model::Located;
use crate::base::suggest::nearest;

/// Whether a word switches off. YAML 1.1 and other programs have several of them.
pub fn is_off(text: &str) -> bool {
    matches!(text, "off" | "false" | "no" | "none")
}

/// Whether a word switches on, as is usual.
pub fn is_on(text: &str) -> bool {
    matches!(text, "on" | "true" | "yes")
}

/// Reports a path that is one of these words: nobody means a file of that name.
pub fn no_switch(cx: &mut Cx, path: &Located<String>, help: &str) {
    if is_off(&path.value) || is_on(&path.value) {
        let message = format!("`{}` is neither a path nor a known word here", path.value);
        let help = format!("{help}; a file of that name is `./{}`", path.value);
        cx.error(path.place, message, Some(help));
    }
}

/// Reports a path that looks like a slip of one of the words that may stand in its place.
pub fn mistyped(cx: &mut Cx, path: &Located<String>, words: &[&'static str]) {
    if path.value.contains(['/', '.']) || words.contains(&path.value.as_str()) {
        return;
    }
    if let Some(word) = nearest(&path.value, words.iter().copied()) {
        let help = format!(
            "did you mean `{word}`? a file of that name is `./{}`",
            path.value
        );
        cx.error(
            path.place,
            format!("`{}` is neither a path nor a known word", path.value),
            Some(help),
        );
    }
}
