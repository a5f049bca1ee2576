//! What the report says of lines that become nothing.

use super::syntax::ConfigLine;
use crate::import::report::{Concern, ImportReport};

/// Of lines with a variable, or under a condition of the preprocessor.
pub const VARIABLE: &str = "it depends on the environment, or on a condition at the start of HAProxy, which are not known here";
/// Of lines without a section.
pub const NO_SECTION: &str = "it belongs to no section that is read";
/// Of rules that change neither limits nor routes.
pub const NO_EFFECT: &str =
    "it changes neither who is served nor where requests go, or has no counterpart";

/// Reports a line of a section that becomes nothing.
pub fn report_other(line: &ConfigLine, report: &mut ImportReport) {
    let (concern, note) = note_of(line);
    report.left(line.origin, concern, &line.text, note);
}

/// Reports every line of a section that is not read, with one note.
pub fn report_all(lines: &[ConfigLine], note: &str, report: &mut ImportReport) {
    for line in lines {
        let concern = match line.word(0) {
            "stick-table" => Concern::Limits,
            "bind" | "server" | "use_backend" | "default_backend" | "acl" | "http-request"
            | "tcp-request" => {
                match line.text.contains("_rate") || line.text.contains("track-sc") {
                    true => Concern::Limits,
                    false => Concern::Routing,
                }
            }
            _ => Concern::Other,
        };
        report.left(line.origin, concern, &line.text, note);
    }
}

fn note_of(line: &ConfigLine) -> (Concern, &'static str) {
    use Concern::{Limits, Other, Routing};

    match (line.word(0), line.word(1)) {
        ("maxconn", _) => (
            Limits,
            "write `connections: { total: N }` in the gateway file",
        ),
        ("maxconnrate" | "maxsessrate" | "maxsslrate", _) => (
            Limits,
            "new connections are not counted; write a limit with `key: everyone`",
        ),
        ("rate-limit", _) => (
            Limits,
            "new connections are not counted; a limit `{ key: everyone, rate: N/s }` in the gateway file counts requests",
        ),
        ("fullconn", _) => (
            Other,
            "`max_requests` of an upstream bounds its open requests",
        ),
        ("stick" | "appsession", _) => (
            Routing,
            "write `balance: { hash: NAME }` with an identity; here servers take turns",
        ),
        ("cookie", _) => (
            Routing,
            "write `balance: { hash: NAME }` with an identity of the cookie",
        ),
        ("use-server", _) => (
            Routing,
            "no server is chosen by a condition; write an upstream for it",
        ),
        ("use-fcgi-app", _) => (Routing, "tollgate speaks HTTP only"),
        ("filter" | "email-alert" | "compression", _) => (
            Other,
            "filters are not run; `compress: true` compresses responses",
        ),
        ("errorfile" | "errorfiles" | "errorloc" | "errorloc302" | "errorloc303", _) => {
            (Other, "write bodies of refusals under `errors`")
        }
        ("http-error", _) => (Other, "write bodies of refusals under `errors`"),
        ("http-response" | "http-after-response", _) => (
            Other,
            "write it under `response: { set: … }` of the policies",
        ),
        (
            "log" | "log-format" | "log-format-sd" | "capture" | "unique-id-format"
            | "unique-id-header",
            _,
        ) => (
            Other,
            "write `access_log` or `request_id` in the gateway file",
        ),
        (
            "option",
            "httplog" | "tcplog" | "dontlognull" | "log-health-checks" | "dontlog-normal"
            | "logasap",
        ) => (Other, "write `access_log` in the gateway file"),
        (
            "option",
            "redispatch" | "http-server-close" | "http-keep-alive" | "httpclose" | "forceclose",
        )
        | ("retries" | "retry-on", _) => (
            Other,
            "connections are kept, and requests that no server has seen are tried again anyway",
        ),
        ("timeout", _) => (Other, "write it under `timeouts` of the gateway file"),
        ("stats", _) => (Other, "tollgate has a dashboard at its admin listener"),
        ("monitor", _) => (
            Other,
            "the page says that the gateway lives, whatever its servers do",
        ),
        ("email-alert-from", _) => (Other, "write alerts on the metrics"),
        _ => (
            Other,
            "it is not about limits or routes, or has no counterpart",
        ),
    }
}
