//! `push`: the engines to which what is recorded is sent.

use std::time::Duration;

use http::Uri;

use super::super::collect::Cx;
use super::super::model::{Located, PushConfig};
use super::super::table::{Form, Table, ValueShape, may, must};
use super::super::tree::Node;
use super::leaf::{DURATION, PATH, parse_name};
use super::{ValueError, invalid};
use crate::record::push::{Engine, MOST, Settings};

/// Most labels of a destination.
const MOST_LABELS: usize = 16;
/// Most characters of a label's value.
const LONGEST_VALUE: usize = 256;

static URL: Form = Form {
    name: "push_url",
    pattern: r"^(https?|tcp)://[^/@\s]+(/\S*)?$",
    doc: "http:// or https:// with a path, or tcp://HOST:PORT for Graphite.",
};

/// A destination.
pub static PUSH: Table = Table {
    name: "a destination of `push`",
    doc: "An engine to which what is recorded is sent.",
    fields: &[
        must(
            "to",
            ValueShape::Words(&["prometheus", "graphite", "otlp"]),
            "What it speaks: Prometheus remote write, Graphite's lines, OTLP over HTTP.",
            "prometheus",
        ),
        must(
            "url",
            ValueShape::Form(&URL),
            "Where it is.",
            "http://prom:9090/api/v1/write",
        ),
        may(
            "name",
            ValueShape::Text,
            "Its name in metrics and the log, by which the gateway knows what it has already. Default: from `to` and `url`.",
            "central",
        ),
        may(
            "every",
            ValueShape::Form(&DURATION),
            "A sample of each series is sent for each of these steps. Default: 15s.",
            "15s",
        ),
        may(
            "labels",
            ValueShape::Named(&ValueShape::Text),
            "What each series is labelled with, to tell several gateways apart.",
            "{ instance: edge-1 }",
        ),
        may(
            "token_file",
            ValueShape::Form(&PATH),
            "A file with the token that is sent as `Authorization: Bearer`.",
            "push.token",
        ),
        may(
            "ca",
            ValueShape::Form(&PATH),
            "Who vouches for its certificate, as PEM. Default: those whom the system trusts.",
            "ca.pem",
        ),
    ],
};

/// Reads `push`.
pub fn push(cx: &mut Cx, node: &Node) -> Vec<PushConfig> {
    let mut names: Vec<String> = Vec::new();
    let mut all = cx.many(node, |cx, node| {
        let (push, name) = destination(cx, node)?;
        if names.contains(&name.value) {
            let message = format!("two destinations are named `{}`", name.value);
            let help = "give one of them another `name`";
            cx.error(name.place, message, Some(help.into()));
        }
        names.push(name.value);
        Some(push)
    });
    if all.len() > MOST {
        let message = format!("there are {} destinations; the most is {MOST}", all.len());
        let help = "remove some, or have one of them send to the others";
        cx.error(node.place, message, Some(help.into()));
        all.truncate(MOST);
    }
    all
}

fn destination(cx: &mut Cx, node: &Node) -> Option<(PushConfig, Located<String>)> {
    let fields = PUSH.open(cx, node)?;
    let words = Engine::ALL.map(|engine| (engine.as_str(), engine));
    let to = fields.get("to").and_then(|node| cx.word(node, &words));
    let engine = to.as_ref().map(|to| to.value);
    let url = fields
        .get("url")
        .and_then(|node| cx.read(node, "a URL", |text| url(text, engine)));
    let shown = fields.get("url").and_then(Node::written);
    let shown = shown.map(str::to_owned);
    let name = fields.get("name").and_then(|node| {
        let read = |text: &str| Ok(parse_name(text, "a destination")?.to_string());
        cx.read(node, "a name", read)
    });
    let (least, most) = (Settings::SHORTEST, Settings::LONGEST);
    let every = fields.get("every").and_then(|node| {
        let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
        let every = cx.span(node, least, most)?;
        if every.value.subsec_nanos() > 0 {
            let message = "a step is of whole seconds";
            cx.error(
                every.place,
                message,
                Some("for instance `every: 15s`".into()),
            );
        }
        Some(every.value.as_secs())
    });
    let labels = fields.get("labels").map(|node| labels(cx, node));
    let token_file = fields
        .get("token_file")
        .and_then(|node| cx.secret_file(node));
    let roots = fields
        .get("ca")
        .and_then(|node| cx.text(node, "the name of a file"));
    let (engine, url) = (engine?, url?);
    let secure = url.value.scheme_str() == Some("https");
    let mut only = |name: &str, holds: bool, message: &str, help: &str| {
        if fields.has(name) && !holds {
            cx.error(fields.place_of(name), message, Some(help.into()));
        }
    };
    let spoken = engine != Engine::Graphite;
    only(
        "token_file",
        spoken,
        "Graphite's protocol has no tokens",
        "remove it",
    );
    let help = "write https:// to speak TLS, or remove it";
    only(
        "ca",
        secure,
        "`ca` is for a destination that speaks TLS",
        help,
    );
    let name = name.unwrap_or_else(|| Located {
        value: usual_name(engine, &url.value),
        place: url.place,
    });
    let settings = Settings {
        name: name.value.clone(),
        engine,
        display_url: shown.unwrap_or_else(|| url.value.to_string()),
        url: url.value,
        every: every.unwrap_or(Settings::USUAL),
        token: None,
        roots: None,
        labels: labels.unwrap_or_default(),
    };
    let push = PushConfig {
        place: node.place,
        settings,
        token_file,
        roots,
    };
    Some((push, name))
}

/// A URL with which the engine can be reached.
fn url(text: &str, engine: Option<Engine>) -> Result<Uri, ValueError> {
    let example = engine.unwrap_or(Engine::Prometheus).example();
    let help = format!("for instance `{example}`");
    let odd = |message: String| invalid(message, help.clone());
    let url: Uri = text
        .parse()
        .map_err(|error| odd(format!("`{text}` is no URL: {error}")))?;
    let scheme = url.scheme_str().unwrap_or_default();
    let schemes = engine.map_or(&["http", "https", "tcp"][..], Engine::schemes);
    if !schemes.contains(&scheme) {
        let begins: Vec<String> = schemes.iter().map(|s| format!("`{s}://`")).collect();
        let (begins, whose) = (
            begins.join(" or "),
            engine.map_or("a destination", Engine::as_str),
        );
        return Err(odd(format!("the URL of {whose} begins with {begins}")));
    }
    if url
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        let help = "write the token into a file and its name behind `token_file`";
        return Err(invalid("a URL here has no user and no password", help));
    }
    if url.host().is_none_or(str::is_empty) {
        return Err(odd(format!("`{text}` names no host")));
    }
    match engine {
        Some(Engine::Graphite) if url.port_u16().is_none() => {
            Err(odd(format!("`{text}` names no port")))
        }
        Some(Engine::Graphite) if url.path() != "/" && !url.path().is_empty() => Err(odd(format!(
            "`{text}` has a path, and Graphite's protocol has none"
        ))),
        Some(Engine::Prometheus | Engine::Otlp) if url.path() == "/" => {
            Err(odd(format!("`{text}` names no path")))
        }
        _ => Ok(url),
    }
}

/// A name that a URL has always.
fn usual_name(engine: Engine, url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name = format!("{engine}-{authority}");
    name.chars().map(plain).take(64).collect()
}

fn labels(cx: &mut Cx, node: &Node) -> Vec<(String, String)> {
    let entries = cx.named(node, "labels");
    let mut labels = Vec::new();
    for (key, node) in entries {
        let mut letters = key.text.bytes();
        let starts = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
        let plain = letters.all(|c| c.is_ascii_alphanumeric() || c == b'_');
        if !starts || !plain || key.text.len() > 64 {
            let help = "use 1 to 64 letters, digits or `_`, starting with a letter";
            let message = format!("`{}` is not a name for a label", key.text);
            cx.error(key.place, message, Some(help.into()));
            continue;
        }
        let value = cx.read(node, "a label's value", |text| {
            if text.is_empty() || text.len() > LONGEST_VALUE {
                let help = format!("write 1 to {LONGEST_VALUE} bytes");
                return Err(invalid("a label's value is too short or too long", help));
            }
            Ok(text.to_owned())
        });
        labels.extend(value.map(|value| (key.text.clone(), value.value)));
    }
    if labels.len() > MOST_LABELS {
        let message = format!(
            "there are {} labels; the most is {MOST_LABELS}",
            labels.len()
        );
        let help = "keep those that tell this gateway from others";
        cx.error(node.place, message, Some(help.into()));
    }
    labels.sort();
    labels
}
