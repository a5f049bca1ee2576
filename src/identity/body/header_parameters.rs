//! Parses a header field's value with parameters, such as `form-data; name="a"`, by the strict grammar.
//!
//! Lenient readers search such a value for `name=` anywhere. So this file also tells whether a reader could take
//! another part of the value for a parameter.

use crate::identity::form;

/// Names of UTF-8 as a charset.
const UTF8_CHARSETS: [&str; 2] = ["utf-8", "utf8"];

/// Charsets that agree with UTF-8 on ASCII only.
const ASCII_CHARSETS: [&str; 6] = [
    "us-ascii",
    "ascii",
    "iso-8859-1",
    "latin1",
    "windows-1252",
    "iso-8859-15",
];

/// A header field's value and its parameters.
pub(super) struct HeaderParameters<'v> {
    /// The text before the first `;`, without blanks at its ends.
    pub(super) value: &'v str,
    /// Names and values as they are written, but without the quotes around a value.
    parameters: Vec<(&'v str, &'v str)>,
}

impl<'v> HeaderParameters<'v> {
    /// Parses a whole field value. `None` if readers split it differently: a parameter has no `=`, an unusual name, or
    /// quotes that [`parse_quoted_value`] refuses. `None` also if an unquoted value is no token (RFC 9110, section 5.6.2):
    /// some readers end such a value at the first character that a token cannot have.
    pub(super) fn parse(text: &'v str) -> Option<HeaderParameters<'v>> {
        let (main_value, mut remaining) = text.split_once(';').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        while !remaining.trim_matches([' ', '\t', ';']).is_empty() {
            let (name, after_equals) = remaining.trim_start_matches([' ', '\t']).split_once('=')?;
            let (value, after) = match after_equals.strip_prefix('"') {
                Some(quoted) => parse_quoted_value(quoted)?,
                None => parse_token_value(after_equals)?,
            };
            if !is_parameter_name(name) {
                return None;
            }
            parameters.push((name, value));
            remaining = after;
        }
        Some(HeaderParameters {
            value: main_value.trim_matches([' ', '\t']),
            parameters,
        })
    }

    /// Counts the parameters of this name, among them encoded ones (`name*`, RFC 8187) and pieces (`name*0`, RFC 2231).
    pub(super) fn count(&self, name: &str) -> usize {
        let has_name = |parameter: &&(&str, &str)| {
            let (parameter_name, _) = parameter;
            without_star_suffix(parameter_name).eq_ignore_ascii_case(name)
        };
        self.parameters.iter().filter(has_name).count()
    }

    /// The value of the parameter of this name; `None` if it is encoded, missing or repeated.
    pub(super) fn unique_value(&self, name: &str) -> Option<&'v str> {
        let mut parameters = self.parameters.iter();
        let has_name = |(other_name, _): &&(&str, &str)| other_name.eq_ignore_ascii_case(name);
        let (_, value) = parameters.find(has_name)?;
        (self.count(name) == 1).then_some(value)
    }

    /// Whether readers that search the text for `name=` find it elsewhere than at the parameters `name` and `filename`: at
    /// another parameter, or inside a value.
    pub(super) fn has_hidden_name(&self) -> bool {
        self.parameters.iter().any(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let base_name = without_star_suffix(&name);
            let contains_name =
                base_name.contains("name") && !matches!(base_name, "name" | "filename");
            contains_name || may_set_parameter(value, "name")
        })
    }

    /// Whether readers may find another boundary than that of the parameter `boundary`. They search for the word: PHP takes
    /// its first occurrence, Rack the last. The value of the parameter itself may contain the word, as in browsers'
    /// boundaries.
    pub(super) fn has_hidden_boundary(&self) -> bool {
        let contains_boundary = |text: &str| text.to_ascii_lowercase().contains("boundary");
        let has_other_boundary =
            |(name, value): &(&str, &str)| match name.eq_ignore_ascii_case("boundary") {
                true => may_set_parameter(value, "boundary"),
                false => contains_boundary(name) || contains_boundary(value),
            };
        contains_boundary(self.value) || self.parameters.iter().any(has_other_boundary)
    }

    /// Whether `text` has the same meaning in the `charset` parameter's charset as in UTF-8. True without a `charset`;
    /// false for a charset of neither list above, or if readers could find several.
    pub(super) fn is_read_as_utf8(&self, text: &[u8]) -> bool {
        let names_charset = |(name, value): &&(&str, &str)| {
            name.to_ascii_lowercase().contains("charset") || may_set_parameter(value, "charset")
        };
        let charset_count = self.parameters.iter().filter(names_charset).count();
        if charset_count == 0 && !may_set_parameter(self.value, "charset") {
            return true;
        }
        let charset = self.unique_value("charset").filter(|_| charset_count == 1);
        let charset = charset.unwrap_or_default().to_ascii_lowercase();
        // In a form, escapes may stand for bytes beyond ASCII, so the decoded text decides.
        UTF8_CHARSETS.contains(&&*charset)
            || (ASCII_CHARSETS.contains(&&*charset) && form::decode(text).is_ascii())
    }
}

/// Parses a parameter's value without quotes. Returns the value, and the text after the `;` that ends it. `None` if the
/// value is no token.
fn parse_token_value(text: &str) -> Option<(&str, &str)> {
    let (token, after) = text.split_once(';').unwrap_or((text, ""));
    let token = token.trim_end_matches([' ', '\t']);
    token.bytes().all(is_token_byte).then_some((token, after))
}

/// Parses a parameter's value in quotes; `text` begins after the opening quote. Returns the value, and the text after the
/// `;` that ends it. `None` if the closing quote is missing or uncertain, or if other text than a `;` follows it.
fn parse_quoted_value(text: &str) -> Option<(&str, &str)> {
    let (value, after) = split_at_closing_quote(text)?;
    let after = after.trim_start_matches([' ', '\t']);
    match after.strip_prefix(';') {
        Some(after) => Some((value, after)),
        None => after.is_empty().then_some((value, after)),
    }
}

/// Splits a text at the quote that closes a value, into the value and the text after the quote; `None` without such a
/// quote. Some readers take an escaped quote (RFC 9110, section 5.6.4) for the closing one. `None` also if such readers
/// could find other parameters than strict readers do.
fn split_at_closing_quote(text: &str) -> Option<(&str, &str)> {
    let first_quote = text.find('"')?;
    let mut closing_quote = first_quote;
    while text[..closing_quote].ends_with('\\') {
        // Some readers take the second backslash as escaped, others as the escape of the quote.
        if text[..closing_quote].ends_with("\\\\") {
            return None;
        }
        closing_quote += 1 + text[closing_quote + 1..].find('"')?;
    }
    let after = &text[closing_quote + 1..];
    let is_last_parameter = || after.trim_matches([' ', '\t', ';']).is_empty();
    let has_separators = || text[first_quote..closing_quote].contains([';', '=', ',']);
    let has_escaped_quote = first_quote < closing_quote;
    let is_certain = !has_escaped_quote || (is_last_parameter() && !has_separators());
    is_certain.then_some((&text[..closing_quote], after))
}

/// Whether readers that search a text for a parameter of this name find one in it.
fn may_set_parameter(text: &str, name: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut texts_after_name = text
        .match_indices(name)
        .map(|(start, name)| &text[start + name.len()..]);
    texts_after_name.any(|after| after.trim_start_matches([' ', '\t', '*']).starts_with('='))
}

/// The name of a parameter without the `*` of an encoded one and the number of a piece.
fn without_star_suffix(name: &str) -> &str {
    name.split('*').next().unwrap_or_default()
}

/// Whether the name has only characters that no reader takes for the end of a name.
fn is_parameter_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_*".contains(c);
    !name.is_empty() && name.chars().all(is_plain)
}

/// Whether the byte may stand in a token (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
