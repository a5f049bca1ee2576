//! Reads the section `access_log`: which requests are logged, where and in which form, and when the gateway rotates the
//! file. `check/logged_fields.rs` checks the names in `fields`, which may be identities.

use std::path::PathBuf;

use super::super::context::LoadContext;
use super::super::section::{
    FieldReader, LocatedField, RequiredField, Section, SectionField, section,
};
use super::super::settings::{LogDestination, LogFormat, LogRotation, LoggedField, LoggedRequests};
use super::super::table::{MapFields, ValueShape};
use super::super::tree::{Node, YamlValue};
use super::field::{ListField, SizeField, WholeNumberField, scalar_fields, word_fields};
use super::scalar::PATH_FORMAT;
use super::switch_word::{is_off, is_on, report_mistyped_word, report_switch_word};
use crate::limit::CustomIdentity;

/// Minimum size in bytes at which a file is rotated: some ten lines.
const MIN_ROTATION_BYTES: u64 = 4 * 1024;
/// Maximum size in bytes at which a file is rotated: 1 TiB, more than most disks have.
const MAX_ROTATION_BYTES: u64 = 1 << 40;

/// Maximum number of old files that are kept.
const MAX_KEPT_FILES: u64 = 1000;
/// The number of old files that are kept if the gateway file gives no number.
const DEFAULT_KEPT_FILES: u32 = 5;

section! {
    /// The requests that are logged, and the destination of their lines.
    pub struct AccessLogConfig, table ACCESS_LOG_TABLE = "`access_log`",
        "Where requests are logged, a line for each.", check check_access_log;
    file: LogFileField, "The file, `stdout` or `stderr`. Default: stdout.", "access.log";
    requests: LoggedRequestsField = LoggedRequests::All, "Which requests.", "refused";
    rotate: SectionField<RotateConfig>, "When the file is put aside. Default: never.", "{ size: 100MiB, keep: 5 }";
    format: LogFormatField = LogFormat::Json, "The form of a line. `combined` is the Combined Log Format of Apache.", "combined";
    fields: ListField<LocatedField<LoggedNameField>> = Vec::new(),
        "What JSON lines have beside what all of them have. Identities of your own stand here by their names.", "[host, user_agent, tenant]";
}

section! {
    /// When the file of the access log is rotated.
    pub struct RotateConfig, table ROTATE_TABLE = "`rotate`",
        "The gateway itself puts the file aside: FILE becomes FILE.1, that FILE.2, and so on.";
    size: RequiredField<SizeField<MIN_ROTATION_BYTES, MAX_ROTATION_BYTES>>,
        "From which size on.", "100MiB";
    keep: WholeNumberField<u32, 1, MAX_KEPT_FILES> = DEFAULT_KEPT_FILES,
        "How many files are kept beside it.", "5";
}

word_fields! {
    /// A field that says which requests are logged.
    pub struct LoggedRequestsField: LoggedRequests =
        "all" => LoggedRequests::All, "refused" => LoggedRequests::Refused, "off" => LoggedRequests::Off;
}

word_fields! {
    /// A field that says which form the lines of the log have.
    pub struct LogFormatField: LogFormat = "json" => LogFormat::Json, "combined" => LogFormat::Combined;
}

scalar_fields! {
    /// A field with the name of a member that lines of the log have if it is listed.
    pub struct LoggedNameField: String =
        ValueShape::AnyOf(&[ValueShape::Words(LOGGED_NAMES), ValueShape::Text]), "the name of a field or of an identity";
}

/// The id of the request by its name in `fields`. Lines have it in any case where requests have ids.
pub const REQUEST_ID_NAME: &str = "request_id";

/// The names in `fields` that are no identities.
pub const LOGGED_NAMES: &[&str] = &[
    "host",
    "user_agent",
    "referer",
    REQUEST_ID_NAME,
    "protocol",
    "tls",
    "upstream",
    "upstream_ms",
    "bytes_in",
];

/// The field that this name stands for. `None` for [`REQUEST_ID_NAME`], and for a name that the process has not defined
/// as an identity.
pub fn logged_field(name: &str) -> Option<LoggedField> {
    let mut built_in = LoggedField::BUILT_IN.into_iter();
    let field = built_in.find(|field| field.as_str() == name);
    field.or_else(|| CustomIdentity::find(name).map(LoggedField::Identity))
}

/// A field with a word, with the path of a file, or with a map. A word for off logs no request; a word for on stands
/// for the defaults.
pub struct AccessLogField;

impl FieldReader for AccessLogField {
    type Value = AccessLogConfig;
    const SHAPE: ValueShape = ValueShape::AnyOf(&[
        ValueShape::Bool,
        ValueShape::Words(&["stdout", "stderr", "off"]),
        ValueShape::Format(&PATH_FORMAT),
        ValueShape::Table(&ACCESS_LOG_TABLE),
    ]);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<AccessLogConfig> {
        if matches!(node.value, YamlValue::Map(_)) {
            return AccessLogConfig::read(cx, node);
        }
        let mut access_log = AccessLogConfig::default();
        match node.scalar() {
            Some(text) if is_off(text) => access_log.requests = LoggedRequests::Off,
            Some(text) if is_on(text) => {}
            _ => access_log.file = LogFileField::read(cx, node),
        }
        Some(access_log)
    }
}

/// A field with the path of a file, or the name of a standard stream; `-` is `stdout` too. A path that is probably a
/// mistyped word is reported.
pub struct LogFileField;

impl FieldReader for LogFileField {
    type Value = LogDestination;
    const SHAPE: ValueShape = ValueShape::Format(&PATH_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<LogDestination> {
        let path = cx.read_text(node, "`stdout`, `stderr`, `off` or a file")?;
        Some(match path.value.as_str() {
            "stdout" | "-" => LogDestination::Stdout,
            "stderr" => LogDestination::Stderr,
            word => {
                if is_off(word) || is_on(word) {
                    report_switch_word(
                        cx,
                        &path,
                        "name the file, and to log nothing write `requests: off`",
                    );
                } else {
                    report_mistyped_word(cx, &path, &["stdout", "stderr", "off"]);
                }
                LogDestination::File {
                    path: PathBuf::from(path.value),
                    rotation: None,
                }
            }
        })
    }
}

/// Sets the rotation, and reports names in `fields` for lines that have no members.
fn check_access_log(
    cx: &mut LoadContext,
    fields: &MapFields<'_>,
    access_log: &mut AccessLogConfig,
) {
    set_rotation(cx, fields, access_log);
    if access_log.format == LogFormat::Combined && fields.has("fields") {
        let message = "lines of the format `combined` have no further fields";
        let help = "remove `fields`, or write `format: json`";
        cx.error(fields.location_of("fields"), message, Some(help.into()));
    }
}

/// Copies the rotation into the destination of the log, and reports a rotation without a file.
fn set_rotation(cx: &mut LoadContext, fields: &MapFields<'_>, access_log: &mut AccessLogConfig) {
    let has_file = match &mut access_log.file {
        Some(LogDestination::File { rotation, .. }) => {
            *rotation = access_log
                .rotate
                .as_ref()
                .and_then(RotateConfig::to_rotation);
            true
        }
        Some(LogDestination::Stdout | LogDestination::Stderr) => false,
        // An invalid file was reported, so its rotation is not.
        None => fields.has("file"),
    };
    if fields.has("rotate") && !has_file {
        let help = "write `file: access.log` beside it, or remove it";
        let message = "`rotate` is for a log that has a file";
        cx.error(fields.location_of("rotate"), message, Some(help.into()));
    }
}

impl RotateConfig {
    /// The rotation; `None` if its size is absent or invalid, which is reported.
    fn to_rotation(&self) -> Option<LogRotation> {
        Some(LogRotation {
            max_bytes: self.size? as u64,
            kept_files: self.keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_a_field() {
        let names = LoggedField::BUILT_IN.map(LoggedField::as_str);
        let listed = LOGGED_NAMES.iter().filter(|name| **name != REQUEST_ID_NAME);
        assert!(listed.eq(&names));
    }
}
