//! Reads the syntax of nginx: words, directives and blocks, with the line of each directive.

use crate::import::error::ImportError;
use crate::import::files::{InputFile, MAX_NESTING};
use crate::import::report::Origin;

/// Maximum number of directives of a file.
const MAX_DIRECTIVES: usize = 50_000;
/// Directives that have no block. One before a block lacks its semicolon.
const SIMPLE_DIRECTIVES: [&str; 16] = [
    "allow",
    "deny",
    "include",
    "limit_conn",
    "limit_conn_zone",
    "limit_req",
    "limit_req_zone",
    "listen",
    "proxy_pass",
    "proxy_set_header",
    "real_ip_header",
    "return",
    "root",
    "server_name",
    "set",
    "set_real_ip_from",
];
/// Maximum number of words of a directive.
const MAX_WORDS: usize = 4_096;

/// A directive: `name argument …;`, or with a block in place of the semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its first word.
    pub name: String,
    /// The words behind it, without quotes.
    pub arguments: Vec<String>,
    /// The directives in its block; `None` if it has none.
    pub block: Option<Vec<Directive>>,
    /// Where it begins.
    pub origin: Origin,
}

impl Directive {
    /// The argument at `index`; empty if there is none.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    /// The value of an argument that is written `name=value`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let value = |argument: &'_ String| -> Option<usize> {
            argument
                .strip_prefix(name)?
                .strip_prefix('=')
                .map(|_| name.len() + 1)
        };
        self.arguments
            .iter()
            .find_map(|argument| argument.get(value(argument)?..))
    }

    /// The directives in its block.
    pub fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The directive in one line, without its block.
    pub fn text(&self) -> String {
        let mut text = self.name.clone();
        for argument in &self.arguments {
            text.push(' ');
            text.push_str(argument);
        }
        text
    }
}

/// Reads a file, which is the one with the index `file` of the input.
///
/// # Errors
///
/// The first place that is not the syntax of nginx, or where the file exceeds a bound.
pub fn parse(file: usize, source: &InputFile) -> Result<Vec<Directive>, ImportError> {
    let mut parser = SyntaxReader {
        source,
        file,
        rest: source.text.trim_start_matches('\u{feff}'),
        line: 1,
        column: 1,
        directives: 0,
    };
    parser.block(0)
}

struct SyntaxReader<'t> {
    source: &'t InputFile,
    file: usize,
    rest: &'t str,
    line: u32,
    column: u32,
    directives: usize,
}

/// What ends a directive, or a word of it.
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl SyntaxReader<'_> {
    fn fail<T>(&self, message: impl Into<String>, help: &str) -> Result<T, ImportError> {
        self.fail_at(self.line, self.column, message, help)
    }

    fn fail_at<T>(
        &self,
        line: u32,
        column: u32,
        message: impl Into<String>,
        help: &str,
    ) -> Result<T, ImportError> {
        Err(ImportError::at(&self.source.path, line, column, message).with_help(help))
    }

    /// Reads the directives up to the end of a block, or of the file at depth 0.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, ImportError> {
        if depth > MAX_NESTING {
            let message = format!("blocks are more than {MAX_NESTING} deep in each other");
            return self.fail(message, "this is no configuration that nginx takes");
        }
        let start = (self.line, self.column);
        let mut directives = Vec::new();
        loop {
            self.skip_blanks();
            let (line, column) = (self.line, self.column);
            match self.token()? {
                Token::Word(name) => {
                    self.directives += 1;
                    if self.directives > MAX_DIRECTIVES {
                        let message = format!("the file has more than {MAX_DIRECTIVES} directives");
                        return self.fail(message, "split it");
                    }
                    directives.push(self.directive(name, line, column, depth)?);
                }
                Token::Close if depth > 0 => return Ok(directives),
                Token::End if depth == 0 => return Ok(directives),
                Token::Close => {
                    return self.fail_at(line, column, "this `}` closes no block", "remove it");
                }
                Token::End => {
                    let message = "the file ends within this block";
                    return self.fail_at(start.0, start.1, message, "add its `}`");
                }
                Token::Semicolon => {
                    return self.fail_at(line, column, "this `;` ends no directive", "remove it");
                }
                Token::Open => {
                    let help = "write its name before it, such as `server`";
                    return self.fail_at(line, column, "this block has no name", help);
                }
            }
        }
    }

    /// Reads the rest of a directive whose name was read.
    fn directive(
        &mut self,
        name: String,
        line: u32,
        column: u32,
        depth: usize,
    ) -> Result<Directive, ImportError> {
        let mut directive = Directive {
            name,
            arguments: Vec::new(),
            block: None,
            origin: Origin {
                file: self.file,
                line,
            },
        };
        loop {
            self.skip_blanks();
            match self.token()? {
                Token::Word(word) if directive.arguments.len() < MAX_WORDS => {
                    directive.arguments.push(word);
                }
                Token::Word(_) => {
                    let message = format!("a directive has at most {MAX_WORDS} words");
                    return self.fail_at(line, column, message, "add a `;`");
                }
                Token::Semicolon => return Ok(directive),
                Token::Open if directive.name.ends_with("_by_lua_block") => {
                    self.skip_code(line, column)?;
                    directive.block = Some(Vec::new());
                    return Ok(directive);
                }
                Token::Open if !SIMPLE_DIRECTIVES.contains(&directive.name.as_str()) => {
                    directive.block = Some(self.block(depth + 1)?);
                    return Ok(directive);
                }
                Token::Open | Token::Close | Token::End => {
                    let message = format!("`{}` has no `;` behind it", short(&directive.name));
                    return self.fail_at(
                        line,
                        column,
                        message,
                        "add one at the end of the directive",
                    );
                }
            }
        }
    }

    /// Skips the code of a block in another language, up to the brace that closes it.
    fn skip_code(&mut self, line: u32, column: u32) -> Result<(), ImportError> {
        let mut open_braces = 1_usize;
        while let Some(c) = self.next_char() {
            match c {
                '{' => open_braces += 1,
                '}' => open_braces -= 1,
                '"' | '\'' => self.skip_string(c),
                '-' if self.peek() == Some('-') => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.next_char();
                    }
                }
                _ => {}
            }
            if open_braces == 0 {
                return Ok(());
            }
        }
        self.fail_at(
            line,
            column,
            "the file ends within this block",
            "add its `}`",
        )
    }

    /// Skips a string of Lua, which ends at the end of its line at the latest.
    fn skip_string(&mut self, quote: char) {
        while let Some(c) = self.next_char() {
            match c {
                '\\' => {
                    self.next_char();
                }
                c if c == quote || c == '\n' => return,
                _ => {}
            }
        }
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or("");
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Skips blanks and comments.
    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next_char();
                }
            } else if !c.is_ascii_whitespace() {
                return;
            }
            self.next_char();
        }
    }

    fn token(&mut self) -> Result<Token, ImportError> {
        let Some(c) = self.peek() else {
            return Ok(Token::End);
        };
        match c {
            ';' | '{' | '}' => {
                self.next_char();
                Ok(match c {
                    ';' => Token::Semicolon,
                    '{' => Token::Open,
                    _ => Token::Close,
                })
            }
            '"' | '\'' => self.quoted_word(c),
            _ => Ok(Token::Word(self.plain_word())),
        }
    }

    fn quoted_word(&mut self, quote: char) -> Result<Token, ImportError> {
        let (line, column) = (self.line, self.column);
        self.next_char();
        let mut word = String::new();
        while let Some(c) = self.next_char() {
            match c {
                '\\' => word.push_str(&self.escaped()),
                c if c == quote => return Ok(Token::Word(word)),
                c => word.push(c),
            }
        }
        let message = format!("this {quote} has no second one");
        self.fail_at(line, column, message, "close the quotes")
    }

    /// A word up to a blank, a semicolon or a brace. The brace of `${name}` is part of it.
    fn plain_word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            if c.is_ascii_whitespace() || c == ';' || c == '{' && !word.ends_with('$') {
                break;
            }
            self.next_char();
            match c {
                '\\' => word.push_str(&self.escaped()),
                '{' => {
                    word.push(c);
                    while let Some(c) = self.next_char() {
                        word.push(c);
                        if c == '}' || c == '\n' {
                            break;
                        }
                    }
                }
                c => word.push(c),
            }
        }
        word
    }

    /// Takes a letter off the text, and returns the control character that it stands for.
    fn control(&mut self, c: char) -> String {
        self.next_char();
        c.to_string()
    }

    /// What a backslash, which was read, and the character behind it stand for.
    fn escaped(&mut self) -> String {
        match self.peek() {
            Some(c @ ('"' | '\'' | '\\')) => {
                self.next_char();
                c.to_string()
            }
            Some('n') => self.control('\n'),
            Some('r') => self.control('\r'),
            Some('t') => self.control('\t'),
            Some(c) => {
                self.next_char();
                format!("\\{c}")
            }
            None => String::from("\\"),
        }
    }
}

fn short(text: &str) -> String {
    crate::import::report::printable(text, 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Directive>, ImportError> {
        let source = InputFile {
            path: "n.conf".into(),
            text: text.into(),
        };
        parse(0, &source)
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = read(text).expect_err("no configuration");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn words_and_blocks() {
        let text = "# c\nhttp { # c {\n  map $a $b { default \"a;\\\"b\"; '~x{2}' ''; }\n  \
            log_by_lua_block { local t = { '}' } -- }\n }\n x ${y}z a=b \\.p; }";
        let read = read(text).expect("a configuration");
        let http = &read[0];
        assert_eq!(
            (&*http.name, http.origin.line, http.children().len()),
            ("http", 2, 3)
        );
        let map = &http.children()[0];
        assert_eq!(map.arguments, ["$a", "$b"]);
        assert_eq!(map.children()[0].text(), "default a;\"b");
        assert_eq!(
            (&*map.children()[1].name, map.children()[1].argument(0)),
            ("~x{2}", "")
        );
        let last = &http.children()[2];
        assert_eq!(last.arguments, ["${y}z", "a=b", "\\.p"]);
        assert_eq!(
            (last.parameter("a"), last.parameter("c")),
            (Some("b"), None)
        );
        assert_eq!(last.origin.line, 6);
    }

    #[test]
    fn mistakes_have_their_place() {
        check_error(
            "listen 80\nlocation / { }",
            "n.conf:1:1: `listen` has no `;` behind it; add one at the end of the directive",
        );
        check_error("a;\n  }", "n.conf:2:3: this `}` closes no block; remove it");
        check_error(
            "http {\n a;",
            "n.conf:1:7: the file ends within this block; add its `}`",
        );
        check_error(
            "a b\n",
            "n.conf:1:1: `a` has no `;` behind it; add one at the end of the directive",
        );
        check_error(
            "a { b }",
            "n.conf:1:5: `b` has no `;` behind it; add one at the end of the directive",
        );
        check_error(
            "a 'b;",
            "n.conf:1:3: this ' has no second one; close the quotes",
        );
        check_error(" ;", "n.conf:1:2: this `;` ends no directive; remove it");
        check_error(
            "{}",
            "n.conf:1:1: this block has no name; write its name before it, such as `server`",
        );
        let deep = "a {".repeat(40);
        assert!(read(&deep).expect_err("deep").message.contains("32 deep"));
        let many = "a;".repeat(MAX_DIRECTIVES + 1);
        assert!(read(&many).expect_err("many").message.contains("50000"));
    }
}
