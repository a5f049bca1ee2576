//! Reads the syntax of HAProxy: one line after the other, each of words with quotes, escapes and comments.

use crate::import::error::ImportError;
use crate::import::files::InputFile;
use crate::import::report::Origin;

/// Maximum number of lines with words of all files together.
pub const MAX_LINES: usize = 50_000;
/// Maximum number of words of a line.
const MAX_WORDS: usize = 1_024;

/// A line with words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigLine {
    /// The words, without quotes and escapes; at least one.
    pub words: Vec<String>,
    /// The line as the report shows it, without a comment and without passwords.
    pub text: String,
    /// Whether a word is not known here: it has a variable of the environment, or a byte in hexadecimal digits.
    pub has_variable: bool,
    /// Whether the line holds under a condition of the preprocessor.
    pub is_conditional: bool,
    /// Where it begins.
    pub origin: Origin,
}

impl ConfigLine {
    /// The word at `index`; empty if there is none.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from `index` on.
    pub fn rest(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

/// Reads a file, which is the one with the index `file` of the input.
///
/// # Errors
///
/// A quote that is not closed, or a bound that the file exceeds.
pub fn parse(file: usize, source: &InputFile) -> Result<Vec<ConfigLine>, ImportError> {
    let mut lines = Vec::new();
    let mut depth = 0_usize;
    let raw = source.text.trim_start_matches('\u{feff}').lines();
    // A backslash at the end of a line does not join the next line to it.
    for (text, number) in raw.zip(1_u32..) {
        let fail = |message: String, help: &str| {
            Err(ImportError::at(&source.path, number, 1, message).with_help(help))
        };
        let Ok(mut line) = split_words(text) else {
            return fail("a quote is not closed in this line".into(), "close it");
        };
        line.origin = Origin { file, line: number };
        if line.words.is_empty() {
            continue;
        }
        if line.words.len() > MAX_WORDS || lines.len() >= MAX_LINES {
            let message =
                format!("more than {MAX_LINES} lines, or {MAX_WORDS} words in one of them");
            return fail(message, "split it");
        }
        match line.word(0) {
            ".if" => depth += 1,
            ".endif" => {
                line.is_conditional = depth > 0;
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        line.is_conditional |= depth > 0;
        lines.push(line);
    }
    Ok(lines)
}

/// What quotes a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Weak,
    Strong,
}

/// Splits a line; an error if a quote is not closed.
fn split_words(line: &str) -> Result<ConfigLine, ()> {
    let mut split = ConfigLine::default();
    let mut word: Option<String> = None;
    let mut quote = Quote::None;
    let mut chars = line.char_indices().peekable();
    let mut end = line.len();
    while let Some((at, c)) = chars.next() {
        match (c, quote) {
            ('#', Quote::None) => {
                end = at;
                break;
            }
            (c, Quote::None) if c.is_ascii_whitespace() => split.words.extend(word.take()),
            ('"', Quote::None) => (quote, _) = (Quote::Weak, word.get_or_insert_default()),
            ('\'', Quote::None) => (quote, _) = (Quote::Strong, word.get_or_insert_default()),
            ('"', Quote::Weak) | ('\'', Quote::Strong) => quote = Quote::None,
            ('\\', Quote::None | Quote::Weak) => {
                let escaped = chars.next().map(|(_, escaped)| escaped);
                let kept = match escaped {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    // A byte in hexadecimal digits. It may be a part of a character.
                    Some('x') => {
                        split.has_variable = true;
                        '\u{fffd}'
                    }
                    Some(escaped) if " #\"'\\$".contains(escaped) => escaped,
                    Some(escaped) => {
                        // A backslash of a regular expression.
                        word.get_or_insert_default().push('\\');
                        escaped
                    }
                    None => '\\',
                };
                word.get_or_insert_default().push(kept);
            }
            ('$', Quote::Weak) => {
                let mut next = chars.peek().into_iter();
                split.has_variable |= next
                    .any(|(_, next)| *next == '{' || *next == '_' || next.is_ascii_alphabetic());
                word.get_or_insert_default().push('$');
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote != Quote::None {
        return Err(());
    }
    split.words.extend(word);
    split.text = without_secrets(line.get(..end).unwrap_or(line).trim(), &split.words);
    Ok(split)
}

/// The line without the passwords that some keywords have.
fn without_secrets(text: &str, words: &[String]) -> String {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match (word(0), word(1)) {
        ("user", name) => format!("user {name} …"),
        ("stats", "auth") => "stats auth …".to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, words: &[&str], has_variable: bool) {
        let split = split_words(line).expect("words");
        assert_eq!(split.words, words, "{line}");
        assert_eq!(split.has_variable, has_variable, "{line}");
    }

    #[test]
    fn lines_as_words() {
        check("  bind :80 # all", &["bind", ":80"], false);
        check("a \"b c\" 'd # e'f", &["a", "b c", "d # ef"], false);
        check(r"a b\ c \# \\ \.", &["a", "b c", "#", "\\", "\\."], false);
        check("a \"${X}:80\"", &["a", "${X}:80"], true);
        check("a '${X}' $X", &["a", "${X}", "$X"], false);
        check("a \"b$\" \"\"", &["a", "b$", ""], false);
        check("# a", &[], false);
        check("a /\\x61dmin", &["a", "/\u{fffd}61dmin"], true);
        check("a \"\\x61\"", &["a", "\u{fffd}61"], true);
        assert!(split_words("a \"b").is_err());
    }

    #[test]
    fn lines_are_not_joined_and_passwords_hidden() {
        let source = InputFile {
            path: "h".into(),
            text: "a # b \\\nc\n.if X\nd\n.endif\nuser joe password x\n".into(),
        };
        let lines = parse(0, &source).expect("lines");
        assert_eq!((lines[0].words.len(), lines[1].word(0)), (1, "c"));
        let conditional: Vec<bool> = lines.iter().map(|line| line.is_conditional).collect();
        assert_eq!(conditional, [false, false, true, true, true, false]);
        assert_eq!((lines[2].origin.line, &*lines[5].text), (3, "user joe …"));
    }
}
