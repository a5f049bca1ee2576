//! Compiles `errors`: reads the files with the bodies of refusals, and parses the names in them. Each file is read once,
//! whatever number of policies inherits it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::super::context::LoadContext;
use super::super::decode::{ErrorPageConfig, GatewayConfig, PolicyConfig, find_error_page};
use super::super::source::Files;
use super::super::tree::{Located, SourceLocation};
use super::files::read_page_file;
use crate::base::suggest::{list_words, nearest_word};
use crate::route::error_page::REFUSAL_STATUSES;
use crate::route::{ErrorPage, ErrorPages, PagePart, PageTemplate, PageVariable, ValueForm};

/// Maximum bytes of a file. A client that reads nothing makes the gateway hold a page for each of its open requests.
const MAX_PAGE_BYTES: usize = 32 * 1024;

/// Maximum number of values in a file.
const MAX_VALUES: usize = 32;

/// Compiles the bodies of refusals.
pub(super) struct ErrorPageCompiler<'c> {
    files: &'c dyn Files,
    base: &'c Path,
    has_request_ids: bool,
    /// The files that were read so far, by their names; `None` for one with a mistake.
    templates: HashMap<String, Option<Arc<PageTemplate>>>,
    /// Those of the gateway file; `None` if there are none.
    of_gateway: Option<Arc<ErrorPages>>,
}

/// A mistake in a file: its offset and its length in bytes, the message and the help.
struct TemplateError {
    offset: usize,
    length: usize,
    message: String,
    help: String,
}

impl<'c> ErrorPageCompiler<'c> {
    /// Compiles those of the gateway file.
    pub(super) fn new(
        cx: &mut LoadContext,
        files: &'c dyn Files,
        base: &'c Path,
        gateway: &GatewayConfig,
    ) -> ErrorPageCompiler<'c> {
        let mut compiler = ErrorPageCompiler {
            files,
            base,
            has_request_ids: gateway.request_id.is_some(),
            templates: HashMap::new(),
            of_gateway: None,
        };
        compiler.of_gateway = compiler.compile(cx, &gateway.errors);
        compiler
    }

    /// Those of the gateway file.
    pub(super) fn of_gateway(&self) -> Option<Arc<ErrorPages>> {
        self.of_gateway.clone()
    }

    /// Compiles those of a policy. For other statuses those of the gateway file hold.
    pub(super) fn compile_policy(
        &mut self,
        cx: &mut LoadContext,
        policy: &PolicyConfig,
    ) -> Option<Arc<ErrorPages>> {
        match policy.errors.is_empty() {
            true => self.of_gateway.clone(),
            false => self.compile(cx, &policy.errors),
        }
    }

    fn compile(
        &mut self,
        cx: &mut LoadContext,
        configs: &[ErrorPageConfig],
    ) -> Option<Arc<ErrorPages>> {
        let above = self.of_gateway.clone().unwrap_or_default();
        let mut pages = Vec::new();
        for status in REFUSAL_STATUSES {
            let page = match find_error_page(configs, status) {
                Some(ErrorPageConfig { files, .. }) => {
                    let mut read = |file: &Option<Located<String>>, is_json| {
                        self.read_template(cx, file.as_ref()?, is_json)
                    };
                    Some(Arc::new(ErrorPage {
                        html: read(&files.html, false),
                        json: read(&files.json, true),
                    }))
                }
                None => above.find(status).cloned(),
            };
            pages.extend(page.map(|page| (status, page)));
        }
        (!pages.is_empty()).then(|| Arc::new(ErrorPages(pages)))
    }

    /// The template in a file; `None` after a mistake, which is reported once.
    fn read_template(
        &mut self,
        cx: &mut LoadContext,
        file: &Located<String>,
        is_json: bool,
    ) -> Option<Arc<PageTemplate>> {
        if let Some(template) = self.templates.get(&file.value) {
            return template.clone();
        }
        let text = read_page_file(cx, self.files, self.base, file, MAX_PAGE_BYTES);
        let template = text.and_then(|text| {
            let parsed = parse_template(&text, is_json, self.has_request_ids);
            let report = |errors| report_errors(cx, self.base, file, &text, errors);
            let parts = parsed.map_err(report).ok()?;
            let file = file.value.as_str().into();
            Some(Arc::new(PageTemplate { file, parts }))
        });
        self.templates.insert(file.value.clone(), template.clone());
        template
    }
}

/// Reports the mistakes in a file, at their lines and columns.
fn report_errors(
    cx: &mut LoadContext,
    base: &Path,
    file: &Located<String>,
    text: &str,
    errors: Vec<TemplateError>,
) {
    let name = base.join(&file.value).display().to_string();
    let number = cx.sources.add(&name, text.to_owned());
    let to_number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    for error in errors {
        let before = &text[..text.floor_char_boundary(error.offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = text.floor_char_boundary(error.offset + error.length);
        let location = SourceLocation {
            line: to_number(before.matches('\n').count() + 1),
            column: to_number(before[line_start..].chars().count() + 1),
            width: to_number(text[before.len()..end].chars().count().max(1)),
            ..SourceLocation::start_of(number)
        };
        cx.error(location, error.message, Some(error.help));
    }
}

/// Parses a file: text, `${name}`, and `$${` for a `${` that is no name. In JSON all names stand in strings, because the file
/// itself must be JSON.
///
/// # Errors
///
/// All mistakes of the file.
fn parse_template(
    text: &str,
    is_json: bool,
    has_request_ids: bool,
) -> Result<Vec<PagePart>, Vec<TemplateError>> {
    if is_json && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return Err(vec![json_error(text, &error)]);
    }
    let (mut parts, mut errors) = (Vec::new(), Vec::new());
    let mut literal = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            literal.push_str(before);
            literal.push_str("${");
            rest = after;
            continue;
        }
        literal.push_str(before);
        let offset = text.len() - after.len() - 2;
        let name_length = after.find(|c: char| !c.is_ascii_alphanumeric() && !"_-.:".contains(c));
        let (name, after_name) = after.split_at(name_length.unwrap_or(after.len()));
        rest = after_name.strip_prefix('}').unwrap_or(after_name);
        let error_at_name = |(message, help)| TemplateError {
            offset,
            length: name.len() + 3,
            message,
            help,
        };
        let is_closed = after_name.starts_with('}');
        match parse_variable(name, is_closed, has_request_ids).map_err(error_at_name) {
            Err(error) => errors.push(error),
            Ok(variable) => {
                let is_whole = is_json && is_whole_value(&literal, rest);
                if is_whole {
                    literal.pop();
                    rest = &rest[1..];
                }
                push_text(&mut parts, &mut literal);
                parts.push(PagePart::Value(
                    variable,
                    match (is_json, is_whole) {
                        (false, _) => ValueForm::Html,
                        (true, false) => ValueForm::JsonText,
                        (true, true) => ValueForm::JsonValue,
                    },
                ));
            }
        }
    }
    literal.push_str(rest);
    push_text(&mut parts, &mut literal);
    let mut values = parts
        .iter()
        .filter(|part| matches!(part, PagePart::Value(..)));
    if values.nth(MAX_VALUES).is_some() {
        errors.push(TemplateError {
            offset: 0,
            length: 1,
            message: format!("this file names more than {MAX_VALUES} values"),
            help: "name less of them".into(),
        });
    }
    match errors.is_empty() {
        true => Ok(parts),
        false => Err(errors),
    }
}

/// Moves a text to the parts, unless it is empty and not the only part.
fn push_text(parts: &mut Vec<PagePart>, literal: &mut String) {
    if !literal.is_empty() {
        parts.push(PagePart::Text(Bytes::from(std::mem::take(literal))));
    }
}

/// Whether a name between these texts is all of a JSON string that is no key of an object. The text before begins a string
/// with a quote that no backslash escapes.
fn is_whole_value(before: &str, after: &str) -> bool {
    let opens = before.strip_suffix('"').is_some_and(|before| {
        let outside = before.trim_end().chars().next_back();
        matches!(outside, None | Some(':' | ',' | '['))
    });
    let follows = after.strip_prefix('"').map(str::trim_start);
    opens && follows.is_some_and(|after| !after.starts_with(':'))
}

/// Parses the name of a value. The error is a message and a help.
fn parse_variable(
    name: &str,
    is_closed: bool,
    has_request_ids: bool,
) -> Result<PageVariable, (String, String)> {
    let names = PageVariable::ALL.map(PageVariable::as_str);
    let mut variables = PageVariable::ALL.into_iter();
    match variables.find(|variable| is_closed && variable.as_str() == name) {
        Some(PageVariable::RequestId) if !has_request_ids => Err((
            "requests have no id".into(),
            "add `request_id: x-request-id` to the gateway file".into(),
        )),
        Some(variable) => Ok(variable),
        None if !is_closed => Err((
            "`${` is followed by no name and `}`".into(),
            "write a name such as `${detail}`, or `$${` for the text `${`".into(),
        )),
        None => Err((
            format!("`${{{name}}}` is no value of a refusal"),
            match nearest_word(name, names) {
                Some(nearest) => format!("did you mean `${{{nearest}}}`?"),
                None => format!(
                    "the names are {}; `$${{` is the text `${{`",
                    list_words(names)
                ),
            },
        )),
    }
}

/// The mistake of a file that is no JSON.
fn json_error(text: &str, error: &serde_json::Error) -> TemplateError {
    let lines = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    let line_start: usize = lines.map(str::len).sum();
    let offset = line_start + error.column().saturating_sub(1);
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    let is_at_name = text
        .get(offset..)
        .is_some_and(|rest| rest.starts_with("${"));
    TemplateError {
        offset,
        length: 1,
        message: format!("this file is no JSON: {reason}"),
        help: match is_at_name {
            true => {
                "write the name in quotes: a string that is `${retry_after}` alone becomes a number"
                    .into()
            }
            false => "names stand in strings, for instance `{\"message\": \"${detail}\"}`".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of a file that is right. Numbers stand for status and `retry_after`, all other values are `<"\>`.
    #[track_caller]
    fn check(text: &str, is_json: bool, expected: &str) {
        let parts = parse_template(text, is_json, true).unwrap_or_else(|errors| {
            let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
            panic!("{text}: {messages:?}")
        });
        let template = PageTemplate {
            file: "file".into(),
            parts,
        };
        let page = template.render(|variable| match variable {
            PageVariable::Status => Some("429"),
            PageVariable::RetryAfter => Some("7"),
            PageVariable::Limit => None,
            _ => Some("<\"\\>"),
        });
        assert_eq!(page, expected, "{text}");
        if is_json {
            let parsed = serde_json::from_slice::<serde_json::Value>(&page);
            assert!(parsed.is_ok(), "{text}");
        }
    }

    #[test]
    fn html() {
        check("", false, "");
        check("a$b${status}${status}$", false, "a$b429429$");
        check(
            "$${status} $$(x) $$${status}",
            false,
            "${status} $$(x) $${status}",
        );
        check(
            "<p title=\"${detail}\">${limit}",
            false,
            "<p title=\"&#60;&#34;&#92;&#62;\">",
        );
    }

    #[test]
    fn json() {
        check("\"${status}\"", true, "429");
        check("\"${detail}\"", true, r#""\u003c\"\\\u003e""#);
        check(
            "{ \"a\" :\n\"${status}\" , \"b\": [\"${retry_after}\",\"${limit}\"], \"c\": \"${limit} \" }",
            true,
            "{ \"a\" :\n429 , \"b\": [7,null], \"c\": \" \" }",
        );
        // Keys stay strings, and so does what only looks like a whole string.
        check("{\"${status}\" : 1}", true, "{\"429\" : 1}");
        check(r#""x:\"${status}\"""#, true, r#""x:\"429\"""#);
        check(r#"["a:","${status}${status}"]"#, true, r#"["a:","429429"]"#);
        check(r#""$${status}""#, true, r#""${status}""#);
        check(
            r#"["${status}", "\\","${status}"]"#,
            true,
            r#"[429, "\\",429]"#,
        );
    }
}
