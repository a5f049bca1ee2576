//! How many units a request says it may cost, for limits that hold as many until its cost is known.

use std::sync::Arc;

use crate::cost::{Meter, largest};
use crate::head::Head;
use crate::limit::{Rule, Source};

/// Units by the place of the rule; of other rules as many as the rule says.
pub type Reserved = Option<Box<[(usize, u32)]>>;

fn source(rule: &Rule) -> Option<&Source> {
    rule.reserve.as_ref()?.source.as_ref()
}

/// What the head says, and the body as far as it is there; `whole` when that is all of it.
pub fn reserved(rules: &[Arc<Rule>], head: &Head, body: &[u8], whole: bool) -> Reserved {
    let paths = rules.iter().filter_map(|rule| match source(rule)? {
        Source::Json(path) => Some(path),
        Source::Header(_) => None,
    });
    let fields = &head.fields;
    let codings = fields.all("content-encoding");
    let mut meter = Meter::new(paths, codings, fields.first("content-type"));
    meter.feed(body);
    meter.finish(whole);
    let each = rules.iter().enumerate().filter_map(|(place, rule)| {
        let reserve = rule.reserve.as_ref()?;
        let units = match reserve.source.as_ref()? {
            Source::Header(name) => largest(fields, name)?,
            Source::Json(path) => match meter.measured(path)? {
                found if found.exact => found.units,
                // Another number may stand in what was not read.
                found => found.units.max(reserve.otherwise),
            },
        };
        Some((place, units))
    });
    let each: Box<[_]> = each.collect();
    Some(each).filter(|each| !each.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Identity, Limit, Name, Reserve};

    fn rule(source: Source) -> Arc<Rule> {
        let name = Name::new("units").unwrap();
        let limit = Limit::hard("1000/h".parse().unwrap());
        let mut rule = Rule::new(name, 0, &[Identity::Ip], limit);
        rule.reserve = Some(Reserve {
            source: Some(source),
            otherwise: 40,
        });
        Arc::new(rule)
    }

    #[track_caller]
    fn check(
        source: &Source,
        fields: &[(&str, &str)],
        body: &str,
        whole: bool,
        units: Option<u32>,
    ) {
        let mut head = Head::default();
        for (name, value) in fields {
            head.fields.add(name, value.as_bytes());
        }
        let reserved = reserved(&[rule(source.clone())], &head, body.as_bytes(), whole);
        let reserved = reserved.map(|each| each[0].1);
        assert_eq!(reserved, units, "{fields:?} {body}");
    }

    #[test]
    fn what_requests_say() {
        let json = Source::Json(Arc::from(["max".to_owned()]));
        check(&json, &[], "{\"max\":7}", true, Some(7));
        check(&json, &[], "{\"max\":\"7\"}", true, Some(7));
        check(&json, &[], "{\"max\":0}", true, Some(0));
        check(&json, &[], "{\"max\":1e99}", true, Some(u32::MAX));
        for other in ["{\"max\":-1}", "{\"max\":null}", "{}", "", "max=7"] {
            check(&json, &[], other, true, None);
        }
        // More may come.
        check(&json, &[], "{\"max\":7,", false, Some(40));
        check(&json, &[], "{\"max\":70,", false, Some(70));
        check(
            &json,
            &[("content-encoding", "lzma")],
            "{\"max\":7}",
            true,
            None,
        );
        let header = Source::Header("x-max".parse().unwrap());
        check(&header, &[("x-max", "7")], "", true, Some(7));
        check(
            &header,
            &[("X-Max", "7"), ("x-max", "9, 8")],
            "",
            true,
            Some(9),
        );
        check(&header, &[("x-max", "-7")], "", true, None);
        check(&header, &[], "", true, None);
    }
}
