//! Whatever stands in the configuration of another gateway, an import ends without a panic. What it writes passes the
//! checks of the gateway, and what it reports can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::import::render::{render_files, render_report};
use tollgate::import::{SourceFormat, InputFile, import};

fuzz_target!(|input: (u8, &str)| {
    let (number, text) = input;
    let Some(format) = SourceFormat::ALL.get(usize::from(number) % SourceFormat::ALL.len()) else {
        return;
    };
    // A form feed parts two files.
    let files: Vec<InputFile> = text
        .splitn(2, '\u{c}')
        .zip(["main.conf", "conf.d/more.conf"])
        .map(|(text, path)| InputFile {
            path: path.into(),
            text: text.into(),
        })
        .collect();
    match import(*format, &files) {
        Ok(imported) => {
            let report = render_report(&imported);
            assert!(!report.chars().any(|c| c.is_control() && c != '\n'));
            assert!(!render_files(&imported).is_empty());
        }
        // A process has room for 48 names of identities, and inputs use them up.
        Err(error) if error.to_string().contains("identities of your own") => {}
        // The import checks its own output, and says so if that fails.
        Err(error) => assert!(!error.to_string().contains("fault of the import"), "{error}"),
    }
});
