//! Names that earlier versions accepted in the files, and what to write in their place. Nothing here accepts them: a
//! diagnostic about an unknown name shows the help.

/// A field that was removed.
struct FormerField {
    /// The name of its table, as in [`Table::name`](super::table::Table::name).
    table: &'static str,
    /// The name of the field in the files.
    name: &'static str,
    /// What to write in its place.
    help: &'static str,
}

const FORMER_FIELDS: &[FormerField] = &[FormerField {
    table: "a limit",
    name: "per",
    help: "remove it from a policy; in the gateway file write `routes: each`, or `routes: each-listed` for `routes: listed`",
}];

/// A word for a value that was replaced by another.
struct FormerWord {
    word: &'static str,
    /// The word that fields accept now.
    replacement: &'static str,
    /// What to write in its place, and why.
    help: &'static str,
}

const FORMER_WORDS: &[FormerWord] = &[FormerWord {
    word: "token-bucket",
    replacement: "gcra",
    help: "write `gcra`: both names stood for the same algorithm",
}];

/// The help for a field that the table had in an earlier version; `None` for any other name.
pub fn help_for_field(table: &str, name: &str) -> Option<&'static str> {
    let mut fields = FORMER_FIELDS.iter();
    let former = fields.find(|former| (former.table, former.name) == (table, name))?;
    Some(former.help)
}

/// The help for a former word, if its replacement is one of `accepted_words`, the words of the field.
pub fn help_for_word(
    word: &str,
    mut accepted_words: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let former = FORMER_WORDS.iter().find(|former| former.word == word)?;
    accepted_words
        .any(|accepted| accepted == former.replacement)
        .then_some(former.help)
}
