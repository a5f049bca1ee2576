//! Reads `push` of the section `record`: the engines to which the gateway sends its record. The files of tokens and
//! authorities are read later, when the model is compiled.

use std::time::Duration;

use http::Uri;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, RequiredField, Section, section};
use super::super::table::{MapFields, TextFormat, ValueShape};
use super::super::tree::{Located, Node, SourceLocation};
use super::ValueError;
use super::field::{DurationField, FileNameField, SecretFileNameField, scalar_fields, word_fields};
use super::scalar::parse_name;
use crate::record::push::{Engine, MAX_DESTINATIONS, Settings};

/// Maximum number of labels of a destination.
const MAX_LABELS: usize = 16;
/// Maximum length in bytes of a label's name.
const MAX_LABEL_NAME_BYTES: usize = 64;
/// Maximum length in bytes of a label's value.
const MAX_LABEL_VALUE_BYTES: usize = 256;
/// Maximum length in characters of a name that is made from a URL: that of names that users choose.
const MAX_DEFAULT_NAME_CHARS: usize = 64;

/// Minimum of `every`, in milliseconds.
const MIN_STEP_MILLIS: u64 = Settings::MIN_STEP_SECONDS * 1_000;
/// Maximum of `every`, in milliseconds.
const MAX_STEP_MILLIS: u64 = Settings::MAX_STEP_SECONDS * 1_000;

static PUSH_URL_FORMAT: TextFormat = TextFormat {
    name: "push_url",
    pattern: r"^(https?|tcp)://[^/@\s]+(/\S*)?$",
    doc: "http:// or https:// with a path, or tcp://HOST:PORT for Graphite.",
};

section! {
    /// The fields of a destination, from which its settings are made.
    pub struct DestinationFields, table DESTINATION_TABLE = "a destination of `push`",
        "An engine to which what is recorded is sent.", check check_step;
    to: RequiredField<EngineField>,
        "What it speaks: Prometheus remote write, Graphite's lines, OTLP over HTTP.", "prometheus";
    url: RequiredField<UrlField>, "Where it is.", "http://prom:9090/api/v1/write";
    name: DestinationNameField,
        "Its name in metrics and the log, by which the gateway knows what it has already. Default: from `to` and `url`.", "central";
    every: DurationField<MIN_STEP_MILLIS, MAX_STEP_MILLIS> = Duration::from_secs(Settings::DEFAULT_STEP_SECONDS),
        "A sample of each series is sent for each of these steps.", "15s";
    labels: LabelsField = Vec::new(),
        "What each series is labelled with, to tell several gateways apart.", "{ instance: edge-1 }";
    token_file: SecretFileNameField,
        "A file with the token that is sent as `Authorization: Bearer`.", "push.token";
    ca: FileNameField, "Who vouches for its certificate, as PEM. Default: those whom the system trusts.", "ca.pem";
}

word_fields! {
    /// A field with the protocol of a destination.
    pub struct EngineField: Engine =
        "prometheus" => Engine::Prometheus, "graphite" => Engine::Graphite, "otlp" => Engine::Otlp;
}

scalar_fields! {
    /// A field with the name of a destination.
    pub struct DestinationNameField: String =
        ValueShape::Text, "a name", |text| Ok(parse_name(text, "a destination")?.to_string());
}

/// A field with a URL. [`read_destination`] parses it after all other fields, because its valid forms depend on `to`.
pub struct UrlField;

impl FieldReader for UrlField {
    type Value = ();
    const SHAPE: ValueShape = ValueShape::Format(&PUSH_URL_FORMAT);

    fn read(_: &mut LoadContext, _: &Node) -> Option<()> {
        None
    }
}

/// A destination to which the record is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// The location of the destination in the gateway file.
    pub location: SourceLocation,
    /// The settings without `token` and `roots`, which are read from files when the model is compiled.
    pub settings: Settings,
    /// The file with the bearer token.
    pub token_file: Option<Located<String>>,
    /// The file of the authorities that verify the destination's certificate.
    pub ca: Option<Located<String>>,
}

/// A field with one destination or a list of them. Those above [`MAX_DESTINATIONS`] are reported and dropped. A
/// repeated name is only reported.
pub struct DestinationsField;

impl FieldReader for DestinationsField {
    type Value = Vec<PushConfig>;
    const SHAPE: ValueShape = ValueShape::OneOrList(&ValueShape::Table(&DESTINATION_TABLE));

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<PushConfig>> {
        let mut names: Vec<String> = Vec::new();
        let mut destinations = cx.read_list(node, |cx, node| {
            let (push, name_location) = read_destination(cx, node)?;
            let name = &push.settings.name;
            if names.contains(name) {
                let message = format!("two destinations are named `{name}`");
                let help = "give one of them another `name`";
                cx.error(name_location, message, Some(help.into()));
            }
            names.push(name.clone());
            Some(push)
        });
        if destinations.len() > MAX_DESTINATIONS {
            let message = format!(
                "there are {} destinations; the most is {MAX_DESTINATIONS}",
                destinations.len()
            );
            let help = "remove some, or have one of them send to the others";
            cx.error(node.location, message, Some(help.into()));
            destinations.truncate(MAX_DESTINATIONS);
        }
        Some(destinations)
    }
}

/// Reads one destination. Also returns the location of its name, or of the URL from which the name was made. `None` for
/// a value that is no map, or if `to` or `url` is absent or invalid. Each mistake is reported.
fn read_destination(cx: &mut LoadContext, node: &Node) -> Option<(PushConfig, SourceLocation)> {
    let fields = DESTINATION_TABLE.open(cx, node)?;
    let written = DestinationFields::read_fields(cx, &fields);
    let url_node = fields.get("url")?;
    let url = cx.read_scalar(url_node, "a URL", |text| parse_url(text, written.to));
    let (engine, url) = (written.to?, url?);
    check_protocol_fields(cx, &fields, engine, &url);
    // The values of references in the URL may be secrets, so it is shown as written.
    let display_url = url_node.unfilled_text().map(str::to_owned);
    let name_location = match written.name {
        Some(_) => fields.value_location("name"),
        None => url_node.location,
    };
    let settings = Settings {
        name: written.name.unwrap_or_else(|| default_name(engine, &url)),
        engine,
        display_url: display_url.unwrap_or_else(|| url.to_string()),
        url,
        step_seconds: written.every.as_secs(),
        token: None,
        roots: None,
        labels: written.labels,
    };
    let push = PushConfig {
        location: node.location,
        settings,
        token_file: written.token_file,
        ca: written.ca,
    };
    Some((push, name_location))
}

/// Reports a step that is not of whole seconds.
fn check_step(cx: &mut LoadContext, fields: &MapFields<'_>, written: &DestinationFields) {
    if written.every.subsec_nanos() > 0 {
        let message = "a step is of whole seconds";
        let help = "for instance `every: 15s`";
        cx.error(fields.value_location("every"), message, Some(help.into()));
    }
}

/// Reports fields that the protocol of the destination has no use for.
fn check_protocol_fields(cx: &mut LoadContext, fields: &MapFields<'_>, engine: Engine, url: &Uri) {
    if fields.has("token_file") && engine == Engine::Graphite {
        let message = "Graphite's protocol has no tokens";
        cx.error(
            fields.location_of("token_file"),
            message,
            Some("remove it".into()),
        );
    }
    check_ca(cx, fields, url);
}

/// Reports `ca` beside a URL without TLS.
pub(super) fn check_ca(cx: &mut LoadContext, fields: &MapFields<'_>, url: &Uri) {
    if fields.has("ca") && url.scheme_str() != Some("https") {
        let message = "`ca` is for a destination that speaks TLS";
        let help = "write https:// to speak TLS, or remove it";
        cx.error(fields.location_of("ca"), message, Some(help.into()));
    }
}

/// Parses a URL, and checks that it has the parts that the engine needs, and no user or password. The engine is `None`
/// if `to` is absent or invalid.
fn parse_url(text: &str, engine: Option<Engine>) -> Result<Uri, ValueError> {
    let expected = ExpectedUrl {
        owner: engine.map_or("a destination", Engine::as_str),
        schemes: engine.map_or(&["http", "https", "tcp"], Engine::schemes),
        example: engine.unwrap_or(Engine::Prometheus).example(),
    };
    let url = expected.parse(text)?;
    match engine {
        Some(Engine::Graphite) if url.port_u16().is_none() => {
            Err(expected.error(format!("`{text}` names no port")))
        }
        Some(Engine::Graphite) if url.path() != "/" && !url.path().is_empty() => Err(expected
            .error(format!(
                "`{text}` has a path, and Graphite's protocol has none"
            ))),
        Some(Engine::Prometheus | Engine::Otlp) if url.path() == "/" => {
            Err(expected.error(format!("`{text}` names no path")))
        }
        _ => Ok(url),
    }
}

/// What a URL to which the gateway sends something must be like, for messages too.
pub(super) struct ExpectedUrl {
    /// Whose URL it is.
    pub(super) owner: &'static str,
    /// The schemes of which it must have one.
    pub(super) schemes: &'static [&'static str],
    /// A valid URL.
    pub(super) example: &'static str,
}

impl ExpectedUrl {
    /// Parses a URL with one of the schemes and a host, and without a user and a password.
    pub(super) fn parse(&self, text: &str) -> Result<Uri, ValueError> {
        let parsed: Result<Uri, _> = text.parse();
        let url = parsed.map_err(|cause| self.error(format!("`{text}` is no URL: {cause}")))?;
        if !self.schemes.contains(&url.scheme_str().unwrap_or_default()) {
            let schemes: Vec<String> = self
                .schemes
                .iter()
                .map(|scheme| format!("`{scheme}://`"))
                .collect();
            let (owner, schemes) = (self.owner, schemes.join(" or "));
            return Err(self.error(format!("the URL of {owner} begins with {schemes}")));
        }
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            let help = "write the token into a file and its name behind `token_file`";
            return Err(ValueError::new(
                "a URL here has no user and no password",
                help,
            ));
        }
        if url.host().is_none_or(str::is_empty) {
            return Err(self.error(format!("`{text}` names no host")));
        }
        Ok(url)
    }

    /// A mistake in the URL, with the example.
    pub(super) fn error(&self, message: String) -> ValueError {
        ValueError::new(message, format!("for instance `{}`", self.example))
    }
}

/// The name of a destination without `name`. It depends only on engine, host and port, so that a destination with
/// another path or other labels keeps its cursor.
fn default_name(engine: Engine, url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let name = format!("{engine}-{authority}");
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_DEFAULT_NAME_CHARS)
        .collect()
}

/// Whether a label may have this name: 1 to [`MAX_LABEL_NAME_BYTES`] ASCII letters, digits and `_`, a letter first.
fn is_label_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= MAX_LABEL_NAME_BYTES
        && bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A field with the labels of a destination, as pairs of name and value sorted by name. Labels with a mistake are
/// reported and left out. More than [`MAX_LABELS`] are reported.
pub struct LabelsField;

impl FieldReader for LabelsField {
    type Value = Vec<(String, String)>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ValueShape::Text);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<(String, String)>> {
        let mut labels = Vec::new();
        for (key, node) in cx.named_entries(node, "labels") {
            if !is_label_name(&key.text) {
                let help = "use 1 to 64 letters, digits or `_`, starting with a letter";
                let message = format!("`{}` is not a name for a label", key.text);
                cx.error(key.location, message, Some(help.into()));
                continue;
            }
            let value = cx.read_scalar(node, "a label's value", parse_label_value);
            labels.extend(value.map(|value| (key.text.clone(), value)));
        }
        if labels.len() > MAX_LABELS {
            let message = format!(
                "there are {} labels; the most is {MAX_LABELS}",
                labels.len()
            );
            let help = "keep those that tell this gateway from others";
            cx.error(node.location, message, Some(help.into()));
        }
        labels.sort();
        Some(labels)
    }
}

/// Parses the value of a label, of 1 to [`MAX_LABEL_VALUE_BYTES`] bytes.
fn parse_label_value(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.len() > MAX_LABEL_VALUE_BYTES {
        let help = format!("write 1 to {MAX_LABEL_VALUE_BYTES} bytes");
        let message = "a label's value is too short or too long";
        return Err(ValueError::new(message, help));
    }
    Ok(text.to_owned())
}
