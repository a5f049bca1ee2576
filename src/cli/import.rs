//! The command `tollgate import`: turns the configuration of another gateway into policies, and reports on each of its
//! lines. It changes no file but those that it writes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::output::{self, CommandError};
use crate::import::render::{render_files, render_json, render_report};
use crate::import::{self, Imported, InputFile, MAX_SOURCE_BYTES, MAX_SOURCE_FILES, SourceFormat};
use crate::policy::source::{DiskFiles, Files};

#[derive(Args)]
pub struct Arguments {
    /// What the files are.
    #[arg(value_enum)]
    format: SourceFormat,
    /// Files of one configuration, in the order in which it reads them.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write into this folder, which must be empty or absent. Without it the files are printed.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the report as JSON, and with it the files if they are not written.
    #[arg(long)]
    json: bool,
}

impl ValueEnum for SourceFormat {
    fn value_variants<'a>() -> &'a [SourceFormat] {
        &SourceFormat::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()))
    }
}

/// Runs the command. Exit code 0: every line about limits, routes and access is taken, perhaps with another meaning. 1: one
/// is left, or the output cannot be written. 2: the input cannot be imported.
pub fn run(arguments: &Arguments) -> ExitCode {
    match import_files(arguments) {
        Ok(imported) => print_result(arguments, &imported),
        Err(error) => error.print(),
    }
}

/// Reads and imports the files, and writes the output if there is a folder for it.
fn import_files(arguments: &Arguments) -> Result<Imported, CommandError> {
    if arguments.files.len() > MAX_SOURCE_FILES {
        let message = format!("tollgate: import at most {MAX_SOURCE_FILES} files at a time");
        return Err(CommandError::mistake(message));
    }
    // Found before any work, so that nobody waits for an output that cannot be written.
    if let Some(folder) = &arguments.out {
        check_folder(folder)?;
    }
    let sources: Result<Vec<InputFile>, CommandError> = arguments
        .files
        .iter()
        .map(|path| read_source(path))
        .collect();
    let imported = import::import(arguments.format, &sources?)
        .map_err(|error| CommandError::mistake(format!("tollgate: {error}")))?;
    if let Some(folder) = &arguments.out {
        write_files(folder, &imported)
            .map_err(|message| CommandError::failure(format!("tollgate: {message}")))?;
    }
    Ok(imported)
}

fn read_source(path: &Path) -> Result<InputFile, CommandError> {
    let shown = path.display();
    let bytes = DiskFiles.read(path, MAX_SOURCE_BYTES).map_err(|reason| {
        CommandError::mistake(format!("tollgate: cannot read {shown}: {reason}"))
    })?;
    let text = String::from_utf8(bytes).map_err(|_| {
        CommandError::mistake(format!(
            "tollgate: {shown} is not UTF-8; convert it, or remove what is not"
        ))
    })?;
    Ok(InputFile {
        path: shown.to_string(),
        text,
    })
}

/// Checks that a folder is empty or absent.
fn check_folder(folder: &Path) -> Result<(), CommandError> {
    let shown = folder.display();
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let message = format!("tollgate: cannot write into {shown}: {error}");
            return Err(CommandError::mistake(message));
        }
    };
    match entries.next() {
        Some(Ok(entry)) => {
            let name = entry.file_name();
            Err(CommandError::mistake(format!(
                "tollgate: {shown} is not empty: it has {}; name a new folder",
                import::report::printable(&name.to_string_lossy(), 100)
            )))
        }
        Some(Err(error)) => Err(CommandError::mistake(format!(
            "tollgate: cannot read {shown}: {error}"
        ))),
        None => Ok(()),
    }
}

fn write_files(folder: &Path, imported: &Imported) -> Result<(), String> {
    for file in &imported.files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, &file.text))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn print_result(arguments: &Arguments, imported: &Imported) -> ExitCode {
    let code = ExitCode::from(u8::from(imported.rules_left() > 0));
    if arguments.json {
        let json = render_json(imported, arguments.out.is_none());
        return output::exit_code(output::print_line(format_args!("{json:#}")), code);
    }
    output::print_stderr(render_report(imported));
    let print_result = match &arguments.out {
        Some(folder) => {
            let count = imported.files.len();
            output::print_line(format_args!("wrote {count} files to {}", folder.display()))
        }
        None => output::print(render_files(imported)),
    };
    output::exit_code(print_result, code)
}
