//! Reads how many units a request takes of a limit on costs at its admission. The number stands in a header field, the
//! body, the query or a cookie, or is the number of items in the body. It is a reservation until the response states the
//! cost, or it is the cost itself.
//!
//! The client writes the number, so servers may read another one. Of several numbers for a reservation the largest counts,
//! and at least the policy's own number where some server may see none. The response never corrects a stated cost, so a
//! request whose cost could be read in two ways is refused.

use std::sync::Arc;

use super::body::{BodyStart, MAX_READ_AHEAD_BYTES};
use crate::http::head::{Fields, Head};
use crate::identity::FieldValue;
use crate::identity::body::{
    BodyField, count_items, find_field, has_searchable_format, is_unsearchable, visit_json_values,
};
use crate::identity::query::find_in_query_and_cookie;
use crate::identity::strip::is_alike;
use crate::limit::cost::{JsonPath, parse_plain_units, parse_units_from};
use crate::limit::{RequestCost, Reserve, ReserveSource, Rule};

/// Pairs of a rule's index among the request's rules and the units that this rule takes at admission. A rule without a pair
/// takes the units that its policy names. `None` if there are no pairs.
pub type ReservedUnits = Option<Box<[(usize, u32)]>>;

/// Why a request is refused if its cost is not one clear number.
const UNCLEAR_NUMBER: &str = "the number by which this route counts the request can be read in more than one way: send it once, in digits, not below zero, in JSON or a form of at most 1 MiB without Content-Encoding";

/// Why a request is refused if its items cannot be counted.
const UNCLEAR_ITEMS: &str = "the items by which this route counts the request cannot be counted: send JSON in UTF-8, in a body of at most 1 MiB without Content-Encoding, and no field 0 or _json";

/// Reads the units that the rules take of a request at admission, from the head and the beginning of the body.
///
/// # Errors
///
/// A cost can be read in more than one way, or its body cannot be searched, under a rule that is no shadow limit. The text
/// completes the sentence "The request is refused: …".
pub fn read_reserved_units(
    rules: &[Arc<Rule>],
    head: &Head,
    body_start: BodyStart<'_>,
) -> Result<ReservedUnits, &'static str> {
    let mut reserved_units = Vec::new();
    for (rule_index, rule) in rules.iter().enumerate() {
        let Some(reserve) = &rule.reserve else {
            continue;
        };
        let stated_units = match &reserve.source {
            Some(ReserveSource::Cost(cost)) => match read_cost(cost, head, body_start) {
                // A shadow limit refuses nothing.
                Err(_) if rule.shadow => None,
                cost_units => cost_units?,
            },
            _ => read_reservation(reserve, &head.fields, body_start),
        };
        reserved_units.extend(stated_units.map(|units| (rule_index, units)));
    }
    Ok((!reserved_units.is_empty()).then(|| reserved_units.into()))
}

/// The cost that a request states, in units; `None` if it states none, `Err` with the reason if it is unclear.
fn read_cost(
    cost: &RequestCost,
    head: &Head,
    body_start: BodyStart<'_>,
) -> Result<Option<u32>, &'static str> {
    match cost {
        RequestCost::Json(path) => read_cost_number(path, head, body_start),
        RequestCost::Items => count_items(head, body_start.bytes, body_start.is_whole)
            .map(Some)
            .ok_or(UNCLEAR_ITEMS),
    }
}

/// The cost at `path` of a JSON body, or in the field of this name in a form, the query or a cookie: many frameworks read
/// all of them alike. `None` if no number is there.
fn read_cost_number(
    path: &JsonPath,
    head: &Head,
    body_start: BodyStart<'_>,
) -> Result<Option<u32>, &'static str> {
    let fields = &head.fields;
    let BodyStart { bytes, is_whole } = body_start;
    let has_body = !bytes.is_empty() || !is_whole;
    if has_body && (!is_whole || is_unsearchable(fields, MAX_READ_AHEAD_BYTES)) {
        return Err(UNCLEAR_NUMBER);
    }
    let field = BodyField::new(&path.join("."));
    // A body in another format may state a cost that cannot be read here.
    let body_value = find_field(&field, fields.all("content-type"), bytes);
    if body_value == FieldValue::Absent && !has_searchable_format(fields.all("content-type"), bytes)
    {
        return Err(UNCLEAR_NUMBER);
    }
    let [query_value, cookie_value] = find_in_query_and_cookie(head, field.name());
    match body_value.combine(query_value).combine(cookie_value) {
        FieldValue::Absent => Ok(None),
        FieldValue::Single(text) => parse_plain_units(&text).map(Some).ok_or(UNCLEAR_NUMBER),
        FieldValue::Ambiguous => Err(UNCLEAR_NUMBER),
    }
}

/// The largest number of units that the request states for one reservation; `None` if it states no number.
fn read_reservation(reserve: &Reserve, fields: &Fields, body_start: BodyStart<'_>) -> Option<u32> {
    let BodyStart { bytes, is_whole } = body_start;
    let mut largest_units = None;
    let mut all_are_numbers = true;
    let mut is_unambiguous = true;
    let mut add_number = |text: Option<&[u8]>| {
        // Many upstreams take zero for no number, and round small numbers to zero. So zero counts as no number.
        let units = text.and_then(|text| parse_units_from(1.0, text));
        all_are_numbers &= units.is_some();
        largest_units = largest_units.max(units);
    };
    match reserve.source.as_ref()? {
        ReserveSource::Header(name) => {
            let named_fields = fields
                .iter()
                .filter(|(field_name, _)| is_alike(field_name, name.as_str()));
            let numbers = named_fields.flat_map(|(_, value)| value.split(|byte| *byte == b','));
            numbers.for_each(|number| add_number(Some(number)));
        }
        ReserveSource::Json(path) => {
            let field = BodyField::new(&path.join("."));
            let mut add_value =
                |text: Option<String>| add_number(text.as_deref().map(str::as_bytes));
            is_unambiguous = visit_json_values(&field, fields, bytes, &mut add_value) && is_whole;
        }
        ReserveSource::Cost(_) => {}
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
        let body_start = BodyStart {
            bytes: body.as_bytes(),
            is_whole,
        };
        let reserved_units = read_reserved_units(&[rule(source.clone())], &head, body_start);
        let units = reserved_units.unwrap().map(|pairs| pairs[0].1);
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
