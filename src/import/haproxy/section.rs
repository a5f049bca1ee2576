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
    /// Where the lines of each of the `defaults` that it inherits end.
    pub layers: Vec<usize>,
    /// Whether it inherits `defaults` that are not read.
    pub inherits_unknown: bool,
    /// Whether another section inherits its lines.
    pub is_inherited: bool,
    /// Whether it is forwarded over HTTP: `mode http`.
    pub is_http: bool,
}

impl ConfigSection {
    /// The number of the `defaults` that a line is of, or their count for a line of its own.
    pub fn layer(&self, line: usize) -> usize {
        self.layers.partition_point(|end| *end <= line)
    }

    /// The lines that it does not inherit.
    pub fn own_lines(&self) -> &[ConfigLine] {
        let start = self.layers.last().copied().unwrap_or(0);
        self.lines.get(start..).unwrap_or_default()
    }
}

/// What sections after `defaults` inherit.
#[derive(Clone, Copy)]
enum InheritedDefaults {
    Nothing,
    /// The section with this index.
    Section(usize),
    /// They are not read.
    Unknown,
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

/// The name of a section; `defaults from NAME` has none.
fn name_of(line: &ConfigLine) -> &str {
    match line.word(1) {
        "from" if line.word(0) == "defaults" => "",
        name => name,
    }
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
    let mut current_defaults = InheritedDefaults::Nothing;
    let mut named_defaults: HashMap<String, InheritedDefaults> = HashMap::new();
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
            if kind == SectionKind::Defaults {
                current_defaults = InheritedDefaults::Unknown;
                named_defaults.insert(line.word(1).to_owned(), InheritedDefaults::Unknown);
            }
            continue;
        }
        is_open = true;
        let from = line.words.iter().skip_while(|word| *word != "from").nth(1);
        let defaults = match (kind, from) {
            (SectionKind::Global | SectionKind::Peers | SectionKind::Other, _)
            | (SectionKind::Defaults, None) => InheritedDefaults::Nothing,
            (_, Some(name)) => {
                let known = named_defaults.get(name).copied();
                known.unwrap_or(InheritedDefaults::Unknown)
            }
            (_, None) => current_defaults,
        };
        let mut inherits_unknown = matches!(defaults, InheritedDefaults::Unknown);
        let (mut inherited, mut layers) = (Vec::new(), Vec::new());
        if let InheritedDefaults::Section(index) = defaults
            && let Some(defaults) = sections.get_mut(index)
        {
            defaults.is_inherited = true;
            inherits_unknown = defaults.inherits_unknown;
            total += defaults.lines.len() + defaults.layers.len();
            if total <= MAX_INHERITED_LINES {
                inherited.clone_from(&defaults.lines);
                layers.clone_from(&defaults.layers);
                layers.push(inherited.len());
            }
        }
        if total > MAX_INHERITED_LINES {
            let path = report.path(line.origin).to_owned();
            let message = format!("sections inherit more than {MAX_INHERITED_LINES} lines");
            return Err(ImportError::at(&path, line.origin.line, 1, message).with_help("split it"));
        }
        if kind == SectionKind::Defaults {
            let own = InheritedDefaults::Section(sections.len());
            current_defaults = own;
            // Of a name that is there twice, also under a condition, it is not known which one holds.
            named_defaults
                .entry(name_of(&line).to_owned())
                .and_modify(|known| *known = InheritedDefaults::Unknown)
                .or_insert(own);
        }
        sections.push(ConfigSection {
            kind,
            name: name_of(&line).to_owned(),
            header: line,
            lines: inherited,
            layers,
            inherits_unknown,
            is_inherited: false,
            is_http: false,
        });
    }
    for section in &mut sections {
        let mode = section.lines.iter().rfind(|line| line.word(0) == "mode");
        section.is_http = mode.is_some_and(|mode| mode.word(1) == "http" && !mode.is_conditional);
    }
    Ok(sections)
}
