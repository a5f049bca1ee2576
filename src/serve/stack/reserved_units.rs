//! Reads how many units a request takes of a limit on costs at its admission. The number stands in a header field, the
//! body, the query or a cookie, or is the number of items in the body. It is a reservation until the response states the
//! cost, or it is the cost itself.
//!
//! The client writes the number, so servers may read another one. Of several numbers for a reservation the largest counts,
//! and at least the policy's own number where some server may see none. The response never corrects a stated cost, so a
//! request whose cost could be read in two ways is refused.

use std::sync::Arc;

use crate::http::head::{Fields, Head};
use crate::identity::body::{BodyField, visit_json_values};
use crate::identity::strip::is_alike;
use crate::limit::cost::parse_units_from;
use crate::limit::{Reserve, ReserveSource, Rule};

/// Pairs of a rule's index among the request's rules and the units that this rule takes at admission. A rule without a pair
/// takes the units that its policy names. `None` if there are no pairs.
pub type ReservedUnits = Option<Box<[(usize, u32)]>>;

/// Reads the units to reserve from the head and the beginning of the body. `is_whole` says whether that is the whole
/// body.
pub fn read_reserved(
    rules: &[Arc<Rule>],
    head: &Head,
    body: &[u8],
    is_whole: bool,
) -> ReservedUnits {
    let units = rules.iter().enumerate().filter_map(|(index, rule)| {
        let reserve = rule.reserve.as_ref()?;
        Some((
            index,
            read_reservation(reserve, &head.fields, body, is_whole)?,
        ))
    });
    let units: Box<[_]> = units.collect();
    Some(units).filter(|units| !units.is_empty())
}

/// The largest number that the request gives for one rule; `None` if it gives no number.
fn read_reservation(
    reserve: &Reserve,
    fields: &Fields,
    body: &[u8],
    is_whole: bool,
) -> Option<u32> {
    let (mut largest_units, mut all_are_numbers, mut is_unambiguous) = (None, true, true);
    let mut add = |text: Option<&[u8]>| {
        // Many upstreams take zero for no number, and round small numbers to zero. So zero counts as no number.
        let units = text.and_then(|text| parse_units_from(1.0, text));
        all_are_numbers &= units.is_some();
        largest_units = largest_units.max(units);
    };
    match reserve.source.as_ref()? {
        ReserveSource::Header(name) => {
            let named_fields = fields
                .iter()
                .filter(|(field, _)| is_alike(field, name.as_str()));
            let numbers = named_fields.flat_map(|(_, value)| value.split(|byte| *byte == b','));
            numbers.for_each(|number| add(Some(number)));
        }
        ReserveSource::Json(path) => {
            let field = BodyField::new(&path.join("."));
            let mut add_value = |text: Option<String>| add(text.as_deref().map(str::as_bytes));
            is_unambiguous = visit_json_values(&field, fields, body, &mut add_value) && is_whole;
        }
    }
    // Where a server may see no number, it may use as much as for a request without one.
    match is_unambiguous && all_are_numbers {
        true => largest_units,
        false => Some(largest_units?.max(reserve.otherwise)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Identity, LimitName, RateLimit, Reserve};

    fn rule(source: ReserveSource) -> Arc<Rule> {
        let name = LimitName::new("units").unwrap();
        let limit = RateLimit::hard("1000/h".parse().unwrap());
        let mut rule = Rule::new(name, 0, &[Identity::Ip], limit);
        rule.reserve = Some(Reserve {
            source: Some(source),
            otherwise: 40,
        });
        Arc::new(rule)
    }

    #[track_caller]
    fn check(
        source: &ReserveSource,
        fields: &[(&str, &str)],
        body: &str,
        is_whole: bool,
        expected: Option<u32>,
    ) {
        let mut head = Head::default();
        for (name, value) in fields {
            head.fields.add(name, value.as_bytes());
        }
        let pairs = read_reserved(&[rule(source.clone())], &head, body.as_bytes(), is_whole);
        let units = pairs.map(|pairs| pairs[0].1);
        assert_eq!(units, expected, "{fields:?} {body}");
    }

    #[test]
    fn units_that_requests_state() {
        let json = ReserveSource::Json(Arc::from(["max".to_owned()]));
        check(&json, &[], "{\"max\":7}", true, Some(7));
        check(&json, &[], "{\"max\":\"7\"}", true, Some(7));
        check(&json, &[], "{\"max\":1e99}", true, Some(u32::MAX));
        for other in [
            "{\"max\":0}",
            "{\"max\":-0.0}",
            "{\"max\":0.5}",
            "{\"max\":\"1e-9\"}",
            "{\"max\":-1}",
            "{\"max\":null}",
            "{}",
            "",
            "max=7",
        ] {
            check(&json, &[], other, true, None);
        }
        for (body, units) in [
            // Some upstreams read the first document, the first member, names of any case, or names in camel case.
            ("{\"max\":70}{\"max\":1}", 70),
            ("{\"max\":1}{\"max\":70}", 70),
            ("{\"max\":1}{\"max\":2}", 40),
            ("{\"max\":1}x", 40),
            ("{\"max\":70,\"max\":1}", 70),
            ("{\"max\":1,\"MAX\":7}", 7),
            ("{\"max\":1,\"ma\\u0058\":7}", 7),
            ("{\"MAX\":7}", 7),
            // Some upstreams may see no number.
            ("{\"max\":1,\"max\":null}", 40),
            ("{\"max\":1,\"max\":0}", 40),
            ("{\"max\":1,\"MAX\":[2]}", 40),
            ("{\"max\":[1]}", 40),
            ("{\"max\":{\"a\":1}}", 40),
            ("[{\"max\":1},{\"max\":1}]", 40),
            // Only some upstreams can read these documents.
            ("\u{feff}{\"max\":1}", 40),
            ("{\"max\":1,}", 40),
            ("{\"max\":1} // 70", 40),
            ("{\"max\":1,\"a\":NaN,\"max\":70}", 40),
            ("{\"max\":1,\"a\":\"&max=70&\"}", 40),
        ] {
            check(&json, &[], body, true, Some(units));
        }
        let nested = ReserveSource::Json(Arc::from(["a".to_owned(), "max_b".to_owned()]));
        for (body, units) in [
            ("{\"a\":{\"max_b\":7}}", 7),
            ("{\"a\":{\"max_b\":1},\"A\":{\"maxB\":7}}", 7),
            ("{\"a\":{\"max_b\":1},\"a\":{\"max_b\":7}}", 7),
            ("{\"a\":{\"max_b\":1},\"a\":{}}", 40),
            ("{\"a\":{\"max_b\":1},\"a\":2}", 40),
        ] {
            check(&nested, &[], body, true, Some(units));
        }
        for (name, value, units) in [
            ("content-type", "application/json", 1),
            ("content-type", "application/json; charset=utf-8", 1),
            ("content-type", "text/plain", 1),
            ("content-type", "application/json; charset=utf-16", 40),
            ("content-type", "application/json; charset=utf-7", 40),
            ("content-type", "application/x-www-form-urlencoded", 40),
            ("content-type", "multipart/form-data; boundary=x", 40),
            ("content-encoding", "identity", 1),
            ("content-encoding", "gzip", 40),
        ] {
            check(&json, &[(name, value)], "{\"max\":1}", true, Some(units));
        }
        let utf_16: Vec<u8> = "{\"max\":7}".bytes().flat_map(|byte| [byte, 0]).collect();
        let utf_16 = String::from_utf8(utf_16).unwrap();
        check(&json, &[], &utf_16, true, None);
        // The body may go on.
        check(&json, &[], "{\"max\":7,", false, Some(40));
        check(&json, &[], "{\"max\":70,", false, Some(70));
        check(
            &json,
            &[("content-encoding", "lzma")],
            "{\"max\":70}",
            true,
            Some(70),
        );
        let header = ReserveSource::Header("x-max".parse().unwrap());
        check(&header, &[("x-max", "7")], "", true, Some(7));
        check(
            &header,
            &[("X-Max", "7"), ("x-max", "9, 8")],
            "",
            true,
            Some(9),
        );
        check(
            &header,
            &[("x-max", "7"), ("X_Max", "9")],
            "",
            true,
            Some(9),
        );
        check(&header, &[("x-max", "7, -1")], "", true, Some(40));
        check(
            &header,
            &[("x-max", "70"), ("x-max", "a")],
            "",
            true,
            Some(70),
        );
        check(&header, &[("x-max", "-7")], "", true, None);
        check(&header, &[], "", true, None);
    }
}
