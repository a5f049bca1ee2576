//! Spellings that earlier versions took, and what to write in their place.

/// Fields, with the names of their tables.
const FIELDS: &[(&str, &str, &str)] = &[(
    "a limit",
    "per",
    "write `routes: each`, or `routes: each-listed` where `routes: listed` stands beside it",
)];

/// Words for values.
const WORDS: &[(&str, &str)] = &[(
    "token-bucket",
    "write `gcra`: both names stood for the same algorithm",
)];

/// What to write in place of a field of a table.
pub fn field(table: &str, name: &str) -> Option<&'static str> {
    let mut all = FIELDS.iter();
    let former = all.find(|(of, field, _)| (*of, *field) == (table, name))?;
    Some(former.2)
}

/// What to write in place of a word.
pub fn word(text: &str) -> Option<&'static str> {
    let former = WORDS.iter().find(|(word, _)| *word == text)?;
    Some(former.1)
}
