//! Whatever an input says, an import ends without a panic, and never with an output that the gateway would refuse.

use std::fs;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate::import::render::render_report;
use tollgate::import::repair::REFUSED;
use tollgate::import::{self, InputFile, SourceFormat};

use crate::cases;
use crate::common::mangling::mangle;

/// All cases that are one file, with their formats.
fn samples() -> Vec<(SourceFormat, String)> {
    let of_format = |format: SourceFormat| {
        let files = cases(format).into_iter().filter(|path| path.is_file());
        files.map(move |path| (format, fs::read_to_string(path).expect("a text")))
    };
    SourceFormat::ALL.into_iter().flat_map(of_format).collect()
}

fn check(format: SourceFormat, text: &str) -> Result<(), TestCaseError> {
    let source = InputFile {
        path: "input".into(),
        text: text.into(),
    };
    match import::import(format, &[source]) {
        Ok(imported) => {
            let report = render_report(&imported);
            // Only what depends on other policies may be refused, not what an import writes.
            let is_loop = |line: &str| line.contains("leads back to itself");
            let mut refused = report.lines().filter(|line| line.contains(REFUSED));
            prop_assert!(refused.all(is_loop), "{}\n{}", report, text);
            prop_assert!(
                !report.chars().any(|c| c.is_control() && c != '\n'),
                "{}",
                report
            );
        }
        // A process has room for 48 names of identities, and mangled names use them up.
        Err(error) if error.to_string().contains("identities of your own") => {}
        Err(error) => prop_assert!(
            !error.to_string().contains("fault of the import"),
            "{}\n{}",
            error,
            text
        ),
    }
    Ok(())
}

proptest! {
    // The same inputs each time; the fuzz target `importer` finds others.
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn mangled_cases(
        choice in 0.0..1.0,
        edits in prop::collection::vec((0.0..1.0, 0.0..1.0, 0_usize..30, "[ -~\n\té{}$;/*]{0,5}"), 1..6),
    ) {
        let samples = samples();
        let index = ((choice * samples.len() as f64) as usize).min(samples.len() - 1);
        let (format, text) = &samples[index];
        check(*format, &mangle(text, &edits))?;
    }

    /// Values that mean something in YAML or in a policy, in place of words of a case.
    #[test]
    fn odd_words(
        choice in 0.0..1.0,
        place in 0.0..1.0,
        word in prop::sample::select(vec![
            "", "~", "null", "off", "-", "*", "/**", "{a}", "[x]", "a: b", "# x", "${env:HOME}", "$host", "\u{7f}", "é", "0",
            "99999999999999999999", "1e9", "127.0.0.1", "::1", "0.0.0.0/0", "https://", "unix:/x", "everyone", "user", "/a/../b",
            "//x", "%2e", "host", "_", "localhost:9900", "127.0.0.1:9900", "a.b.", "all", "upstream", "client", "x-forwarded-for",
        ]),
    ) {
        let samples = samples();
        let index = ((choice * samples.len() as f64) as usize).min(samples.len() - 1);
        let (format, text) = &samples[index];
        let is_word = |c: char| c.is_alphanumeric() || "._/:-$*".contains(c);
        let words: Vec<&str> = text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).collect();
        if let Some(replaced) = words.get((place * words.len() as f64) as usize) {
            check(*format, &text.replace(replaced, word))?;
        }
    }
}
