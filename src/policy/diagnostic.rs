//! Diagnostics as people and programs read them. Text from files is shown with its control characters made
//! visible, so that no file can send commands to a terminal.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::json;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration is used; this part of it is probably not what was meant.
    Warning,
}

impl Severity {
    /// The word for it in messages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One thing to be said about one place of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as messages name it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The line itself; absent where the file could not be read.
    pub excerpt: Option<Excerpt>,
}

/// The part of a line around a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, at most [`Excerpt::WIDTH`] characters and without control characters.
    pub text: String,
    /// Characters before the mistake.
    pub before: usize,
    /// Characters of the mistake that are shown, at least 1.
    pub width: usize,
}

impl Excerpt {
    /// Most characters of a line that are shown.
    pub const WIDTH: usize = 100;
    /// Characters that are kept before a mistake far to the right.
    const LEAD: usize = 30;

    /// Cuts `line` to what matters around `column`, from 1.
    pub fn cut(line: &str, column: u32, width: u32) -> Excerpt {
        let column = usize::try_from(column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        // Only a window of the line is looked at, whatever its length.
        let skip = if column + Excerpt::LEAD < Excerpt::WIDTH {
            0
        } else {
            column - Excerpt::LEAD
        };
        let line = without_passwords(line.trim_end());
        let mut rest = line.chars().skip(skip);
        let mut text: String = rest.by_ref().take(Excerpt::WIDTH).map(visible).collect();
        if skip > 0 {
            text.insert(0, '…');
        }
        if rest.next().is_some() {
            text.push('…');
        }
        let before = column - skip + usize::from(skip > 0);
        let room = text.chars().count().saturating_sub(before).max(1);
        let width = usize::try_from(width).unwrap_or(usize::MAX).clamp(1, room);
        Excerpt {
            text,
            before,
            width,
        }
    }
}

/// The character, or a harmless stand-in for those that steer terminals and readers: control
/// characters, and those that turn the direction of writing.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{feff}' | '\u{61c}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// `text` with a star for each character of the passwords in its addresses, `scheme://user:password@host`.
fn without_passwords(text: &str) -> Cow<'_, str> {
    const SCHEME: &str = "://";
    let mut out = Cow::Borrowed(text);
    for (start, _) in text.match_indices(SCHEME) {
        let start = start + SCHEME.len();
        let address = text[start..].split(|c: char| c.is_whitespace() || "'\"`".contains(c));
        let whose = address
            .into_iter()
            .next()
            .and_then(|text| text.rsplit_once('@'));
        let Some((_, password)) = whose.and_then(|(whose, _)| whose.split_once(':')) else {
            continue;
        };
        let stars = "*".repeat(password.chars().count());
        let hidden = format!(":{password}@");
        // The same password elsewhere is no less secret.
        out = Cow::Owned(out.replace(&hidden, &format!(":{stars}@")));
    }
    out
}

/// `text` with control characters made visible and cut to a sentence's length.
pub fn plain(text: &str) -> String {
    const LONGEST: usize = 300;
    let text = without_passwords(text);
    let mut chars = text.chars();
    let mut out: String = chars.by_ref().take(LONGEST).map(visible).collect();
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", plain(&self.file), self.line, self.column)?;
        if self.severity != Severity::Error {
            write!(f, "{}: ", self.severity.as_str())?;
        }
        writeln!(f, "{}", plain(&self.message))?;
        if let Some(Excerpt {
            text,
            before,
            width,
        }) = &self.excerpt
        {
            let number = self.line.to_string();
            let gutter = " ".repeat(number.len());
            writeln!(f, " {number} | {text}")?;
            writeln!(
                f,
                " {gutter} | {}{}",
                " ".repeat(*before),
                "^".repeat(*width)
            )?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "   help: {}", plain(help))?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// The same for programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "severity": self.severity.as_str(),
            "file": plain(&self.file),
            "line": self.line,
            "column": self.column,
            "message": plain(&self.message),
            "help": self.help.as_deref().map(plain),
        })
    }

    fn order(&self) -> (&str, u32, u32, Severity) {
        (&self.file, self.line, self.column, self.severity)
    }
}

/// Sorts by place and says nothing twice.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        a.order()
            .cmp(&b.order())
            .then_with(|| a.message.cmp(&b.message))
    });
    diagnostics.dedup();
}

/// Everything that is wrong with a configuration, sorted by file, line and column. What was noted
/// beside the mistakes is among it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DiagnosticReport {
    /// All of it.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there are than are listed.
    pub unlisted: usize,
}

impl DiagnosticReport {
    /// How many of this severity are listed.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|d| d.severity == severity)
            .count()
    }

    /// The same for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let list: Vec<_> = self.diagnostics.iter().map(Diagnostic::to_json).collect();
        json!({ "ok": false, "diagnostics": list, "unlisted": self.unlisted })
    }
}

impl fmt::Display for DiagnosticReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        let errors = self.count(Severity::Error) + self.unlisted;
        if errors > 0 {
            let end = if errors == 1 { "" } else { "s" };
            write!(f, "{errors} mistake{end}")?;
        }
        if self.unlisted > 0 {
            write!(f, " ({} not listed)", self.unlisted)?;
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
            before,
            width,
        } = Excerpt::cut(line, column, width);
        assert_eq!((text.as_str(), before, width), expected);
    }

    #[test]
    fn excerpts() {
        check("rate: 5", 7, 1, ("rate: 5", 6, 1));
        check("rate: \u{1b}[31m5", 7, 20, ("rate: \u{fffd}[31m5", 6, 6));
        check("\tx", 2, 1, (" x", 1, 1));
        check("", 1, 5, ("", 0, 1));
        let long = "x".repeat(1_000_000);
        let cut = Excerpt::cut(&long, 500_000, 400_000);
        assert_eq!((cut.text.chars().count(), cut.before), (102, 31));
        assert_eq!(cut.width, 71);
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
            assert_eq!(plain(text), expected);
        }
    }
}
