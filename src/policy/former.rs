//! Spellings that earlier versions took, and what to write in their place.

/// Fields, with the names of their tables.
const FIELDS: &[(&str, &str, &str)] = &[(
    "a limit",
    "per",
    "remove it from a policy; in the gateway file write `routes: each`, or `routes: each-listed` for `routes: listed`",
)];

/// Words for values, with the new ones.
const WORDS: &[(&str, &str, &str)] = &[(
    "token-bucket",
    "gcra",
    "write `gcra`: both names stood for the same algorithm",
)];

/// What to write in place of a field of a table.
pub fn field(table: &str, name: &str) -> Option<&'static str> {
    let mut all = FIELDS.iter();
    let former = all.find(|(of, field, _)| (*of, *field) == (table, name))?;
    Some(former.2)
}

/// What to write in place of a word, where `new` is among the words of the field.
pub fn word(text: &str, mut new: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let former = WORDS.iter().find(|(word, _, _)| *word == text)?;
    new.any(|word| word == former.1).then_some(former.2)
}
