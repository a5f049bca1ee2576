//! `tollgate log`: what a record says. All but `verify` ask the running gateway.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::admin::AdminAddress;
use crate::cli::output;
use crate::cli::output::MISTAKE;
use crate::policy;
use crate::record;

mod render;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Subcommand)]
enum LogCommand {
    /// Reads the whole record: every checksum, and every longer step against what it was made of.
    Verify(VerifyArguments),
    /// Curves of series in a few words each: how many in all, a second, and in the busiest second.
    Query(QueryArguments),
    /// Who was refused most, or asked about most.
    Top(TopArguments),
    /// Why requests were refused: by which limit, whom, and what had been changed before.
    Explain(SpanArguments),
    /// Series as lines of JSON, one for each step and series.
    Export(QueryArguments),
}

#[derive(clap::Args)]
struct SpanArguments {
    /// Seconds since 1970, or before now, such as -90s, -1h, -7d.
    #[arg(long, default_value = "-10m", allow_hyphen_values = true)]
    from: String,
    /// The same, or `now`.
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// Prints the gateway's JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

#[derive(clap::Args)]
struct QueryArguments {
    /// A name, and labels if not all: `tollgate_requests_total{route="shop"}`.
    series: String,
    /// Adds up the series that agree in these labels; all of them for `--by ''`.
    #[arg(long)]
    by: Option<String>,
    /// Most steps.
    #[arg(long, default_value_t = 60)]
    points: usize,
    #[command(flatten)]
    span: SpanArguments,
}

#[derive(clap::Args)]
struct TopArguments {
    /// `refused` or `asked`.
    #[arg(long, default_value = "refused")]
    of: String,
    /// Only of this limit.
    #[arg(long)]
    limit: Option<String>,
    /// Most keys.
    #[arg(long, default_value_t = 20)]
    most: usize,
    #[command(flatten)]
    span: SpanArguments,
}

#[derive(clap::Args)]
struct VerifyArguments {
    /// The gateway file, which names the folder.
    #[arg(long, default_value = "tollgate.yaml")]
    config: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.command {
        LogCommand::Verify(arguments) => verify(arguments),
        LogCommand::Query(query) => print_answer(&query.span, &query.path(), render::curves),
        LogCommand::Top(top) => print_answer(&top.span, &top.path(), render::top),
        LogCommand::Explain(span) => {
            print_answer(span, &span.path("explain", &[]), render::explanation)
        }
        LogCommand::Export(query) => {
            let as_lines = |answer: &Value| render::lines(answer, query.by.is_some());
            print_answer(&query.span, &query.path(), as_lines)
        }
    }
}

/// Asks, and prints what is answered.
fn print_answer(span: &SpanArguments, path: &str, text: impl FnOnce(&Value) -> String) -> ExitCode {
    match span.admin.request("GET", path, "") {
        Ok(answer) if span.json => output::exit_code(
            output::print_line(format_args!("{answer:#}")),
            ExitCode::SUCCESS,
        ),
        Ok(answer) => output::exit_code(output::print(text(&answer)), ExitCode::SUCCESS),
        Err((code, why)) => {
            output::print_stderr(why);
            ExitCode::from(code)
        }
    }
}

impl SpanArguments {
    fn path(&self, what: &str, more: &[(&str, &str)]) -> String {
        let span = [("from", self.from.as_str()), ("to", self.to.as_str())];
        let mut path = format!("/v1/record/{what}?");
        for (name, value) in span.iter().chain(more) {
            path += name;
            path.push('=');
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    path.push(byte.into());
                } else {
                    path += &format!("%{byte:02X}");
                }
            }
            path.push('&');
        }
        path.pop();
        path
    }
}

impl QueryArguments {
    fn path(&self) -> String {
        let points = self.points.to_string();
        let mut more = vec![("series", self.series.as_str()), ("points", &points)];
        more.extend(self.by.as_deref().map(|by| ("by", by)));
        self.span.path("range", &more)
    }
}

impl TopArguments {
    fn path(&self) -> String {
        let most = self.most.to_string();
        let mut more = vec![("of", self.of.as_str()), ("most", &most)];
        more.extend(self.limit.as_deref().map(|limit| ("limit", limit)));
        self.span.path("top", &more)
    }
}

/// Exit code 0: all is as it was written. 1: something is not, or cannot be read.
fn verify(arguments: &VerifyArguments) -> ExitCode {
    let loaded = match policy::load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(report) => {
            output::print_stderr(report);
            return ExitCode::from(MISTAKE);
        }
    };
    let Some(folder) = loaded.process.record.and_then(|settings| settings.folder) else {
        output::print_stderr(
            "tollgate: the record has no folder: write `record: { dir: data/record }` in the gateway file",
        );
        return ExitCode::from(MISTAKE);
    };
    let verified = match record::verify(&folder) {
        Ok(verified) => verified,
        Err(error) => {
            output::print_stderr(format_args!(
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
        return output::exit_code(output::print_line(format_args!("{text:#}")), code);
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
    output::exit_code(output::print(text), code)
}
