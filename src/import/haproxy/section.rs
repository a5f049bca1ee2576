//! Sections of `haproxy.cfg`, and what they inherit from `defaults`.

use std::collections::HashMap;

use super::notes;
use super::syntax::ConfigLine;
use crate::import::error::ImportError;
use crate::import::report::{Concern, ImportReport};

/// Maximum number of lines of all sections with what they inherit.
const MAX_INHERITED_LINES: usize = 200_000;

/// What a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// `global`
    Global,
    /// `defaults`
    Defaults,
    /// `frontend`
    Frontend,
    /// `backend`
    Backend,
    /// `listen`: both in one.
    Listen,
    /// `peers`
    Peers,
    /// Any other one, such as `userlist`.
    Other,
}

/// A section with its lines.
#[derive(Clone, Debug)]
pub struct ConfigSection {
    /// What it is.
    pub kind: SectionKind,
    /// Its name; may be empty.
    pub name: String,
    /// Its first line.
    pub header: ConfigLine,
    /// Its lines, those of its `defaults` first.
    pub lines: Vec<ConfigLine>,
    /// Whether it is forwarded over HTTP: `mode http`.
    pub is_http: bool,
}

fn kind_of(word: &str) -> Option<SectionKind> {
    Some(match word {
        "global" => SectionKind::Global,
        "defaults" => SectionKind::Defaults,
        "frontend" => SectionKind::Frontend,
        "backend" => SectionKind::Backend,
        "listen" => SectionKind::Listen,
        "peers" => SectionKind::Peers,
        "userlist" | "resolvers" | "mailers" | "program" | "http-errors" | "cache" | "ring"
        | "log-forward" | "fcgi-app" | "crt-store" | "traces" | "log-profile" | "acme" => {
            SectionKind::Other
        }
        _ => return None,
    })
}

/// Groups lines into sections, and adds what sections inherit.
///
/// # Errors
///
/// Too many lines with what is inherited.
pub fn group(
    lines: Vec<ConfigLine>,
    report: &mut ImportReport,
) -> Result<Vec<ConfigSection>, ImportError> {
    let mut sections: Vec<ConfigSection> = Vec::new();
    // The `defaults` that hold for the next sections, and those with names.
    let mut current_defaults: Option<usize> = None;
    let mut named_defaults: HashMap<String, usize> = HashMap::new();
    let mut is_open = false;
    let mut total = 0_usize;
    for line in lines {
        if line.word(0).starts_with('.') {
            let note = "which lines hold is decided when HAProxy starts; keep those that hold, and leave out the condition";
            report.left(line.origin, Concern::Other, &line.text, note);
            continue;
        }
        let Some(kind) = kind_of(line.word(0)) else {
            match sections.last_mut().filter(|_| is_open) {
                Some(section) => section.lines.push(line),
                None => report.left(line.origin, Concern::Routing, &line.text, notes::NO_SECTION),
            }
            continue;
        };
        if line.is_conditional || line.has_variable {
            // What stands behind it may be of another section.
            is_open = false;
            report.left(line.origin, Concern::Routing, &line.text, notes::VARIABLE);
            continue;
        }
        is_open = true;
        let mut inherited = Vec::new();
        if matches!(
            kind,
            SectionKind::Frontend | SectionKind::Backend | SectionKind::Listen
        ) {
            let from = line.words.iter().skip_while(|word| *word != "from").nth(1);
            let defaults = match from {
                Some(name) => named_defaults.get(name).copied(),
                None => current_defaults,
            };
            let defaults = defaults.and_then(|index| sections.get(index));
            inherited = defaults.map_or(Vec::new(), |defaults| defaults.lines.clone());
            total += inherited.len();
        }
        if total > MAX_INHERITED_LINES {
            let path = report.path(line.origin).to_owned();
            let message = format!("sections inherit more than {MAX_INHERITED_LINES} lines");
            return Err(ImportError::at(&path, line.origin.line, 1, message).with_help("split it"));
        }
        if kind == SectionKind::Defaults {
            current_defaults = Some(sections.len());
            named_defaults.insert(line.word(1).to_owned(), sections.len());
            if line.word(2) == "from" {
                let note = "what these defaults inherit is not read; repeat it in them";
                report.left(line.origin, Concern::Routing, &line.text, note);
            }
        }
        sections.push(ConfigSection {
            kind,
            name: line.word(1).to_owned(),
            header: line,
            lines: inherited,
            is_http: false,
        });
    }
    for section in &mut sections {
        let mode = section.lines.iter().rfind(|line| line.word(0) == "mode");
        section.is_http = mode.is_some_and(|mode| mode.word(1) == "http" && !mode.is_conditional);
    }
    Ok(sections)
}
