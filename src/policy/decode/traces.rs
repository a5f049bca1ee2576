//! Reads the section `traces`: where spans are sent, and for which requests. The files of the token and of authorities are
//! read later, when the model is compiled.

use http::Uri;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, RequiredField, section};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::Node;
use super::ValueError;
use super::field::{FileNameField, SecretFileNameField, scalar_fields};
use super::parse_text;
use super::push::{ExpectedUrl, check_ca};
use crate::trace::{SampleRate, Settings};

/// Maximum length in bytes of the name of the service.
const MAX_SERVICE_BYTES: usize = 256;

const EXPECTED_URL: ExpectedUrl = ExpectedUrl {
    owner: "a collector",
    schemes: &["http", "https"],
    example: "http://collector:4318/v1/traces",
};

static TRACES_URL_FORMAT: TextFormat = TextFormat {
    name: "traces_url",
    pattern: r"^https?://[^/@\s]+/\S+$",
    doc: "http:// or https:// with a path.",
};

static SAMPLE_FORMAT: TextFormat = TextFormat {
    name: "share",
    pattern: r"^[0-9]+(\.[0-9]{1,4})?\s*%$",
    doc: "A percentage: 1%, 0.05%.",
};

section! {
    /// Where spans are sent, and for which requests.
    pub struct TracesConfig, table TRACES_TABLE = "`traces`",
        "Spans of requests, which a collector of OpenTelemetry gets.", check check_traces;
    to: RequiredField<CollectorUrlField>, "Where the collector takes traces: OTLP over HTTP.", "https://collector:4318/v1/traces";
    sample: SampleField = SampleRate::DEFAULT,
        "How many requests are traced, unless a trusted proxy has decided by `traceparent`.", "1%";
    service: ServiceField = Settings::DEFAULT_SERVICE.to_owned(), "What traces call the gateway. Default: tollgate.", "edge";
    token_file: SecretFileNameField,
        "A file with the token that is sent as `Authorization: Bearer`.", "traces.token";
    ca: FileNameField, "Who vouches for its certificate, as PEM. Default: those whom the system trusts.", "ca.pem";
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    /// The URL.
    pub url: Uri,
    /// The URL as it is written, in which placeholders are not replaced by secrets.
    pub display: String,
}

/// A field with the address of a collector.
pub struct CollectorUrlField;

impl FieldReader for CollectorUrlField {
    type Value = CollectorUrl;
    const SHAPE: ValueShape = ValueShape::Format(&TRACES_URL_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<CollectorUrl> {
        let url = cx.read_scalar(node, "a URL", parse_url)?;
        let display = node.unfilled_text().map(str::to_owned);
        Some(CollectorUrl {
            display: display.unwrap_or_else(|| url.to_string()),
            url,
        })
    }
}

/// A field with a share of requests.
pub struct SampleField;

impl FieldReader for SampleField {
    type Value = SampleRate;
    const SHAPE: ValueShape = ValueShape::Format(&SAMPLE_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<SampleRate> {
        cx.read_scalar(node, "a percentage such as 1%", |text| {
            let help = "write a percentage from 0% to 100%, with at most four decimals: 1%, 0.05%";
            let error = |_| ValueError::new(format!("`{text}` is no share of requests"), help);
            text.trim().parse().map_err(error)
        })
    }

    fn format_value(rate: &SampleRate) -> String {
        rate.to_string()
    }
}

scalar_fields! {
    /// A field with the name of the gateway in traces.
    pub struct ServiceField: String = ValueShape::Text, "a name", parse_service;
}

fn parse_service(text: &str) -> Result<String, ValueError> {
    let name = parse_text(text, "a name")?;
    if name.len() > MAX_SERVICE_BYTES {
        let help = format!("write at most {MAX_SERVICE_BYTES} bytes");
        return Err(ValueError::new("this name is too long", help));
    }
    Ok(name)
}

fn parse_url(text: &str) -> Result<Uri, ValueError> {
    let url = EXPECTED_URL.parse(text)?;
    match url.path() {
        "" | "/" => Err(EXPECTED_URL.error(format!("`{text}` names no path"))),
        _ => Ok(url),
    }
}

/// Reports `ca` for a collector without TLS.
fn check_traces(cx: &mut LoadContext, fields: &MapFields<'_>, traces: &TracesConfig) {
    if let Some(to) = &traces.to {
        check_ca(cx, fields, &to.url);
    }
}
