//! Imports configurations of Traefik in YAML: the dynamic and the static configuration, and resources of Kubernetes.
//!
//! | file | what it is |
//! |---|---|
//! | `rule`, `matchers` | rules of routers, as regions of requests |
//! | `entry_points`, `tls`, `client_certificates` | listeners, certificates and options of TLS |
//! | `middlewares`, `rules`, `limits`, `headers`, `paths` | what middlewares do |
//! | `services` | upstreams |
//! | `routers`, `kubernetes` | routers of both kinds of input |
//! | `assembly`, `treatment`, `policies`, `redirects` | which router takes which requests, and their policies |
//! | `input` | all that the files say |
//! | `fields` | names of fields in whatever case |
//! | `names`, `durations` | names with providers, and times |

use super::documents::{InputValue, read_all_documents};
use super::error::ImportError;
use super::files::InputFile;
use super::model::ImportDraft;
use super::report::{Concern, ImportReport, Origin};
use assembly::assemble;
use entry_points::read_entry_points;
use fields::{check_cases, fields};
use input::TraefikInput;
use kubernetes::{is_resource, read_resource};
use names::{NamedObject, Provider};
use routers::read_router;

mod assembly;
mod client_certificates;
mod durations;
mod entry_points;
mod fields;
mod headers;
mod input;
mod kubernetes;
mod limits;
mod matchers;
mod middlewares;
mod names;
mod paths;
mod policies;
mod redirects;
mod routers;
mod rule;
mod rules;
mod services;
mod tls;
mod treatment;

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is no YAML, that is a template, or that is TOML; or more routers than an import may have.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    files.iter().try_for_each(check_language)?;
    let documents = read_all_documents(files)?;
    let path_of = |at: Origin| {
        let file = files.get(at.file);
        file.map_or_else(String::new, |file| file.path.clone())
    };
    documents
        .iter()
        .try_for_each(|document| check_cases(document.root(), &path_of))?;
    let mut input = TraefikInput::default();
    for document in &documents {
        let root = document.root();
        match is_resource(root) {
            true => read_resource(root, &mut input, report),
            false => read_configuration(root, &mut input, report),
        }
    }
    let path = files.first().map_or("", |file| file.path.as_str());
    assemble(input, path, draft, report)
}

/// Refuses TOML and templates, whose values are not what they say.
fn check_language(file: &InputFile) -> Result<(), ImportError> {
    let lines = file.text.lines().map(str::trim);
    let mut lines = lines
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    if let Some((index, _)) = lines.clone().find(|(_, line)| line.contains("{{")) {
        let line = u32::try_from(index + 1).unwrap_or(u32::MAX);
        return Err(
            ImportError::at(&file.path, line, 1, "the file is a template")
                .with_help("import what Traefik makes of it, without `{{ }}`"),
        );
    }
    let is_toml = lines.next().is_some_and(|(_, line)| {
        let table = line
            .strip_prefix('[')
            .and_then(|line| line.split(']').next());
        let is_key = |c: char| c.is_ascii_alphanumeric() || "._-[ \"".contains(c);
        let is_table = table
            .is_some_and(|table| table.starts_with(|c: char| c.is_ascii_alphabetic() || c == '['))
            && line.contains(']')
            && !line.contains([',', ':', '{']);
        let is_assignment = line
            .split_once('=')
            .is_some_and(|(key, _)| !key.is_empty() && key.chars().all(is_key));
        is_table || is_assignment
    });
    if is_toml || file.path.to_ascii_lowercase().ends_with(".toml") {
        return Err(ImportError::at(&file.path, 1, 1, "TOML is not read")
            .with_help("convert the file to YAML, which Traefik reads too"));
    }
    Ok(())
}

/// Reads a document of the static or of the dynamic configuration.
fn read_configuration<'v>(
    root: InputValue<'v>,
    input: &mut TraefikInput<'v>,
    report: &mut ImportReport,
) {
    if root.entries().next().is_none() {
        report.left(
            root.origin(),
            Concern::Other,
            "document",
            "it is no configuration of Traefik",
        );
    }
    for (field, at, value) in fields(root) {
        match field {
            "entryPoints" => read_entry_points(value, &mut input.entry_points, report),
            "http" => read_http(value, input, report),
            "tls" => input.tls.read(value, report),
            "tcp" | "udp" => {
                for (section, _, named) in value.entries() {
                    for (name, at, _) in named.entries() {
                        let text = format!("{field} {section} {name}");
                        report.left(at, Concern::Routing, &text, "tollgate speaks HTTP only");
                    }
                }
                report.left(at, Concern::Routing, field, "tollgate speaks HTTP only");
            }
            _ => report.left(
                at,
                Concern::Other,
                field,
                "it is neither about routes nor about limits",
            ),
        }
    }
}

fn read_http<'v>(http: InputValue<'v>, input: &mut TraefikInput<'v>, report: &mut ImportReport) {
    for (section, at, entries) in fields(http) {
        let named = entries.entries().map(|(name, at, value)| NamedObject {
            name: Provider::File.full_name(name, None),
            provider: Provider::File,
            value,
            at,
        });
        match section {
            "routers" => input
                .routers
                .extend(named.filter_map(|router| read_router(&router, report))),
            "services" => named.for_each(|service| input.services.add(service)),
            "middlewares" => named.for_each(|middleware| input.middlewares.add(middleware)),
            "serversTransports" => {
                let note = "certificates of servers are verified; write `tls: { roots: FILE }` at the upstream";
                report.left(at, Concern::Other, section, note);
            }
            _ => report.left(at, Concern::Routing, section, "it is not read"),
        }
    }
}
