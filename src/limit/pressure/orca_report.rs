//! The load that an upstream reports in the field `endpoint-load-metrics`: Open Request Cost Aggregation (ORCA, xDS).
//! It is read as text and as JSON. The binary form is refused: servers that send it in this field can send another
//! form.
//!
//! - Text: `cpu_utilization:0.7,named_metrics.kv:0.4`, also with `=` for `:`, and with `TEXT ` at the front.
//! - JSON: `JSON {"cpu_utilization":0.7,"named_metrics":{"kv":0.4}}`.
//!
//! The bytes are untrusted. A report that exceeds [`MAX_REPORT_BYTES`] or [`MAX_REPORT_ENTRIES`] is refused.

mod entry;
mod json;

use std::str;

use entry::{APPLICATION_METRIC, CPU_METRIC, NAMED_METRICS, OnEntry};

pub use entry::{MAX_REPORT_BYTES, MAX_REPORT_ENTRIES, ReportError};

/// A load: 0 is idle, 1 is full, above 1 is overload.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Utilisation(f64);

impl Utilisation {
    /// The highest load. A higher number is probably a mistake, for instance a percentage.
    pub const MAX: f64 = 10.0;

    /// Makes a load; `None` unless the number is from 0 to [`Utilisation::MAX`].
    pub fn new(load: f64) -> Option<Utilisation> {
        (0.0..=Utilisation::MAX)
            .contains(&load)
            .then_some(Utilisation(load))
    }

    /// The load as a number, from 0 to [`Utilisation::MAX`].
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The loads that one value of the field states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrcaReport {
    /// The load that the application computes itself.
    application: Option<Utilisation>,
    /// The metric that the gateway file names as the load.
    named: Option<Utilisation>,
    /// The load of the processors.
    cpu: Option<Utilisation>,
}

impl OrcaReport {
    /// Parses one value of the field. `named` is the metric that the gateway file names as the load, without
    /// `named_metrics.`.
    ///
    /// # Errors
    ///
    /// The value is neither text nor JSON, has more than [`MAX_REPORT_BYTES`] bytes or [`MAX_REPORT_ENTRIES`] entries,
    /// or has an invalid entry. A load that is not from 0 to [`Utilisation::MAX`], or that stands twice, is an error
    /// too. Then none of the value is used.
    pub fn parse(value: &[u8], named: Option<&str>) -> Result<OrcaReport, ReportError> {
        if value.len() > MAX_REPORT_BYTES {
            return Err(ReportError::TooLong);
        }
        let text = str::from_utf8(value)
            .map_err(|_| ReportError::UnknownForm)?
            .trim();
        let mut report = OrcaReport::default();
        if let Some(json) = text.strip_prefix("JSON ") {
            json::parse_entries(json, &mut |name, number| {
                report.set_load(name, number, named)
            })?;
        } else if text.starts_with("BIN ") {
            return Err(ReportError::UnknownForm);
        } else {
            let text = text.strip_prefix("TEXT ").unwrap_or(text);
            parse_text_entries(text, &mut |name, number| {
                report.set_load(name, number, named)
            })?;
        }
        Ok(report)
    }

    /// The load that counts: the application's own, else the named metric, else that of the processors. `None` if the
    /// report has none of them.
    pub fn load(&self) -> Option<Utilisation> {
        self.application.or(self.named).or(self.cpu)
    }

    /// Keeps an entry if it is one of the three loads; the values of other entries are ignored.
    ///
    /// # Errors
    ///
    /// The load is not from 0 to [`Utilisation::MAX`], or the report has it already.
    fn set_load(
        &mut self,
        name: &str,
        number: f64,
        named: Option<&str>,
    ) -> Result<(), ReportError> {
        let metric = name
            .strip_prefix(NAMED_METRICS)
            .and_then(|suffix| suffix.strip_prefix('.'));
        let entry = match name {
            APPLICATION_METRIC | "applicationUtilization" => &mut self.application,
            CPU_METRIC | "cpuUtilization" => &mut self.cpu,
            _ if metric.is_some() && metric == named => &mut self.named,
            _ => return Ok(()),
        };
        let load = Utilisation::new(number).ok_or(ReportError::BadLoad)?;
        match entry.replace(load) {
            Some(_) => Err(ReportError::Duplicate),
            None => Ok(()),
        }
    }
}

/// Passes each entry of the text form to `on_entry`.
///
/// # Errors
///
/// There are more than [`MAX_REPORT_ENTRIES`], one is not a name and a number, or `on_entry` rejects one.
fn parse_text_entries(text: &str, on_entry: &mut OnEntry<'_>) -> Result<(), ReportError> {
    for (index, entry) in text.split(',').enumerate() {
        if index >= MAX_REPORT_ENTRIES {
            return Err(ReportError::TooLong);
        }
        let (name, number) = entry.split_once([':', '=']).ok_or(ReportError::BadEntry)?;
        let (name, number) = (name.trim(), number.trim());
        if name.is_empty() || number.is_empty() {
            return Err(ReportError::BadEntry);
        }
        let number: f64 = number.parse().map_err(|_| ReportError::BadEntry)?;
        on_entry(name, number)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Result<Option<f64>, ReportError>) {
        let report = OrcaReport::parse(value.as_bytes(), Some("kv"));
        let load = report.map(|report| report.load().map(Utilisation::get));
        assert_eq!(load, expected, "{value}");
    }

    #[test]
    fn the_best_load_counts() {
        check(
            "cpu_utilization:0.7,application_utilization:0.8,named_metrics.x:1",
            Ok(Some(0.8)),
        );
        check(
            "TEXT named_metrics.kv=0.4,cpu_utilization=0.9",
            Ok(Some(0.4)),
        );
        check(
            " cpu_utilization : 1.25 , rps_fractional:900 ",
            Ok(Some(1.25)),
        );
        check("named_metrics.x:1,mem_utilization:0.3", Ok(None));
        check(
            r#"JSON {"cpu_utilization":0.7,"named_metrics":{"kv":0.4,"x":9}}"#,
            Ok(Some(0.4)),
        );
        check(
            r#"JSON {"applicationUtilization":2e-1,"rps":-1,"z":{"kv":[]}}"#,
            Ok(Some(0.2)),
        );
        check("JSON {}", Ok(None));
        check("cpu_utilization:0", Ok(Some(0.0)));
        check("cpu_utilization:10", Ok(Some(10.0)));
    }

    #[test]
    fn hostile_values_say_nothing() {
        use ReportError::{BadEntry, BadLoad, Duplicate, TooLong, UnknownForm};
        for load in [
            "nan", "NaN", "inf", "-inf", "infinity", "1e999", "-1", "-0.01", "10.1", "70",
        ] {
            check(&format!("cpu_utilization:{load}"), Err(BadLoad));
            check(
                &format!("application_utilization=0.1,cpu_utilization={load}"),
                Err(BadLoad),
            );
        }
        for value in [
            "",
            ",",
            "cpu_utilization",
            "cpu_utilization:",
            ":1",
            "a:b",
            "a:1,",
            "a:1 2",
        ] {
            check(value, Err(BadEntry));
        }
        check("cpu_utilization:0.1,cpu_utilization:0.1", Err(Duplicate));
        check("named_metrics.kv:0.1,named_metrics.kv:0.9", Err(Duplicate));
        check("BIN CAES", Err(UnknownForm));
        check(&"a:1,".repeat(65), Err(TooLong));
        check(&"x".repeat(MAX_REPORT_BYTES + 1), Err(TooLong));
        assert_eq!(OrcaReport::parse(b"\xff:1", None), Err(UnknownForm));
    }

    #[test]
    fn hostile_json_says_nothing() {
        use ReportError::{BadEntry, BadLoad, Duplicate, TooLong};
        for value in [
            "JSON ",
            "JSON 1",
            "JSON []",
            "JSON {",
            r#"JSON {"cpu_utilization":"0.1"}"#,
            r#"JSON {"cpu_utilization":null}"#,
            r#"JSON {"cpu_utilization":NaN}"#,
            r#"JSON {"cpu_utilization":1e999}"#,
            r#"JSON {"named_metrics":1}"#,
            r#"JSON {"named_metrics":{"kv":{}}}"#,
            r#"JSON {"cpu_utilization":0.1} {}"#,
        ] {
            check(value, Err(BadEntry));
        }
        check(r#"JSON {"cpu_utilization":-1}"#, Err(BadLoad));
        check(
            r#"JSON {"cpu_utilization":0.1,"cpu_utilization":0.1}"#,
            Err(Duplicate),
        );
        check(
            r#"JSON {"cpu_utilization":0.1,"cpuUtilization":0.1}"#,
            Err(Duplicate),
        );
        check(
            r#"JSON {"named_metrics":{"kv":0.1},"named_metrics":{"kv":0.1}}"#,
            Err(Duplicate),
        );
        let many: Vec<String> = (0..65).map(|i| format!("\"a{i}\":1")).collect();
        check(&format!("JSON {{{}}}", many.join(",")), Err(TooLong));
        check(
            &format!("JSON {{\"a\":{}", "[".repeat(4_000)),
            Err(BadEntry),
        );
    }
}
