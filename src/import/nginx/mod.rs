//! Imports `nginx.conf` and the files that it includes.
//!
//! | file | what it is |
//! |---|---|
//! | `syntax`, `include` | words, directives and blocks; files that other files include |
//! | `level` | what inner blocks inherit |
//! | `variables`, `key`, `key_parts` | `map` and `geo`; what zones count by |
//! | `limits`, `methods` | zones, `limit_req`, `limit_conn`; limits of some methods only |
//! | `listen`, `server`, `location`, `action`, `answer`, `access` | servers and their locations as routes |
//! | `upstream` | the servers behind |
//! | `notes` | what the report says of all other directives |

use level::Level;
use limits::ZoneTable;
use listen::{ListenerTable, default_address, default_at, read_listen, read_names};
use notes::report_other;
use server::{NginxServer, RouteBuilder};
use syntax::Directive;
use upstream::UpstreamTable;
use variables::{VariableTable, network_text, parse_network};

use super::error::ImportError;
use super::files::InputFile;
use super::model::{ImportDraft, UserDraft};
use super::report::{Concern, ImportReport};

mod access;
mod action;
mod include;
pub(super) mod key;
mod key_parts;
pub(super) mod level;
mod limits;
mod listen;
pub(super) mod location;
mod methods;
mod notes;
mod response;
mod server;
mod syntax;
pub(super) mod upstream;
pub(super) mod variables;

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is not the syntax of nginx, or too many directives.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let mut parsed = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        parsed.push(syntax::parse(index, file)?);
    }
    let directives = include::splice(files, parsed, report)?;
    // A file of `sites-enabled` has servers without the block around them.
    let (mut in_http, mut outside): (Vec<Directive>, Vec<Directive>) = (Vec::new(), Vec::new());
    for directive in directives {
        match directive.name.as_str() {
            "http" => {
                report.taken(directive.origin, Concern::Other, "http", "");
                in_http.extend(directive.block.unwrap_or_default());
            }
            "events"
            | "user"
            | "worker_processes"
            | "pid"
            | "load_module"
            | "error_log"
            | "worker_rlimit_nofile"
            | "stream"
            | "mail"
            | "env"
            | "daemon" => outside.push(directive),
            _ => in_http.push(directive),
        }
    }
    for directive in &outside {
        report_other(directive, report);
    }
    find_key_set(&in_http, draft, report);
    check_whole(&in_http, draft, report);
    read_http(&in_http, draft, report);
    report.note("Timeouts that are not written are those of tollgate: 2 s to connect, 60 s for the first byte.");
    report.note(
        "A path with and without a slash at its end is one: `/api/**` takes /api, and `/login` takes /login/.",
    );
    Ok(())
}

/// Makes the first `auth_jwt_key_file` the key set of users.
fn find_key_set(directives: &[Directive], draft: &mut ImportDraft, report: &mut ImportReport) {
    for directive in directives {
        if directive.name == "auth_jwt_key_file" {
            let file = directive.argument(0);
            let (at, text) = (directive.origin, directive.text());
            let is_same = |user: &UserDraft| user.key_set == file;
            if file.is_empty()
                || file.contains('$')
                || draft
                    .identities
                    .user
                    .as_ref()
                    .is_some_and(|user| !is_same(user))
            {
                report.left(
                    at,
                    Concern::Routing,
                    &text,
                    "one key set is taken, the first; write another source under `identity: user`",
                );
            } else {
                draft.identities.user = Some(UserDraft {
                    claim: "sub".into(),
                    key_set: file.to_owned(),
                });
                report.taken(
                    at,
                    Concern::Routing,
                    &text,
                    "the file must be there for tollgate too",
                );
            }
        }
        find_key_set(directive.children(), draft, report);
    }
}

/// Reports what depends on directives anywhere in the configuration: tokens without keys, and trusted proxies that name
/// clients by another header than tollgate reads.
fn check_whole(directives: &[Directive], draft: &ImportDraft, report: &mut ImportReport) {
    let has_header = has_directive(directives, "real_ip_header");
    let mut open: Vec<&Directive> = directives.iter().collect();
    while let Some(directive) = open.pop() {
        open.extend(directive.children());
        let (at, text) = (directive.origin, directive.text());
        match directive.name.as_str() {
            "auth_jwt" if directive.argument(0) != "off" && draft.identities.user.is_none() => {
                let note =
                    "no `auth_jwt_key_file` says which keys verify it, so that clients get 503";
                report.left(at, Concern::Routing, &text, note);
            }
            "set_real_ip_from" if !has_header => {
                let note = "without `real_ip_header` nginx reads X-Real-IP; trusted proxies must name the client by \
                            X-Forwarded-For or Forwarded here, or all their clients count as one";
                report.changed(at, Concern::Limits, &text, note);
            }
            _ => {}
        }
    }
}

/// Whether there is a directive of this name, at any depth.
fn has_directive(directives: &[Directive], name: &str) -> bool {
    let mut directives = directives.iter();
    directives.any(|directive| directive.name == name || has_directive(directive.children(), name))
}

fn read_http(directives: &[Directive], draft: &mut ImportDraft, report: &mut ImportReport) {
    let mut variables = VariableTable::default();
    for directive in directives
        .iter()
        .filter(|directive| matches!(&*directive.name, "map" | "geo"))
    {
        let notes = variables.add(directive);
        for note in notes {
            report.left(directive.origin, Concern::Limits, &directive.text(), &note);
        }
    }
    let (mut zones, mut upstreams) = (ZoneTable::default(), UpstreamTable::default());
    for directive in directives {
        match directive.name.as_str() {
            "limit_req_zone" | "limit_conn_zone" => zones.add(directive, &variables, draft, report),
            "upstream" => upstreams.add(directive, draft, report),
            _ => {}
        }
    }
    let map_origins = zones.map_origins();
    for directive in directives
        .iter()
        .filter(|directive| matches!(&*directive.name, "map" | "geo"))
    {
        let (at, text) = (directive.origin, directive.text());
        match map_origins.contains(&at) {
            true => report.taken(at, Concern::Limits, &text, ""),
            false => report.left(
                at,
                Concern::Other,
                &text,
                "no zone that is taken counts by it",
            ),
        }
    }
    let (level, others) = Level::default().enter(directives, report);
    let is_certificate =
        |other: &&&Directive| matches!(&*other.name, "ssl_certificate" | "ssl_certificate_key");
    let http_certificates: Vec<&Directive> =
        others.iter().filter(is_certificate).copied().collect();
    for directive in &others {
        match directive.name.as_str() {
            "map" | "geo" | "limit_req_zone" | "limit_conn_zone" | "upstream" | "server" => {}
            _ => read_global(directive, true, draft, report),
        }
    }
    let mut listeners = ListenerTable::default();
    let mut servers = Vec::new();
    for directive in others.iter().filter(|directive| directive.name == "server") {
        let server = read_server(
            servers.len(),
            directive,
            &level,
            &http_certificates,
            &mut listeners,
            draft,
            report,
        );
        servers.push(server);
    }
    if listeners.join_families() {
        report.note("`listen 80` and `listen [::]:80` are one listener, because a socket at [::] takes IPv4 too.");
    }
    listeners.name_listeners();
    let mut builder = RouteBuilder {
        draft,
        report,
        zones: &mut zones,
        upstreams: &upstreams,
        listeners: &listeners,
        has_several_servers: servers.len() > 1,
    };
    for server in &servers {
        builder.add_server(server);
    }
    zones.finish(draft, report);
    draft.listeners = listeners.into_listeners();
}

/// Reads what a server says beside its locations.
fn read_server<'d>(
    index: usize,
    directive: &'d Directive,
    http: &Level<'d>,
    http_certificates: &[&'d Directive],
    listeners: &mut ListenerTable,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> NginxServer<'d> {
    let (level, mut others) = http.enter(directive.children(), report);
    let of = |name: &'static str| {
        directive
            .children()
            .iter()
            .filter(move |child| child.name == name)
    };
    let inherited = |name: &'static str| {
        http_certificates
            .iter()
            .copied()
            .filter(move |child| child.name == name)
    };
    let path_of = |directive: &Directive| directive.argument(0).to_owned();
    let mut chains: Vec<String> = of("ssl_certificate").map(path_of).collect();
    let mut keys: Vec<String> = of("ssl_certificate_key").map(path_of).collect();
    if chains.is_empty() {
        chains = inherited("ssl_certificate").map(path_of).collect();
        keys = inherited("ssl_certificate_key").map(path_of).collect();
    }
    let is_path = |path: &String| {
        !path.is_empty()
            && !path.contains('$')
            && !path.starts_with("data:")
            && !path.starts_with("engine:")
    };
    let pairs: Vec<(String, String)> = chains
        .into_iter()
        .zip(keys)
        .filter(|(chain, key)| is_path(chain) && is_path(key))
        .collect();
    for certificate in of("ssl_certificate").chain(of("ssl_certificate_key")) {
        match is_path(&path_of(certificate)) {
            true => report.taken(
                certificate.origin,
                Concern::Routing,
                &certificate.text(),
                "",
            ),
            false => report.left(
                certificate.origin,
                Concern::Routing,
                &certificate.text(),
                "only a file is a certificate here",
            ),
        }
    }
    others.retain(|other| match other.name.as_str() {
        "set_real_ip_from" | "real_ip_header" | "real_ip_recursive" => {
            read_global(other, false, draft, report);
            false
        }
        _ => true,
    });
    let mut addresses: Vec<_> = of("listen")
        .filter_map(|listen| read_listen(listen, !pairs.is_empty(), report))
        .collect();
    if of("listen").next().is_none() {
        addresses.push(default_address(directive.origin));
    }
    // A server whose addresses are all left must not be reached at those of others.
    listeners.add(&addresses, &pairs, &draft.trusted_proxies);
    let is_left = |address: &String| addresses.iter().all(|taken| taken.address != *address);
    for address in of("listen").filter_map(default_at).filter(is_left) {
        listeners.leave_default(address);
    }
    if addresses.is_empty() {
        others.clear();
        report.left(
            directive.origin,
            Concern::Routing,
            "server",
            "none of its addresses has a counterpart",
        );
    }
    NginxServer {
        index,
        directive,
        level,
        others,
        names: read_names(of("server_name"), report),
    }
}

/// Reads a directive that holds for the whole gateway. `is_http` says whether nginx has it for all servers too.
fn read_global(
    directive: &Directive,
    is_http: bool,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) {
    let (at, text) = (directive.origin, directive.text());
    match directive.name.as_str() {
        "set_real_ip_from" => {
            let network = match directive.argument(0) {
                "unix:" => Some("unix".to_owned()),
                text => parse_network(text).map(network_text),
            };
            let Some(network) = network else {
                let note = "a name is looked up by nginx at its start; write the networks under `trusted_proxies`";
                return report.left(at, Concern::Routing, &text, note);
            };
            if !draft.trusted_proxies.contains(&network) {
                draft.trusted_proxies.push(network);
            }
            match is_http {
                true => report.taken(at, Concern::Routing, &text, ""),
                false => report.changed(
                    at,
                    Concern::Routing,
                    &text,
                    "trusted proxies are those of all servers",
                ),
            }
        }
        "real_ip_header" => match directive.argument(0).to_ascii_lowercase().as_str() {
            "x-forwarded-for" | "forwarded" => report.taken(at, Concern::Routing, &text, ""),
            "proxy_protocol" => report.taken(
                at,
                Concern::Routing,
                &text,
                "a header of the PROXY protocol names the client",
            ),
            _ => {
                let note = "trusted proxies name the client by X-Forwarded-For or Forwarded: let them send one of these, or all \
                            their clients count as one";
                report.left(at, Concern::Limits, &text, note);
            }
        },
        "real_ip_recursive" => match directive.argument(0) {
            "on" => report.taken(at, Concern::Routing, &text, ""),
            _ => {
                let note = "addresses of trusted proxies are passed over, as with `on`";
                report.changed(at, Concern::Routing, &text, note);
            }
        },
        "ssl_certificate" | "ssl_certificate_key" => report.taken(at, Concern::Routing, &text, ""),
        "auth_jwt_key_file" => {}
        _ => report_other(directive, report),
    }
}
