//! The command `tollgate schema`: prints the JSON Schema of a kind of configuration file, for editors.

use std::process::ExitCode;

use clap::ValueEnum;

use super::output;
use crate::policy;

#[derive(clap::Args)]
pub struct Arguments {
    /// The kind of file.
    #[arg(value_enum, default_value = "policy")]
    file: SchemaKind,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemaKind {
    Gateway,
    Policy,
    Defaults,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let schema = match arguments.file {
        SchemaKind::Gateway => policy::schema::gateway_schema(),
        SchemaKind::Policy => policy::schema::policy_schema(),
        SchemaKind::Defaults => policy::schema::defaults_schema(),
    };
    output::exit_code(
        output::print_line(format_args!("{schema:#}")),
        ExitCode::SUCCESS,
    )
}
