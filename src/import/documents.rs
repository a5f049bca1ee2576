//! Reads inputs in YAML or JSON: one or several documents, as trees whose values know their lines.

use std::collections::HashSet;

use super::error::ImportError;
use super::files::{InputFile, MAX_NESTING};
use super::report::{Origin, printable};
use crate::policy::yaml::{MapKey, Node, YamlValue, parse};

/// Maximum number of documents of a file.
const MAX_DOCUMENTS: usize = 2_000;

/// A value of a document, and the file that it is in.
#[derive(Clone, Copy, Debug)]
pub struct InputValue<'n> {
    node: &'n Node,
    file: usize,
    /// The number of lines before its document.
    lines_before: u32,
}

/// One document of a file.
#[derive(Debug)]
pub struct InputDocument {
    root: Node,
    file: usize,
    lines_before: u32,
}

impl InputDocument {
    /// The whole document.
    pub fn root(&self) -> InputValue<'_> {
        InputValue {
            node: &self.root,
            file: self.file,
            lines_before: self.lines_before,
        }
    }
}

/// Reads the documents of all files of an input, in their order.
///
/// # Errors
///
/// Those of [`read_documents`].
pub fn read_all_documents(files: &[InputFile]) -> Result<Vec<InputDocument>, ImportError> {
    let mut documents = Vec::new();
    for (index, file) in files.iter().enumerate() {
        documents.extend(read_documents(index, file)?);
    }
    Ok(documents)
}

/// Reads the documents of a file, which is the one with the index `file` of the input. Empty documents are left out.
///
/// # Errors
///
/// A document that is no YAML, or that has too much in it.
fn read_documents(file: usize, source: &InputFile) -> Result<Vec<InputDocument>, ImportError> {
    let mut documents = Vec::new();
    let mut lines_before = 0_u32;
    for text in split_documents(&source.text) {
        if documents.len() >= MAX_DOCUMENTS {
            let message = format!("the file has more than {MAX_DOCUMENTS} documents");
            return Err(
                ImportError::at(&source.path, lines_before + 1, 1, message).with_help("split it")
            );
        }
        let root = parse(0, text).map_err(|error| {
            let line = error.location.line.saturating_add(lines_before);
            let column = error.location.column;
            let failure = ImportError::at(&source.path, line, column, error.message);
            match error.help {
                Some(help) => failure.with_help(help),
                None => failure,
            }
        })?;
        check_nesting(&root, 0).map_err(|line| {
            let message = format!("lists and maps are more than {MAX_NESTING} deep in each other");
            ImportError::at(&source.path, line.saturating_add(lines_before), 1, message)
        })?;
        check_keys(&root).map_err(|key| {
            let line = key.location.line.saturating_add(lines_before);
            let message = format!("the key `{}` is there twice", printable(&key.text, 60));
            ImportError::at(&source.path, line, key.location.column, message)
                .with_help("keep one of them")
        })?;
        if !matches!(root.value, YamlValue::Null) {
            documents.push(InputDocument {
                root,
                file,
                lines_before,
            });
        }
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        lines_before = lines_before.saturating_add(lines);
    }
    Ok(documents)
}

/// The texts of the documents. Each begins with its line `---`, if it has one, as an empty comment.
fn split_documents(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_marker = line.starts_with("---") && line[3..].trim().is_empty();
        if is_marker && offset > start {
            documents.extend(text.get(start..offset));
            start = offset;
        }
        offset += line.len();
    }
    documents.extend(text.get(start..));
    documents
}

/// The line of the first value that is too deep.
fn check_nesting(node: &Node, depth: usize) -> Result<(), u32> {
    if depth > MAX_NESTING {
        return Err(node.location.line);
    }
    match &node.value {
        YamlValue::List(items) => items
            .iter()
            .try_for_each(|item| check_nesting(item, depth + 1)),
        YamlValue::Map(entries) => entries
            .iter()
            .try_for_each(|(_, value)| check_nesting(value, depth + 1)),
        _ => Ok(()),
    }
}

/// The first key that a map has twice. Parsers differ in which of its values they take, and some refuse the file.
fn check_keys(node: &Node) -> Result<(), &MapKey> {
    match &node.value {
        YamlValue::List(items) => items.iter().try_for_each(check_keys),
        YamlValue::Map(entries) => {
            let mut seen = HashSet::new();
            entries.iter().try_for_each(|(key, value)| {
                if !seen.insert(key.text.as_str()) {
                    return Err(key);
                }
                check_keys(value)
            })
        }
        _ => Ok(()),
    }
}

/// The number of values in a tree, where a long text counts as several.
fn node_weight(node: &Node) -> usize {
    match &node.value {
        YamlValue::List(items) => 1 + items.iter().map(node_weight).sum::<usize>(),
        YamlValue::Map(entries) => {
            let values = entries.iter().map(|(_, value)| 1 + node_weight(value));
            1 + values.sum::<usize>()
        }
        _ => 1 + node.scalar().map_or(0, str::len) / 64,
    }
}

impl<'n> InputValue<'n> {
    /// How much work it is to read the value: the number of values in it, where a long text counts as several.
    pub fn weight(self) -> usize {
        node_weight(self.node)
    }

    /// Where the value stands.
    pub fn origin(self) -> Origin {
        Origin {
            file: self.file,
            line: self.node.location.line.saturating_add(self.lines_before),
        }
    }

    fn with(self, node: &'n Node) -> InputValue<'n> {
        InputValue { node, ..self }
    }

    /// The entries of a map with their keys and the lines of these; empty for other values.
    pub fn entries(self) -> impl Iterator<Item = (&'n str, Origin, InputValue<'n>)> {
        let entries = match &self.node.value {
            YamlValue::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(move |(key, value)| {
            let origin = Origin {
                file: self.file,
                line: key.location.line.saturating_add(self.lines_before),
            };
            (key.text.as_str(), origin, self.with(value))
        })
    }

    /// The value of a field of a map, in whatever case, as Go reads it; `None` for other values, without the field, and if it has no value.
    pub fn get(self, field: &str) -> Option<InputValue<'n>> {
        let mut entries = self.entries();
        entries
            .find(|(key, _, value)| key.eq_ignore_ascii_case(field) && !value.is_null())
            .map(|(_, _, value)| value)
    }

    /// The value at a path of fields, as by [`InputValue::get`].
    pub fn at(self, path: &[&str]) -> Option<InputValue<'n>> {
        path.iter().try_fold(self, |value, field| value.get(field))
    }

    /// The items of a list; empty for other values.
    pub fn items(self) -> impl Iterator<Item = InputValue<'n>> {
        let items = match &self.node.value {
            YamlValue::List(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(move |item| self.with(item))
    }

    /// The items of a list, or the value itself if it is a scalar or a map.
    pub fn items_or_self(self) -> Vec<InputValue<'n>> {
        match &self.node.value {
            YamlValue::List(_) => self.items().collect(),
            YamlValue::Null => Vec::new(),
            _ => vec![self],
        }
    }

    /// The text of a scalar, also of a number.
    pub fn text(self) -> Option<&'n str> {
        self.node.scalar()
    }

    /// The text of a scalar field of a map.
    pub fn text_of(self, field: &str) -> Option<&'n str> {
        self.get(field)?.text()
    }

    /// The whole number that a scalar is, written as a number or as a text. `None` for one that begins with a plus or a
    /// zero, because some parsers read `+010` and `010` as octal.
    pub fn number(self) -> Option<u64> {
        let text = self.text()?.trim();
        let is_unclear = text.starts_with('+') || text.len() > 1 && text.starts_with('0');
        text.parse().ok().filter(|_| !is_unclear)
    }

    /// Whether a scalar is `true`.
    pub fn is_true(self) -> bool {
        matches!(self.text(), Some("true" | "True" | "TRUE"))
    }

    /// Whether the value is absent, or `~`.
    pub fn is_null(self) -> bool {
        matches!(self.node.value, YamlValue::Null)
    }

    /// Whether the value is a list.
    pub fn is_list(self) -> bool {
        matches!(self.node.value, YamlValue::List(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> InputFile {
        InputFile {
            path: "a.yaml".into(),
            text: text.into(),
        }
    }

    #[test]
    fn documents_keep_their_lines() {
        let text = "---\na: 1\n---\n# nothing\n---\nb:\n  - c: [x]\n";
        let documents = read_documents(3, &source(text)).expect("YAML");
        assert_eq!(documents.len(), 2);
        let first = documents[0].root().get("a").expect("a");
        assert_eq!(
            (first.number(), first.origin()),
            (Some(1), Origin { file: 3, line: 2 })
        );
        let item = documents[1].root().get("b").and_then(|b| b.items().next());
        let inner = item.and_then(|item| item.get("c")).expect("c");
        assert_eq!(inner.origin().line, 7);
        assert_eq!(inner.items_or_self()[0].text(), Some("x"));
    }

    #[test]
    fn mistakes_name_their_line() {
        let error = read_documents(0, &source("a: 1\n---\nb: [\n")).expect_err("no YAML");
        assert_eq!((&*error.file, error.line >= 3), ("a.yaml", true));
        let deep = "[".repeat(40) + &"]".repeat(40);
        let error = read_documents(0, &source(&deep)).expect_err("too deep");
        assert!(error.message.contains("32 deep"), "{error}");
    }

    #[test]
    fn keys_that_are_there_twice() {
        let error =
            read_documents(0, &source("a: 1\nb:\n  - c: 1\n    c: 2\n")).expect_err("twice");
        assert_eq!((error.line, error.message.contains("`c`")), (4, true));
    }

    #[test]
    fn numbers_that_may_be_octal_are_none() {
        let documents = read_documents(0, &source("[010, 0, 10, \"08\", +010]")).expect("YAML");
        let numbers: Vec<_> = documents[0]
            .root()
            .items()
            .map(InputValue::number)
            .collect();
        assert_eq!(numbers, [None, Some(0), Some(10), None, None]);
    }

    #[test]
    fn json_is_read_too() {
        let documents = read_documents(0, &source("{\"a\": {\"b\": \"7\"}}")).expect("JSON");
        let b = documents[0].root().at(&["a", "b"]).expect("b");
        assert_eq!(b.number(), Some(7));
    }
}
