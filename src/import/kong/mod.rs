//! Imports declarative configurations of Kong: `kong.yaml` with services, routes, plugins and upstreams.
//!
//! | file | what it is |
//! |---|---|
//! | `entities` | the entities, with the references between them |
//! | `routes` | routes as regions of requests, with Kong's priorities |
//! | `plugins`, `plugin_rules`, `limits`, `access`, `transformers` | which plugins a route has, and what they do |
//! | `services` | services and targets as upstreams |
//! | `assembly`, `policies` | which route takes which requests, and their policies |

use super::documents::read_all_documents;
use super::error::ImportError;
use super::files::InputFile;
use super::model::ImportDraft;
use super::report::{ImportReport, printable};
use assembly::assemble;
use entities::KongEntities;

mod access;
mod assembly;
mod entities;
mod limits;
mod plugin_rules;
mod plugins;
mod policies;
mod routes;
mod services;
mod transformers;

/// Reads all files into the draft.
///
/// # Errors
///
/// A file that is no YAML, or no declarative configuration; two entities of one name; or more routes than an import may
/// have.
pub fn read(
    files: &[InputFile],
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let documents = read_all_documents(files)?;
    let path = files.first().map_or("", |file| file.path.as_str());
    let versions = documents
        .iter()
        .filter_map(|document| document.root().text_of("_format_version"));
    let majors: Vec<Option<u32>> = versions
        .map(|version| {
            version
                .split('.')
                .next()?
                .parse()
                .ok()
                .filter(|major| (1..=3).contains(major))
        })
        .collect();
    let Some(Some(version)) = majors
        .first()
        .copied()
        .filter(|first| majors.iter().all(|major| major == first))
    else {
        return Err(ImportError::at(path, 1, 1, "the files have no `_format_version` that is known, or several")
            .with_help("import a declarative configuration of version 1.1, 2.1 or 3.0, as `deck gateway dump` writes it"));
    };
    let mut entities = KongEntities::default();
    for document in &documents {
        entities.read(document.root(), report);
    }
    if let Some(name) = entities.ambiguous_name() {
        let name = printable(name, 60);
        let message = format!("two services or two routes are called `{name}`, which Kong refuses");
        return Err(ImportError::at(path, 1, 1, message).with_help("give each a name of its own"));
    }
    entities.resolve(report);
    if let Some((at, reason)) = entities.refusal() {
        let file = files.get(at.file).map_or("", |file| file.path.as_str());
        return Err(ImportError::at(file, at.line, 1, reason.as_str())
            .with_help("`deck file render` writes whole files; write defaults into the entities"));
    }
    assemble(&entities, version, path, draft, report)
}
