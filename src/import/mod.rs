//! Imports the configurations of other gateways: texts in, policies and a gateway file out, and for each line of the
//! input what became of it. Nothing here reads a file, and nothing is written that `tollgate check` would refuse.
//!
//! | file | what it is |
//! |---|---|
//! | `files`, `error` | files of the input and of the output; why an input cannot be imported |
//! | `model` | the draft of a configuration that every format becomes |
//! | `report` | what became of each line of the input |
//! | `names` | names of policies, limits and upstreams that are valid and unique |
//! | `write`, `yaml_text` | writes a draft as the YAML of the gateway file and of policies |
//! | `repair` | takes out what the gateway refuses |
//! | `render` | prints the files and the report |
//! | `budget`, `numbers` | bounds what is read again for many routes; a divisor of weights and rates |
//! | `documents` | reads inputs in YAML or JSON, of one or several documents, with the lines of their values |
//! | `nginx`, `ingress`, `haproxy`, `traefik`, `kong`, `envoy_ratelimit` | one format each |
//! | `field_edits` | changes of header fields that policies may make |
//! | `routing` | routes with priorities, as matches of policies |
//!
//! A reader of a format fills an [`ImportDraft`] and an [`ImportReport`]. It never writes a limit that admits more than
//! the source does, unless the report says so by [`Fate::Changed`].

use std::path::Path;

use crate::policy::source::MemoryFiles;
use crate::policy::{self, Diagnostic, Severity};

mod budget;
pub mod documents;
pub mod envoy_ratelimit;
pub mod error;
pub mod field_edits;
pub mod files;
pub mod haproxy;
pub mod ingress;
pub mod kong;
pub mod model;
pub mod names;
pub mod nginx;
mod numbers;
pub mod render;
pub mod repair;
pub mod report;
pub mod routing;
pub mod traefik;
pub mod write;
mod yaml_text;

pub use error::ImportError;
pub use files::{
    InputFile, MAX_NESTING, MAX_ROUTES, MAX_SOURCE_BYTES, MAX_SOURCE_FILES, NeededFile, NeededKind,
    OutputFile,
};
pub use model::ImportDraft;
pub use report::{Concern, Fate, ImportReport, Origin, ReportLine};

/// How often what is written is checked again without what was refused.
const MAX_REPAIRS: usize = 4;

/// The products whose configurations can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// `nginx.conf` and the files that it includes.
    Nginx,
    /// Ingress resources of Kubernetes with annotations of ingress-nginx, as YAML or JSON.
    Ingress,
    /// `haproxy.cfg`.
    Haproxy,
    /// Dynamic and static configurations of Traefik in YAML, and its resources of Kubernetes.
    Traefik,
    /// Declarative configurations of Kong in YAML or JSON.
    Kong,
    /// The configuration of envoyproxy/ratelimit, as YAML.
    EnvoyRatelimit,
}

impl SourceFormat {
    /// Every format.
    pub const ALL: [SourceFormat; 6] = [
        SourceFormat::Nginx,
        SourceFormat::Ingress,
        SourceFormat::Haproxy,
        SourceFormat::Traefik,
        SourceFormat::Kong,
        SourceFormat::EnvoyRatelimit,
    ];

    /// The word for the format on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceFormat::Nginx => "nginx",
            SourceFormat::Ingress => "ingress",
            SourceFormat::Haproxy => "haproxy",
            SourceFormat::Traefik => "traefik",
            SourceFormat::Kong => "kong",
            SourceFormat::EnvoyRatelimit => "envoy-ratelimit",
        }
    }
}

/// What an input has become.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The gateway file `tollgate.yaml`, and then the policies.
    pub files: Vec<OutputFile>,
    /// What became of each line, by file and line.
    pub report: Vec<ReportLine>,
    /// Differences that hold for the whole input, each once.
    pub notes: Vec<String>,
    /// Files that the output refers to and that the import did not write, such as certificates.
    pub needed_files: Vec<NeededFile>,
}

impl Imported {
    /// The number of lines about limits, routes or who is denied that are left.
    pub fn rules_left(&self) -> usize {
        let is_left = |line: &&ReportLine| line.fate == Fate::Left && line.concern > Concern::Other;
        self.report.iter().filter(is_left).count()
    }
}

/// Imports the files of one configuration. Their order is that of the command line.
///
/// # Errors
///
/// A text that is not of the format, a bound that the input exceeds, or an input with no route.
pub fn import(format: SourceFormat, files: &[InputFile]) -> Result<Imported, ImportError> {
    check_bounds(files)?;
    let mut draft = ImportDraft::default();
    let mut report = ImportReport::new(files);
    match format {
        SourceFormat::Nginx => nginx::read(files, &mut draft, &mut report)?,
        SourceFormat::Ingress => ingress::read(files, &mut draft, &mut report)?,
        SourceFormat::Haproxy => haproxy::read(files, &mut draft, &mut report)?,
        SourceFormat::Traefik => traefik::read(files, &mut draft, &mut report)?,
        SourceFormat::Kong => kong::read(files, &mut draft, &mut report)?,
        SourceFormat::EnvoyRatelimit => {
            envoy_ratelimit::read(files, &mut draft, &mut report)?;
        }
    }
    let first_path = files.first().map_or("", |file| file.path.as_str());
    if draft.routes.is_empty() {
        let message = format!(
            "no route of this {} configuration can be taken",
            format.as_str()
        );
        let reasons = report.first_left();
        return Err(ImportError::at(first_path, 1, 1, message).with_help(reasons));
    }
    if draft.routes.len() > MAX_ROUTES {
        let message = format!("this becomes {} routes", draft.routes.len());
        let help = format!("import at most {MAX_ROUTES} at a time");
        return Err(ImportError::at(first_path, 1, 1, message).with_help(help));
    }
    draft.settle(&mut report);
    let paths = report.paths().to_vec();
    check_and_repair(&mut draft, &paths, &mut report)?;
    let needed_files = draft.needed_files();
    let (report, notes) = report.finish();
    Ok(Imported {
        files: write::write(&draft, &paths, write::Certificates::Files),
        report,
        notes,
        needed_files,
    })
}

fn check_bounds(files: &[InputFile]) -> Result<(), ImportError> {
    let first_path = files.first().map_or("", |file| file.path.as_str());
    if files.len() > MAX_SOURCE_FILES {
        let message = format!("{} files are too many", files.len());
        let help = format!("import at most {MAX_SOURCE_FILES} at a time");
        return Err(ImportError::at(first_path, 1, 1, message).with_help(help));
    }
    let too_large = files.iter().find(|file| file.text.len() > MAX_SOURCE_BYTES);
    match too_large {
        Some(file) => {
            let message = format!("the file is larger than {} MiB", MAX_SOURCE_BYTES >> 20);
            Err(ImportError::at(&file.path, 1, 1, message).with_help("split it"))
        }
        None => Ok(()),
    }
}

/// Checks that the gateway would load what is written, and takes out policies that it refuses.
///
/// # Errors
///
/// The gateway file has a mistake, or none of the policies is left.
fn check_and_repair(
    draft: &mut ImportDraft,
    paths: &[String],
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let mut mistakes = check_draft(draft, paths);
    for _ in 0..MAX_REPAIRS {
        if mistakes.is_empty() || !repair::drop_refused(draft, &mistakes, report) {
            break;
        }
        mistakes = check_draft(draft, paths);
    }
    let Some(first) = mistakes.first() else {
        return Ok(());
    };
    let mistake = format!("{}:{}: {}", first.file, first.line, first.message);
    let message = format!("what this becomes does not pass `tollgate check`: {mistake}");
    let first_path = paths.first().map_or("", String::as_str);
    Err(ImportError::at(first_path, 1, 1, message)
        .with_help("this is a fault of the import; leave out the part that it names"))
}

/// The mistakes that the gateway would find. The files that the output needs are not known here, so that the check has
/// certificates of a directory in place of files.
fn check_draft(draft: &ImportDraft, paths: &[String]) -> Vec<Diagnostic> {
    let written = write::write(draft, paths, write::Certificates::Placeholder);
    let files = written
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()));
    let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
    match policy::load_from(&MemoryFiles::new(files), Path::new(write::GATEWAY_FILE)) {
        Ok(_) => Vec::new(),
        Err(report) => report.diagnostics.into_iter().filter(is_error).collect(),
    }
}
