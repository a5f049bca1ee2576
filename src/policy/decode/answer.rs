//! Reads `redirect` and `respond`, by which the gateway answers the requests of a policy itself.

use http::StatusCode;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, RequiredField, Section, section};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::field::{FileNameField, scalar_fields};
use crate::route::redirect::RedirectTargetError;
use crate::route::{FixedResponse, RedirectTarget};

/// The statuses of redirects.
const REDIRECT_STATUSES: [u64; 4] = [301, 302, 307, 308];

section! {
    /// A redirect: where clients are sent, and the status.
    pub struct RedirectConfig, table REDIRECT_TABLE = "`redirect`", "Where clients are sent, and how.";
    to: RequiredField<LocatedField<RedirectTargetField>>,
        "`https`, a URL or a path. `https` and a URL without a path keep the path and the query of the request. With `strip` of the policy every target does: what is left of the path follows it.", "/new";
    status: RedirectStatusField = StatusCode::PERMANENT_REDIRECT,
        "301 or 308 for good, 302 or 307 for now. With 307 and 308 clients repeat the method and the body.", "302";
}

section! {
    /// A response of the gateway itself.
    pub struct ResponseConfig, table RESPONSE_TABLE = "`respond`",
        "The answer of the gateway itself.", check check_response;
    status: RequiredField<LocatedField<ResponseStatusField>>, "Its status.", "503";
    body: LocatedField<BodyTextField>, "Its body. Default: none.", "back soon";
    body_file: FileNameField, "The file of its body, of at most 1 MiB.", "maintenance.html";
    content_type("type"): ContentTypeField = "text/plain; charset=utf-8".into(),
        "The media type of its body.", "text/html; charset=utf-8";
}

static REDIRECT_FORMAT: TextFormat = TextFormat {
    name: "redirect",
    pattern: r"^(https|https?://[^/?#@\\]+([/?#].*)?|/([^/].*)?)$",
    doc: "`https`, a URL such as https://www.example.com, or a path such as /new.",
};

scalar_fields! {
    /// A field with the target of a redirect.
    pub struct RedirectTargetField: RedirectTarget =
        ValueShape::Format(&REDIRECT_FORMAT), "`https`, a URL or a path", parse_target;
    /// A field with the text of a body, which may have line breaks.
    pub struct BodyTextField: String = ValueShape::Text, "a text", |text| Ok(text.to_owned());
    /// A field with a media type.
    pub struct ContentTypeField: String = ValueShape::Text, "a media type such as text/html", parse_content_type;
}

/// A field with the status of a redirect.
pub struct RedirectStatusField;

impl FieldReader for RedirectStatusField {
    type Value = StatusCode;
    const SHAPE: ValueShape = ValueShape::WholeNumber(301, 308);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<StatusCode> {
        let number = cx.read_whole_number(node, 301, 308)?;
        if !REDIRECT_STATUSES.contains(&number) {
            let message = format!("`{number}` is no status that `redirect` accepts");
            let help = "write 301, 302, 307 or 308";
            cx.error(node.location, message, Some(help.into()));
            return None;
        }
        to_status(number)
    }

    fn format_value(status: &StatusCode) -> String {
        status.as_str().into()
    }
}

/// A field with the status of a final response.
pub struct ResponseStatusField;

impl FieldReader for ResponseStatusField {
    type Value = StatusCode;
    const SHAPE: ValueShape = ValueShape::WholeNumber(200, 599);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<StatusCode> {
        to_status(cx.read_whole_number(node, 200, 599)?)
    }
}

fn to_status(number: u64) -> Option<StatusCode> {
    StatusCode::from_u16(u16::try_from(number).ok()?).ok()
}

/// A field with a redirect: its target, or a map.
pub struct RedirectField;

impl FieldReader for RedirectField {
    type Value = RedirectConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Format(&REDIRECT_FORMAT),
        ValueShape::Table(&REDIRECT_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<RedirectConfig> {
        if matches!(node.value, YamlValue::Map(_)) {
            return RedirectConfig::read(cx, node);
        }
        Some(RedirectConfig {
            to: Some(LocatedField::<RedirectTargetField>::read(cx, node)?),
            ..RedirectConfig::default()
        })
    }
}

/// Reports two bodies, and a body that a response of this status cannot have.
fn check_response(cx: &mut LoadContext, fields: &MapFields<'_>, response: &mut ResponseConfig) {
    let bodies = ["body", "body_file"];
    let has_body = bodies.iter().any(|name| fields.has(name));
    if has_body {
        fields.require_one_of(cx, &bodies);
    }
    if !has_body && fields.has("type") {
        let message = "`type` belongs to a body, which is not here";
        cx.error(
            fields.location_of("type"),
            message,
            Some("remove it".into()),
        );
    }
    let status = response.status.as_ref().map(|status| status.value);
    if let Some(status) = status.filter(|status| FixedResponse::is_bodiless(*status)) {
        for name in bodies.iter().filter(|name| fields.has(name)) {
            let message = format!("a response of status {} has no body", status.as_u16());
            cx.error(
                fields.location_of(name),
                message,
                Some("remove it, or choose another status".into()),
            );
        }
    }
}

/// Parses where a redirect leads.
fn parse_target(text: &str) -> Result<RedirectTarget, ValueError> {
    RedirectTarget::parse(text).map_err(|error| {
        let help = match error {
            RedirectTargetError::OtherHost => {
                "write one slash for a path, or the whole URL: `https://www.example.com`"
            }
            RedirectTargetError::UserName => "write it without",
            RedirectTargetError::Character(_) => "escape it: `%20` for a blank",
            RedirectTargetError::Unknown | RedirectTargetError::Host => {
                "write `https`, a URL such as `https://www.example.com`, or a path such as `/new`"
            }
        };
        ValueError::new(format!("`{text}` leads nowhere: {error}"), help)
    })
}

/// Parses a media type with its parameters: visible ASCII characters and blanks, with a `/` in the middle.
fn parse_content_type(text: &str) -> Result<String, ValueError> {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let is_token = |text: &str| {
        let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(is_token_byte)
    };
    let has_both_names = essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let is_visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (has_both_names && is_visible)
        .then(|| text.trim().to_owned())
        .ok_or_else(|| {
            let message = format!("`{text}` is not a media type");
            ValueError::new(message, "write for instance `text/html; charset=utf-8`")
        })
}
