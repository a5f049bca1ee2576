//! Words in fields that accept a word or a path: words that switch something on or off, and paths that look like a
//! mistyped word. A file with such a name must be written as `./off`.

use super::super::context::LoadContext;
use super::super::tree::Located;
use crate::base::suggest::nearest_word;

/// Whether a word switches something off. YAML 1.1 and other programs have several such words.
pub fn is_off(text: &str) -> bool {
    matches!(text, "off" | "false" | "no" | "none")
}

/// Whether a word switches something on.
pub fn is_on(text: &str) -> bool {
    matches!(text, "on" | "true" | "yes")
}

/// Reports a path that is a word for on or off, because users hardly mean a file of that name. `help` says what to
/// write in place of the word.
pub fn report_switch_word(cx: &mut LoadContext, path: &Located<String>, help: &str) {
    if is_off(&path.value) || is_on(&path.value) {
        let message = format!("`{}` is neither a path nor a known word here", path.value);
        let help = format!("{help}; a file of that name is `./{}`", path.value);
        cx.error(path.location, message, Some(help));
    }
}

/// Reports a path that is probably a mistyped one of `words`, which the field accepts beside a path. A path with a
/// slash or a dot is not reported.
pub fn report_mistyped_word(cx: &mut LoadContext, path: &Located<String>, words: &[&'static str]) {
    if path.value.contains(['/', '.']) || words.contains(&path.value.as_str()) {
        return;
    }
    if let Some(word) = nearest_word(&path.value, words.iter().copied()) {
        let help = format!(
            "did you mean `{word}`? a file of that name is `./{}`",
            path.value
        );
        cx.error(
            path.location,
            format!("`{}` is neither a path nor a known word", path.value),
            Some(help),
        );
    }
}
