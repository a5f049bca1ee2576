//! The bodies that operators write for refusals of the gateway: pages for browsers, and JSON in place of problem documents.
//! This file fills templates; `serve/stack/own_page.rs` chooses the page of a request.
//!
//! A value never ends the text that it stands in: it is escaped for HTML or for a JSON string. Values are filled in once, so
//! that `${…}` in a value stays as it is.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;

/// The statuses that a refusal of the gateway may have.
pub const REFUSAL_STATUSES: [u16; 15] = [
    400, 401, 403, 404, 405, 408, 413, 414, 421, 429, 431, 502, 503, 504, 505,
];

/// Maximum bytes of a value that the client chooses. A longer one is cut, so that a short request never gets a long page.
const MAX_VALUE_BYTES: usize = 256;

/// The pages of a route, or of requests without a route, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(pub Vec<(u16, Arc<ErrorPage>)>);

/// The bodies for one status, of which at least one is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPage {
    /// The page for clients that prefer HTML to JSON.
    pub html: Option<Arc<PageTemplate>>,
    /// The body for all other clients, and for all where there is no `html`. `None` for a problem document.
    pub json: Option<Arc<PageTemplate>>,
}

/// A file with `${…}` for what each refusal has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageTemplate {
    /// The name of the file, as the configuration has it.
    pub file: Box<str>,
    /// The parts in order.
    pub parts: Vec<PagePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// A text that is the same for every request.
    Text(Bytes),
    /// A value, and how it is written there.
    Value(PageVariable, ValueForm),
}

/// How a value is written in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// As text or in the quoted value of an attribute.
    Html,
    /// Inside a JSON string.
    JsonText,
    /// As a whole JSON value: `null` if it is absent, a number or a string.
    JsonValue,
}

/// What a template may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageVariable {
    /// The status.
    Status,
    /// The title of the problem document.
    Title,
    /// The sentence for people of the problem document.
    Detail,
    /// The type of the problem document.
    Type,
    /// The names of the limits that refuse; absent without one that clients may know of.
    Limit,
    /// The seconds in `Retry-After`; absent without the field.
    RetryAfter,
    /// The id of the request.
    RequestId,
    /// The host of the request in canonical form; absent if its head cannot be read.
    Host,
    /// The path of the request, as the client has sent it; absent if its head cannot be read.
    Path,
    /// The address of the client; absent if it may be another's.
    Ip,
}

impl PageVariable {
    /// All variables.
    pub const ALL: [PageVariable; 10] = [
        PageVariable::Status,
        PageVariable::Title,
        PageVariable::Detail,
        PageVariable::Type,
        PageVariable::Limit,
        PageVariable::RetryAfter,
        PageVariable::RequestId,
        PageVariable::Host,
        PageVariable::Path,
        PageVariable::Ip,
    ];

    /// The name in templates.
    pub fn as_str(self) -> &'static str {
        match self {
            PageVariable::Status => "status",
            PageVariable::Title => "title",
            PageVariable::Detail => "detail",
            PageVariable::Type => "type",
            PageVariable::Limit => "limit",
            PageVariable::RetryAfter => "retry_after",
            PageVariable::RequestId => "request_id",
            PageVariable::Host => "host",
            PageVariable::Path => "path",
            PageVariable::Ip => "ip",
        }
    }

    /// Whether the values are whole numbers.
    fn is_number(self) -> bool {
        matches!(self, PageVariable::Status | PageVariable::RetryAfter)
    }

    /// Whether requests of one URL have different values, so that no cache may keep a page that has one.
    fn is_personal(self) -> bool {
        matches!(self, PageVariable::RequestId | PageVariable::Ip)
    }
}

impl ErrorPages {
    /// The page for this status.
    pub fn find(&self, status: u16) -> Option<&Arc<ErrorPage>> {
        let mut pages = self.0.iter();
        pages
            .find(|(other, _)| *other == status)
            .map(|(_, page)| page)
    }
}

impl ErrorPage {
    /// The template for a client; `None` if it gets a problem document.
    pub fn template(&self, prefers_html: bool) -> Option<&Arc<PageTemplate>> {
        let html = self.html.as_ref().filter(|_| prefers_html);
        html.or(self.json.as_ref())
    }

    /// The names of the files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [&self.html, &self.json]
            .into_iter()
            .flatten()
            .map(|template| &*template.file)
    }
}

impl PageTemplate {
    /// Whether no cache may keep the page, because it is about one request.
    pub fn is_personal(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, PagePart::Value(variable, _) if variable.is_personal()))
    }

    /// The page with these values; `value` returns `None` for one that is absent. A page without values is not copied.
    pub fn render<'v>(&self, value: impl Fn(PageVariable) -> Option<&'v str>) -> Bytes {
        if let [PagePart::Text(text)] = self.parts.as_slice() {
            return text.clone();
        }
        let mut page = Vec::new();
        for part in &self.parts {
            match part {
                PagePart::Text(text) => page.extend_from_slice(text),
                PagePart::Value(variable, form) => {
                    write_value(&mut page, *variable, *form, value(*variable));
                }
            }
        }
        page.into()
    }
}

fn write_value(page: &mut Vec<u8>, variable: PageVariable, form: ValueForm, value: Option<&str>) {
    let text = value.unwrap_or_default();
    let text = match variable {
        PageVariable::Host | PageVariable::Path => cut(text),
        _ => text,
    };
    match (form, value) {
        (ValueForm::Html, _) => {
            let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
            if variable == PageVariable::Path && text.bytes().take(2).filter(is_slash).count() == 2
            {
                // In a link it would name a host.
                page.extend_from_slice(b"/.");
            }
            write_html(page, text);
        }
        (ValueForm::JsonText, _) => write_json(page, text),
        (ValueForm::JsonValue, None) => page.extend_from_slice(b"null"),
        (ValueForm::JsonValue, Some(_)) if variable.is_number() => {
            page.extend_from_slice(text.as_bytes());
        }
        (ValueForm::JsonValue, Some(_)) => {
            page.push(b'"');
            write_json(page, text);
            page.push(b'"');
        }
    }
}

/// The beginning of a text, of at most [`MAX_VALUE_BYTES`].
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_VALUE_BYTES)]
}

/// Appends a text in which every ASCII character is a reference that could mean something in HTML, in an attribute or in a
/// script. Templates may have values in places where quotes alone would not be enough.
fn write_html(page: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b" -_.~:/,;?!()@+%#".contains(&byte);
        if is_plain || !byte.is_ascii() {
            page.push(byte);
        } else {
            let _ = write!(page, "&#{byte};");
        }
    }
}

/// Appends a text as it stands between the quotes of a JSON string. What could end a script in HTML is escaped too.
fn write_json(page: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => page.extend([b'\\', byte]),
            b'<' | b'>' | b'&' | 0..0x20 | 0x7f => {
                let _ = write!(page, "\\u{byte:04x}");
            }
            _ => page.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(variable: PageVariable, form: ValueForm, value: Option<&str>) -> String {
        let mut page = Vec::new();
        write_value(&mut page, variable, form, value);
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn no_value_ends_its_text() {
        let html = |text| written(PageVariable::Detail, ValueForm::Html, Some(text));
        assert_eq!(
            html("<a b=\"c\">'&`\\{"),
            "&#60;a b&#61;&#34;c&#34;&#62;&#39;&#38;&#96;&#92;&#123;"
        );
        assert_eq!(
            html("${status} é\n\0"),
            "&#36;&#123;status&#125; é&#10;&#0;"
        );
        assert_eq!(
            html("/a-b_c.d~e:f,g;h?i!j(k)l@m+n%o#p"),
            "/a-b_c.d~e:f,g;h?i!j(k)l@m+n%o#p"
        );
        // Everything that JSON can say comes back.
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        for form in [ValueForm::JsonText, ValueForm::JsonValue] {
            let json = written(PageVariable::Detail, form, Some(&all));
            let json = match form {
                ValueForm::JsonText => format!("\"{json}\""),
                _ => json,
            };
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
            assert!(!json.contains(['<', '>', '&']));
        }
    }

    #[test]
    fn numbers_and_absent_values() {
        let json = |variable, value| written(variable, ValueForm::JsonValue, value);
        assert_eq!(json(PageVariable::RetryAfter, Some("7")), "7");
        assert_eq!(json(PageVariable::RetryAfter, None), "null");
        assert_eq!(json(PageVariable::Limit, Some("a, b")), "\"a, b\"");
        assert_eq!(written(PageVariable::Limit, ValueForm::JsonText, None), "");
        assert_eq!(written(PageVariable::Limit, ValueForm::Html, None), "");
    }

    #[test]
    fn what_a_client_chooses_is_cut() {
        let long = "ä<".repeat(200);
        for variable in [PageVariable::Path, PageVariable::Host] {
            let html = written(variable, ValueForm::Html, Some(&long));
            assert_eq!(html.matches("&#60;").count(), 85);
        }
        let detail = written(PageVariable::Detail, ValueForm::JsonText, Some(&long));
        assert_eq!(detail.matches("ä").count(), 200);
    }
}
