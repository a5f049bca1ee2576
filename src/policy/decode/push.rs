//! Reads `push` of the section `record`: the engines to which the gateway sends its record. The files of tokens and
//! authorities are read later, when the model is compiled.

use std::time::Duration;

use http::Uri;

use super::super::context::LoadContext;
use super::super::model::{Located, PushConfig};
use super::super::table::{MapFields, Table, TextFormat, ValueShape, optional, required};
use super::super::tree::Node;
use super::ValueError;
use super::scalar::{DURATION_FORMAT, PATH_FORMAT, parse_name};
use crate::record::push::{Engine, MAX_DESTINATIONS, Settings};

/// Maximum number of labels of a destination.
const MAX_LABELS: usize = 16;
/// Maximum length in bytes of a label's name.
const MAX_LABEL_NAME_BYTES: usize = 64;
/// Maximum length in bytes of a label's value.
const MAX_LABEL_VALUE_BYTES: usize = 256;
/// Maximum length of a name that is made from a URL, as for names that users choose.
const MAX_DEFAULT_NAME_CHARS: usize = 64;

static PUSH_URL_FORMAT: TextFormat = TextFormat {
    name: "push_url",
    pattern: r"^(https?|tcp)://[^/@\s]+(/\S*)?$",
    doc: "http:// or https:// with a path, or tcp://HOST:PORT for Graphite.",
};

pub static DESTINATION_TABLE: Table = Table {
    name: "a destination of `push`",
    doc: "An engine to which what is recorded is sent.",
    fields: &[
        required(
            "to",
            ValueShape::Words(&["prometheus", "graphite", "otlp"]),
            "What it speaks: Prometheus remote write, Graphite's lines, OTLP over HTTP.",
            "prometheus",
        ),
        required(
            "url",
            ValueShape::Format(&PUSH_URL_FORMAT),
            "Where it is.",
            "http://prom:9090/api/v1/write",
        ),
        optional(
            "name",
            ValueShape::Text,
            "Its name in metrics and the log, by which the gateway knows what it has already. Default: from `to` and `url`.",
            "central",
        ),
        optional(
            "every",
            ValueShape::Format(&DURATION_FORMAT),
            "A sample of each series is sent for each of these steps. Default: 15s.",
            "15s",
        ),
        optional(
            "labels",
            ValueShape::NamedMap(&ValueShape::Text),
            "What each series is labelled with, to tell several gateways apart.",
            "{ instance: edge-1 }",
        ),
        optional(
            "token_file",
            ValueShape::Format(&PATH_FORMAT),
            "A file with the token that is sent as `Authorization: Bearer`.",
            "push.token",
        ),
        optional(
            "ca",
            ValueShape::Format(&PATH_FORMAT),
            "Who vouches for its certificate, as PEM. Default: those whom the system trusts.",
            "ca.pem",
        ),
    ],
};

/// Reads `push`: one destination or a list of them, with distinct names.
pub fn read_destinations(cx: &mut LoadContext, node: &Node) -> Vec<PushConfig> {
    let mut names: Vec<String> = Vec::new();
    let mut destinations = cx.read_list(node, |cx, node| {
        let (push, name) = read_destination(cx, node)?;
        if names.contains(&name.value) {
            let message = format!("two destinations are named `{}`", name.value);
            let help = "give one of them another `name`";
            cx.error(name.location, message, Some(help.into()));
        }
        names.push(name.value);
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
    destinations
}

/// Reads one destination. Returns its name too, which has a location even if it is made from the URL.
fn read_destination(cx: &mut LoadContext, node: &Node) -> Option<(PushConfig, Located<String>)> {
    let fields = DESTINATION_TABLE.open(cx, node)?;
    let engine_words = Engine::ALL.map(|engine| (engine.as_str(), engine));
    let engine = fields
        .get("to")
        .and_then(|node| cx.read_word(node, &engine_words))
        .map(|engine| engine.value);
    let url_node = fields.get("url");
    let url =
        url_node.and_then(|node| cx.read_scalar(node, "a URL", |text| parse_url(text, engine)));
    // A filled-in URL may hold a secret, so it is shown as written.
    let unfilled_url = url_node.and_then(Node::unfilled_text).map(str::to_owned);
    let name = fields.get("name").and_then(|node| {
        let parse = |text: &str| Ok(parse_name(text, "a destination")?.to_string());
        cx.read_scalar(node, "a name", parse)
    });
    let every = fields.get("every").and_then(|node| read_step(cx, node));
    let labels = fields.get("labels").map(|node| read_labels(cx, node));
    let token_file = fields
        .get("token_file")
        .and_then(|node| cx.read_secret_file_name(node));
    let roots = fields
        .get("ca")
        .and_then(|node| cx.read_text(node, "the name of a file"));
    let (engine, url) = (engine?, url?);
    check_protocol_fields(cx, &fields, engine, &url.value);
    let name = name.unwrap_or_else(|| Located {
        value: default_name(engine, &url.value),
        location: url.location,
    });
    let settings = Settings {
        name: name.value.clone(),
        engine,
        display_url: unfilled_url.unwrap_or_else(|| url.value.to_string()),
        url: url.value,
        step_seconds: every.unwrap_or(Settings::DEFAULT_STEP_SECONDS),
        token: None,
        roots: None,
        labels: labels.unwrap_or_default(),
    };
    let push = PushConfig {
        location: node.location,
        settings,
        token_file,
        roots,
    };
    Some((push, name))
}

/// Reads the step of the samples, in whole seconds.
fn read_step(cx: &mut LoadContext, node: &Node) -> Option<u64> {
    let min = Duration::from_secs(Settings::MIN_STEP_SECONDS);
    let max = Duration::from_secs(Settings::MAX_STEP_SECONDS);
    let step = cx.read_duration(node, min, max)?;
    if step.value.subsec_nanos() > 0 {
        let message = "a step is of whole seconds";
        cx.error(
            step.location,
            message,
            Some("for instance `every: 15s`".into()),
        );
    }
    Some(step.value.as_secs())
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
    if fields.has("ca") && url.scheme_str() != Some("https") {
        let message = "`ca` is for a destination that speaks TLS";
        let help = "write https:// to speak TLS, or remove it";
        cx.error(fields.location_of("ca"), message, Some(help.into()));
    }
}

/// Parses a URL, and checks that it has the parts that the engine needs.
fn parse_url(text: &str, engine: Option<Engine>) -> Result<Uri, ValueError> {
    let example = engine.unwrap_or(Engine::Prometheus).example();
    let help = format!("for instance `{example}`");
    let error = |message: String| ValueError::new(message, help.clone());
    let url: Uri = text
        .parse()
        .map_err(|cause| error(format!("`{text}` is no URL: {cause}")))?;
    let scheme = url.scheme_str().unwrap_or_default();
    let schemes = engine.map_or(&["http", "https", "tcp"][..], Engine::schemes);
    if !schemes.contains(&scheme) {
        let schemes: Vec<String> = schemes.iter().map(|s| format!("`{s}://`")).collect();
        let owner = engine.map_or("a destination", Engine::as_str);
        let schemes = schemes.join(" or ");
        return Err(error(format!("the URL of {owner} begins with {schemes}")));
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
        return Err(error(format!("`{text}` names no host")));
    }
    match engine {
        Some(Engine::Graphite) if url.port_u16().is_none() => {
            Err(error(format!("`{text}` names no port")))
        }
        Some(Engine::Graphite) if url.path() != "/" && !url.path().is_empty() => Err(error(
            format!("`{text}` has a path, and Graphite's protocol has none"),
        )),
        Some(Engine::Prometheus | Engine::Otlp) if url.path() == "/" => {
            Err(error(format!("`{text}` names no path")))
        }
        _ => Ok(url),
    }
}

/// The name of a destination without `name`. It depends on nothing else, so that a restart finds its cursor again.
fn default_name(engine: Engine, url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let name = format!("{engine}-{authority}");
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_DEFAULT_NAME_CHARS)
        .collect()
}

fn is_label_name(name: &str) -> bool {
    let mut letters = name.bytes();
    name.len() <= MAX_LABEL_NAME_BYTES
        && letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Reads the labels of a destination, sorted by name.
fn read_labels(cx: &mut LoadContext, node: &Node) -> Vec<(String, String)> {
    let entries = cx.named_entries(node, "labels");
    let mut labels = Vec::new();
    for (key, node) in entries {
        if !is_label_name(&key.text) {
            let help = "use 1 to 64 letters, digits or `_`, starting with a letter";
            let message = format!("`{}` is not a name for a label", key.text);
            cx.error(key.location, message, Some(help.into()));
            continue;
        }
        let value = cx.read_scalar(node, "a label's value", |text| {
            if text.is_empty() || text.len() > MAX_LABEL_VALUE_BYTES {
                let help = format!("write 1 to {MAX_LABEL_VALUE_BYTES} bytes");
                return Err(ValueError::new(
                    "a label's value is too short or too long",
                    help,
                ));
            }
            Ok(text.to_owned())
        });
        labels.extend(value.map(|value| (key.text.clone(), value.value)));
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
    labels
}
