//! Reads `errors`: the files with the bodies of the gateway's own refusals.

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField};
use super::super::table::ValueShape;
use super::super::tree::{Located, MapKey, Node};
use super::field::{FileName, ListField};
use crate::base::suggest::list_words;
use crate::route::error_page::REFUSAL_STATUSES;

/// The statuses of requests that are refused before they have a policy.
const UNROUTED_STATUSES: [u16; 6] = [404, 405, 414, 421, 431, 505];

/// The statuses of requests whose `Accept` cannot be read.
const UNREADABLE_STATUSES: [u16; 3] = [414, 431, 505];

/// The files for one status, or for all that begin with one digit.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorPageConfig {
    /// Which statuses the files are for.
    pub statuses: StatusRange,
    /// The files.
    pub files: ErrorFiles,
}

/// The files for some statuses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorFiles {
    /// The page for clients that prefer HTML.
    pub html: Option<Located<String>>,
    /// The JSON in place of problem documents.
    pub json: Option<Located<String>>,
}

/// A status, or all statuses of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusRange {
    /// Only this status.
    One(u16),
    /// All statuses with this first digit.
    Class(u16),
}

impl StatusRange {
    /// Parses `429` or `4xx`; `None` for anything else, also for a status that no refusal has.
    fn parse(text: &str) -> Option<StatusRange> {
        match text {
            "4xx" => Some(StatusRange::Class(4)),
            "5xx" => Some(StatusRange::Class(5)),
            _ => {
                let status = text.parse().ok()?;
                let is_known = REFUSAL_STATUSES.contains(&status) && text.len() == 3;
                is_known.then_some(StatusRange::One(status))
            }
        }
    }

    /// Whether the range has all statuses of `other`.
    fn covers(self, other: StatusRange) -> bool {
        match (self, other) {
            (StatusRange::Class(class), StatusRange::One(status)) => class == status / 100,
            (own, other) => own == other,
        }
    }
}

/// Whether files that a file names for the statuses `own` leave no request to files for `other` of a file above.
pub(super) fn covers_statuses(own: &MapKey, other: &MapKey) -> bool {
    let ranges = StatusRange::parse(&own.text).zip(StatusRange::parse(&other.text));
    own.text == other.text || ranges.is_some_and(|(own, other)| own.covers(other))
}

/// The files for a status among those of one file: of the status itself, or else of its class.
pub fn find_error_page(pages: &[ErrorPageConfig], status: u16) -> Option<&ErrorPageConfig> {
    let ranges = [StatusRange::One(status), StatusRange::Class(status / 100)];
    let mut found = ranges
        .into_iter()
        .filter_map(|range| pages.iter().find(|page| page.statuses == range));
    found.next()
}

/// A field with a map from statuses to files. `IS_ROUTED` says that it stands in a policy or in the defaults of a folder.
pub struct ErrorPagesField<const IS_ROUTED: bool>;

impl<const IS_ROUTED: bool> FieldReader for ErrorPagesField<IS_ROUTED> {
    type Value = Vec<ErrorPageConfig>;
    const SHAPE: ValueShape = ValueShape::NamedMap(&ListField::<FileName>::SHAPE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<ErrorPageConfig>> {
        let mut pages = Vec::new();
        for (key, node) in cx.named_entries(node, "files") {
            let statuses = read_statuses(cx, key, IS_ROUTED);
            let files = read_files(cx, key, node);
            pages.extend(statuses.map(|statuses| ErrorPageConfig { statuses, files }));
        }
        Some(pages)
    }
}

/// Reads the statuses. `None` for those that no refusal has, or that no refusal of a route has. Both are reported.
fn read_statuses(cx: &mut LoadContext, key: &MapKey, is_routed: bool) -> Option<StatusRange> {
    let Some(range) = StatusRange::parse(&key.text) else {
        let numbers = REFUSAL_STATUSES.map(|status| status.to_string());
        let words = numbers.iter().map(String::as_str).chain(["4xx", "5xx"]);
        let message = format!("`{}` is no status of the gateway's own refusals", key.text);
        cx.error(
            key.location,
            message,
            Some(format!("write {}", list_words(words))),
        );
        return None;
    };
    match range {
        StatusRange::One(status) if is_routed && UNROUTED_STATUSES.contains(&status) => {
            let message = format!("a request that gets {status} has no policy");
            let help = "write it into `errors` of the gateway file";
            cx.error(key.location, message, Some(help.into()));
            None
        }
        _ => Some(range),
    }
}

/// Reads the files of one entry by their extensions. Reports other extensions, and two files of one kind.
fn read_files(cx: &mut LoadContext, key: &MapKey, node: &Node) -> ErrorFiles {
    let mut files = ErrorFiles::default();
    for file in ListField::<LocatedField<FileName>>::read(cx, node).unwrap_or_default() {
        let (kind, slot) = match file.value.rsplit_once('.') {
            Some((_, "html")) => ("HTML", &mut files.html),
            Some((_, "json")) => ("JSON", &mut files.json),
            _ => {
                let message = format!("`{}` ends neither in `.html` nor in `.json`", file.value);
                let help =
                    "a page for browsers is a `.html` file, a body for all others a `.json` file";
                cx.error(file.location, message, Some(help.into()));
                continue;
            }
        };
        if let Some(first) = slot {
            let message = format!("`{}` is a second file of {kind}", file.value);
            let help = format!("keep it or `{}`", first.value);
            cx.error(file.location, message, Some(help));
            continue;
        }
        let is_unreadable = UNREADABLE_STATUSES
            .map(|status| status.to_string())
            .contains(&key.text);
        if kind == "HTML" && is_unreadable {
            let message = format!(
                "a request that gets {} is refused before its `Accept` is read, so that no client gets the page",
                key.text
            );
            cx.error(
                file.location,
                message,
                Some("write a `.json` file, or remove it".into()),
            );
            continue;
        }
        *slot = Some(file);
    }
    files
}
