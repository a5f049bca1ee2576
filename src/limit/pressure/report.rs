//! The load that an upstream reports in the field `endpoint-load-metrics`: Open Request Cost Aggregation
//! (ORCA, xDS), as text (`cpu_utilization:0.7,named_metrics.kv:0.4`, also with `=` and with `TEXT ` before)
//! and as `JSON {"cpu_utilization":0.7,"named_metrics":{"kv":0.4}}`. The binary form is refused:
//! no known server sends it where another form would not do. Reads untrusted bytes; at most [`LONGEST`].

mod entry;
mod json;

use std::str;

use entry::{APPLICATION, CPU, NAMED, PutEntry};

pub use entry::{LONGEST, MOST, ReportError};

/// A load: 0 is idle, 1 is full, above 1 is overload.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Utilisation(f64);

impl Utilisation {
    /// A higher number is taken for a mistake, for instance per cent.
    pub const MOST: f64 = 10.0;

    /// A number from 0 to [`Utilisation::MOST`].
    pub fn new(load: f64) -> Option<Utilisation> {
        (0.0..=Utilisation::MOST)
            .contains(&load)
            .then_some(Utilisation(load))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The loads in one value of the field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrcaReport {
    application: Option<Utilisation>,
    named: Option<Utilisation>,
    cpu: Option<Utilisation>,
}

impl OrcaReport {
    /// Parses one value of the field. `named` is the metric that the policy names as the load, without
    /// `named_metrics.`.
    pub fn parse(value: &[u8], named: Option<&str>) -> Result<OrcaReport, ReportError> {
        if value.len() > LONGEST {
            return Err(ReportError::Long);
        }
        let text = str::from_utf8(value).map_err(|_| ReportError::Form)?.trim();
        let mut report = OrcaReport::default();
        if let Some(json) = text.strip_prefix("JSON ") {
            json::read(json, &mut |name, load| report.put(name, load, named))?;
        } else if text.starts_with("BIN ") {
            return Err(ReportError::Form);
        } else {
            let text = text.strip_prefix("TEXT ").unwrap_or(text);
            entries(text, &mut |name, load| report.put(name, load, named))?;
        }
        Ok(report)
    }

    /// The load that counts: the application's own, else the named metric, else that of the processors.
    pub fn load(&self) -> Option<Utilisation> {
        self.application.or(self.named).or(self.cpu)
    }

    /// Keeps an entry if it is a load; others are ignored, whatever their number.
    fn put(&mut self, name: &str, load: f64, named: Option<&str>) -> Result<(), ReportError> {
        let metric = name
            .strip_prefix(NAMED)
            .and_then(|rest| rest.strip_prefix('.'));
        let place = match name {
            APPLICATION | "applicationUtilization" => &mut self.application,
            CPU | "cpuUtilization" => &mut self.cpu,
            _ if metric.is_some() && metric == named => &mut self.named,
            _ => return Ok(()),
        };
        let load = Utilisation::new(load).ok_or(ReportError::Load)?;
        match place.replace(load) {
            Some(_) => Err(ReportError::Duplicate),
            None => Ok(()),
        }
    }
}

fn entries(text: &str, put: &mut PutEntry<'_>) -> Result<(), ReportError> {
    for (index, entry) in text.split(',').enumerate() {
        if index >= MOST {
            return Err(ReportError::Long);
        }
        let (name, number) = entry.split_once([':', '=']).ok_or(ReportError::Entry)?;
        let (name, number) = (name.trim(), number.trim());
        if name.is_empty() || number.is_empty() {
            return Err(ReportError::Entry);
        }
        let number: f64 = number.parse().map_err(|_| ReportError::Entry)?;
        put(name, number)?;
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
        use ReportError::{Duplicate, Entry, Form, Load, Long};
        for load in [
            "nan", "NaN", "inf", "-inf", "infinity", "1e999", "-1", "-0.01", "10.1", "70",
        ] {
            check(&format!("cpu_utilization:{load}"), Err(Load));
            check(
                &format!("application_utilization=0.1,cpu_utilization={load}"),
                Err(Load),
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
            check(value, Err(Entry));
        }
        check("cpu_utilization:0.1,cpu_utilization:0.1", Err(Duplicate));
        check("named_metrics.kv:0.1,named_metrics.kv:0.9", Err(Duplicate));
        check("BIN CAES", Err(Form));
        check(&"a:1,".repeat(65), Err(Long));
        check(&"x".repeat(LONGEST + 1), Err(Long));
        assert_eq!(OrcaReport::parse(b"\xff:1", None), Err(Form));
    }

    #[test]
    fn hostile_json_says_nothing() {
        use ReportError::{Duplicate, Entry, Load, Long};
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
            check(value, Err(Entry));
        }
        check(r#"JSON {"cpu_utilization":-1}"#, Err(Load));
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
        check(&format!("JSON {{{}}}", many.join(",")), Err(Long));
        check(&format!("JSON {{\"a\":{}", "[".repeat(4_000)), Err(Entry));
    }
}
