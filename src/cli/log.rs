//! `tollgate log`: what a record says, without the gateway.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::{MISTAKE, output};
use crate::policy;
use crate::record;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Reads the whole record: every checksum, and every longer step against what it was made of.
    Verify(Verify),
}

#[derive(clap::Args)]
struct Verify {
    /// The gateway file, which names the folder.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.verb {
        Verb::Verify(arguments) => verify(arguments),
    }
}

/// Exit code 0: all is as it was written. 1: something is not, or cannot be read.
fn verify(arguments: &Verify) -> ExitCode {
    let loaded = match policy::load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(report) => {
            output::tell(report);
            return ExitCode::from(MISTAKE);
        }
    };
    let Some(folder) = loaded.process.record.and_then(|settings| settings.folder) else {
        output::tell(
            "tollgate: the record has no folder: write `record: { dir: data/record }` in the gateway file",
        );
        return ExitCode::from(MISTAKE);
    };
    let verified = match record::verify(&folder) {
        Ok(verified) => verified,
        Err(error) => {
            output::tell(format_args!(
                "tollgate: cannot read the record in `{}`: {error}",
                folder.display()
            ));
            return ExitCode::FAILURE;
        }
    };
    let code = ExitCode::from(u8::from(!verified.faults.is_empty()));
    if arguments.json {
        let faults = verified.faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| json!({ "file": fault.path.display().to_string(), "what": fault.what }))
            .collect();
        let text = json!({
            "files": verified.files,
            "bytes": verified.bytes,
            "compared": verified.compared,
            "faults": faults,
        });
        return output::ended(output::line(format_args!("{text:#}")), code);
    }
    let mut text = String::new();
    for fault in &verified.faults {
        text.push_str(&format!("{fault}\n"));
    }
    text.push_str(&format!(
        "{} files of {} bytes, {} buckets held against what they were made of: {}\n",
        verified.files,
        verified.bytes,
        verified.compared,
        match verified.faults.len() {
            0 => String::from("all is as it was written"),
            1 => String::from("1 is wrong"),
            faults => format!("{faults} are wrong"),
        }
    ));
    output::ended(output::print(text), code)
}
