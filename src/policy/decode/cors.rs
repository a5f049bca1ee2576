//! Reads `cors`: which pages of other origins may read responses.

use std::fmt::Write;
use std::time::Duration;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField, RequiredField, Section, section};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Node, YamlValue};
use super::ValueError;
use super::field::{BoolField, DurationField, ListField, scalar_fields};
use super::scalar::HeaderNameField;
use crate::route::{AllowedOrigins, Cors, OriginPattern};

/// Maximum number of origins of one section.
const MAX_ORIGINS: usize = 1_000;

/// Maximum `max_age` in milliseconds: a day, which Firefox takes too; Chromium takes two hours.
const MAX_AGE_MILLIS: u64 = 86_400_000;

/// The default of `max_age`.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(600);

section! {
    /// Which pages of other origins may read responses.
    pub struct CorsConfig, table CORS_TABLE = "`cors`",
        "Which pages of other origins may read responses (CORS). The gateway answers preflights itself, and what the upstream says of CORS is dropped.", check check_cors;
    origins: RequiredField<ListField<LocatedField<OriginField>>> = Vec::new(),
        "Their origins. `*` is any origin; `https://*.example.com` is all names below a domain.", "https://app.example.com";
    allows_credentials("credentials"): BoolField = false,
        "Whether their requests may carry cookies and other credentials that the browser keeps.", "true";
    allowed_fields("headers"): ListField<HeaderNameField> = Vec::new(),
        "The headers that their requests may have. Default: those that they ask for.", "[authorization, content-type]";
    exposed_fields("expose"): ListField<HeaderNameField> = Vec::new(),
        "The headers that they may read, beside those of limits and those that browsers always show.", "etag";
    max_age: DurationField<0, MAX_AGE_MILLIS> = DEFAULT_MAX_AGE,
        "How long browsers may remember that a request is allowed.", "1h";
}

static ORIGIN_FORMAT: TextFormat = TextFormat {
    name: "origin",
    pattern: r"^(\*|[a-z][a-z0-9+.-]*://(\*\.)?[^/\s]+)$",
    doc: "Scheme, host and port of pages, as browsers write them: https://app.example.com; https://*.example.com for all names below; * for any.",
};

scalar_fields! {
    /// A field with an origin; `None` for `*`.
    pub struct OriginField: Option<OriginPattern> =
        ValueShape::Format(&ORIGIN_FORMAT), "an origin such as https://app.example.com", parse_origin;
}

/// What a file says of CORS.
#[derive(Clone, Debug, PartialEq)]
pub enum CorsChoice {
    /// The upstream decides, whatever the gateway file says.
    Off,
    /// These pages may read responses.
    On(Box<CorsConfig>),
}

/// A field with the word `off` or with a map.
pub struct CorsField;

impl FieldReader for CorsField {
    type Value = CorsChoice;
    const SHAPE: ValueShape =
        ValueShape::AnyOf(&[ValueShape::Words(&["off"]), ValueShape::Table(&CORS_TABLE)]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<CorsChoice> {
        if matches!(node.value, YamlValue::Map(_)) {
            let config = CorsConfig::read(cx, node)?;
            return Some(CorsChoice::On(Box::new(config)));
        }
        let example = "`off` or `{ origins: https://app.example.com }`";
        cx.read_scalar(node, example, |text| {
            let help = format!("write {example}");
            let error = || ValueError::new(format!("unknown word `{text}`"), help);
            (text == "off").then_some(CorsChoice::Off).ok_or_else(error)
        })
    }
}

impl CorsChoice {
    /// What a route does by this choice; `None` for [`CorsChoice::Off`].
    pub fn compile(&self) -> Option<Cors> {
        let CorsChoice::On(config) = self else {
            return None;
        };
        let origins = config.origins.iter().map(|origin| origin.value.clone());
        let names = |names: &[http::HeaderName]| {
            let names: Vec<_> = names.iter().map(http::HeaderName::as_str).collect();
            names.join(", ")
        };
        let mut exposed_fields = String::new();
        for name in &config.exposed_fields {
            let _ = write!(exposed_fields, ", {name}");
        }
        Some(Cors {
            origins: origins
                .collect::<Option<Vec<_>>>()
                .map_or(AllowedOrigins::Any, AllowedOrigins::Listed),
            allows_credentials: config.allows_credentials,
            allowed_fields: (!config.allowed_fields.is_empty())
                .then(|| names(&config.allowed_fields).into()),
            exposed_fields: exposed_fields.into(),
            max_age_seconds: config.max_age.as_secs(),
        })
    }
}

/// Reports `*` beside other origins or with credentials, `*` as a header, and a list that is too long.
fn check_cors(cx: &mut LoadContext, fields: &MapFields<'_>, cors: &CorsConfig) {
    let location = fields.location_of("origins");
    if cors.origins.len() > MAX_ORIGINS {
        let message = format!("`cors` allows at most {MAX_ORIGINS} origins");
        let help = "write `https://*.example.com` for all names below a domain";
        cx.error(location, message, Some(help.into()));
    }
    for (name, fields_of_name) in [
        ("headers", &cors.allowed_fields),
        ("expose", &cors.exposed_fields),
    ] {
        if fields_of_name.iter().any(|field| field.as_str() == "*") {
            let help = match name {
                "headers" => "leave `headers` out: then those that they ask for are allowed",
                _ => "name the headers",
            };
            let message = "browsers do not always take `*` for all headers";
            cx.error(fields.value_location(name), message, Some(help.into()));
        }
    }
    let Some(any) = cors.origins.iter().find(|origin| origin.value.is_none()) else {
        return;
    };
    if cors.origins.len() > 1 {
        let help = "leave the other origins out, or the `*`";
        cx.error(
            any.location,
            "`*` is any origin, so the others say nothing",
            Some(help.into()),
        );
    }
    if cors.allows_credentials {
        let help = "name the origins whose pages may use the credentials of their users";
        cx.error(
            any.location,
            "with `credentials: true` any page could act for its users",
            Some(help.into()),
        );
    }
}

/// Parses an origin; `None` for `*`.
fn parse_origin(text: &str) -> Result<Option<OriginPattern>, ValueError> {
    if text == "*" {
        return Ok(None);
    }
    OriginPattern::parse(text).map(Some).map_err(|error| {
        let help = match error.suggestion {
            Some(origin) => format!("write `{origin}`"),
            None => "write scheme and host as browsers send them, for instance `https://app.example.com`".into(),
        };
        ValueError::new(format!("`{text}` is not an origin"), help)
    })
}
