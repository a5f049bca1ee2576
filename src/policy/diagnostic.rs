//! Diagnostics about the configuration, as text for people and as JSON for programs. Text from files is sanitized:
//! control characters are replaced, so that no file can send commands to a terminal, and passwords in URLs are masked.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::json;

/// Whether a diagnostic prevents the use of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but this part of it is probably not what was meant.
    Warning,
}

impl Severity {
    /// The word in messages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A mistake or a warning about one location of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it prevents the use of the configuration.
    pub severity: Severity,
    /// The path of the file; the report sanitizes it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What is wrong at the location.
    pub message: String,
    /// What the user can do; `None` if the message says it.
    pub help: Option<String>,
    /// The line around the location; `None` if its text is not kept, because the file could not be read or holds
    /// secrets.
    pub excerpt: Option<Excerpt>,
}

/// The part of a line around the location of a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// At most [`Excerpt::MAX_CHARS`] characters of the line, without control characters, and `…` where the line is
    /// cut.
    pub text: String,
    /// The number of characters of `text` before the location.
    pub chars_before: usize,
    /// The number of characters of `text` at the location, at least 1.
    pub width: usize,
}

impl Excerpt {
    /// Maximum number of characters of a line that are shown, so that an excerpt fits a terminal.
    pub const MAX_CHARS: usize = 100;
    /// Number of characters that are shown before a location far to the right.
    const LEADING_CHARS: usize = 30;

    /// Cuts `line` around `width` characters from `column`, which counts characters from 1.
    pub fn cut(line: &str, column: u32, width: u32) -> Excerpt {
        let column = usize::try_from(column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let skipped_chars = if column + Excerpt::LEADING_CHARS < Excerpt::MAX_CHARS {
            0
        } else {
            column - Excerpt::LEADING_CHARS
        };
        let line = mask_passwords(line.trim_end());
        let mut chars = line.chars().skip(skipped_chars);
        let mut text: String = chars
            .by_ref()
            .take(Excerpt::MAX_CHARS)
            .map(replace_control_char)
            .collect();
        if skipped_chars > 0 {
            text.insert(0, '…');
        }
        if chars.next().is_some() {
            text.push('…');
        }
        let chars_before = column - skipped_chars + usize::from(skipped_chars > 0);
        let max_width = text.chars().count().saturating_sub(chars_before).max(1);
        let width = usize::try_from(width)
            .unwrap_or(usize::MAX)
            .clamp(1, max_width);
        Excerpt {
            text,
            chars_before,
            width,
        }
    }
}

/// Replaces characters that steer terminals or mislead readers by `U+FFFD`: control characters, invisible ones, and
/// marks of the direction of writing. A tab becomes a blank.
fn replace_control_char(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{feff}' | '\u{61c}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Replaces each character of the passwords in URLs, `scheme://user:password@host`, by an asterisk.
fn mask_passwords(text: &str) -> Cow<'_, str> {
    const SCHEME_END: &str = "://";
    let mut masked = Cow::Borrowed(text);
    for (scheme_end, _) in text.match_indices(SCHEME_END) {
        let after_scheme = &text[scheme_end + SCHEME_END.len()..];
        let url_end = after_scheme.find(|c: char| c.is_whitespace() || "'\"`".contains(c));
        let after_scheme = &after_scheme[..url_end.unwrap_or(after_scheme.len())];
        let userinfo = after_scheme.rsplit_once('@').map(|(userinfo, _)| userinfo);
        let Some((_, password)) = userinfo.and_then(|userinfo| userinfo.split_once(':')) else {
            continue;
        };
        let asterisks = "*".repeat(password.chars().count());
        let password_in_url = format!(":{password}@");
        // The text may contain the same password more than once.
        masked = Cow::Owned(masked.replace(&password_in_url, &format!(":{asterisks}@")));
    }
    masked
}

/// Replaces control characters, masks passwords in URLs, and cuts the text to 300 characters.
pub fn sanitize(text: &str) -> String {
    /// The length of a long sentence, so that a value of the file cannot fill the terminal.
    const MAX_CHARS: usize = 300;
    let text = mask_passwords(text);
    let mut chars = text.chars();
    let mut sanitized: String = chars
        .by_ref()
        .take(MAX_CHARS)
        .map(replace_control_char)
        .collect();
    if chars.next().is_some() {
        sanitized.push('…');
    }
    sanitized
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: ",
            sanitize(&self.file),
            self.line,
            self.column
        )?;
        if self.severity != Severity::Error {
            write!(f, "{}: ", self.severity.as_str())?;
        }
        writeln!(f, "{}", sanitize(&self.message))?;
        if let Some(Excerpt {
            text,
            chars_before,
            width,
        }) = &self.excerpt
        {
            let line_number = self.line.to_string();
            let gutter = " ".repeat(line_number.len());
            writeln!(f, " {line_number} | {text}")?;
            writeln!(
                f,
                " {gutter} | {}{}",
                " ".repeat(*chars_before),
                "^".repeat(*width)
            )?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "   help: {}", sanitize(help))?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// The diagnostic as JSON, without its excerpt.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "severity": self.severity.as_str(),
            "file": sanitize(&self.file),
            "line": self.line,
            "column": self.column,
            "message": sanitize(&self.message),
            "help": self.help.as_deref().map(sanitize),
        })
    }

    /// File, line, column, and errors before warnings.
    fn sort_key(&self) -> (&str, u32, u32, Severity) {
        (&self.file, self.line, self.column, self.severity)
    }
}

/// Sorts diagnostics by file, line and column, errors before warnings, and removes those that are equal to the one
/// before.
pub fn sort_and_dedup(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|left, right| {
        left.sort_key()
            .cmp(&right.sort_key())
            .then_with(|| left.message.cmp(&right.message))
    });
    diagnostics.dedup();
}

/// The diagnostics of a configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DiagnosticReport {
    /// Errors and warnings, sorted by file, line and column.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of errors that are not in `diagnostics`, because there are too many.
    pub unlisted_errors: usize,
}

impl DiagnosticReport {
    /// The number of listed diagnostics of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == severity)
            .count()
    }

    /// The report as JSON, in the form that `tollgate check --json` prints.
    pub fn to_json(&self) -> serde_json::Value {
        let diagnostics: Vec<_> = self.diagnostics.iter().map(Diagnostic::to_json).collect();
        json!({ "ok": false, "diagnostics": diagnostics, "unlisted": self.unlisted_errors })
    }
}

impl fmt::Display for DiagnosticReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        let error_count = self.count(Severity::Error) + self.unlisted_errors;
        if error_count > 0 {
            let plural = if error_count == 1 { "" } else { "s" };
            write!(f, "{error_count} mistake{plural}")?;
        }
        if self.unlisted_errors > 0 {
            write!(f, " ({} not listed)", self.unlisted_errors)?;
        }
        writeln!(f)
    }
}

impl std::error::Error for DiagnosticReport {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, column: u32, width: u32, expected: (&str, usize, usize)) {
        let Excerpt {
            text,
            chars_before,
            width,
        } = Excerpt::cut(line, column, width);
        assert_eq!((text.as_str(), chars_before, width), expected);
    }

    #[test]
    fn excerpts() {
        check("rate: 5", 7, 1, ("rate: 5", 6, 1));
        check("rate: \u{1b}[31m5", 7, 20, ("rate: \u{fffd}[31m5", 6, 6));
        check("\tx", 2, 1, (" x", 1, 1));
        check("", 1, 5, ("", 0, 1));
        let long = "x".repeat(1_000_000);
        let excerpt = Excerpt::cut(&long, 500_000, 400_000);
        assert_eq!(
            (excerpt.text.chars().count(), excerpt.chars_before),
            (102, 31)
        );
        assert_eq!(excerpt.width, 71);
        check("\u{202e}abc", 2, 3, ("\u{fffd}abc", 1, 3));
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = [
            (
                "store: redis://u:secret@h:1/0",
                "store: redis://u:******@h:1/0",
            ),
            (
                "rediss://:p/w@x, redis://v:ü@y",
                "rediss://:***@x, redis://v:*@y",
            ),
            (
                "redis://u@h:1 \"http://h:1/a\" a@b:c",
                "redis://u@h:1 \"http://h:1/a\" a@b:c",
            ),
        ];
        for (text, expected) in shown {
            assert_eq!(sanitize(text), expected);
        }
    }
}
