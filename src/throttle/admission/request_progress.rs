//! [`RequestProgress`]: how far a request has come, and how many units it uses by then of a limit that reserves units.
//! Nothing is charged here; the ticket does that.

use http::header::CONTENT_LENGTH;

use super::passed_bytes::PassedBytes;
use crate::http::head::Lookup;
use crate::limit::CountMode;
use crate::limit::cost::{CostMeter, largest_in_fields};

/// How far an admitted request has come, as its limits see it.
#[derive(Clone, Copy)]
pub enum RequestProgress<'a> {
    /// The request ended without reaching an upstream, so it uses nothing.
    Unsent,
    /// The head of the response is there.
    Head {
        /// The status of the response.
        status: u16,
        /// The header fields of the response.
        fields: &'a dyn Lookup,
        /// Whether the response has no body.
        is_bodiless: bool,
    },
    /// The body has ended or was cut off, or the ticket is dropped.
    Ended {
        /// The reader that looked for costs in the body; `None` if the body was not read for costs.
        meter: Option<&'a CostMeter>,
        /// The trailer fields; `None` if none have come.
        trailers: Option<&'a dyn Lookup>,
    },
}

/// The units that a request uses of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedUnits {
    /// A later part of the response decides.
    Later,
    /// The request uses this number.
    Units(u32),
    /// This number or what was reserved, whichever is more, because the body was cut off behind the number.
    AtLeast(u32),
    /// What was reserved, because the response states no number.
    Unknown,
}

impl RequestProgress<'_> {
    /// The units that the request uses of a limit that counts by `count`. `bytes` are those that have passed; `None` is 0.
    pub(crate) fn used_units(&self, count: &CountMode, bytes: Option<&PassedBytes>) -> UsedUnits {
        match (self, count) {
            (RequestProgress::Unsent, _) => UsedUnits::Units(0),
            (_, CountMode::All | CountMode::CostMessages) => UsedUnits::Units(1),
            (
                RequestProgress::Head {
                    is_bodiless: false, ..
                },
                CountMode::CostBytes(_),
            ) => UsedUnits::Later,
            (_, CountMode::CostBytes(direction)) => {
                UsedUnits::Units(bytes.map_or(0, |bytes| bytes.units(*direction)))
            }
            // Admission has charged the cost already.
            (_, CountMode::CostRequest(_)) => UsedUnits::Unknown,
            (RequestProgress::Head { status, .. }, CountMode::Status { from, to }) => {
                UsedUnits::Units(u32::from((*from..=*to).contains(status)))
            }
            // The head decides, so this request had none.
            (RequestProgress::Ended { .. }, CountMode::Status { .. }) => UsedUnits::Unknown,
            // Without a body, Content-Length only says how long the body would be.
            (
                RequestProgress::Head {
                    is_bodiless: true, ..
                },
                CountMode::CostHeader(name),
            ) if name == CONTENT_LENGTH => UsedUnits::Units(0),
            (
                RequestProgress::Head {
                    fields,
                    is_bodiless,
                    ..
                },
                CountMode::CostHeader(name),
            ) => {
                match (largest_in_fields(*fields, name), is_bodiless) {
                    (Some(units), _) => UsedUnits::Units(units),
                    // It may still come as a trailer.
                    (None, false) => UsedUnits::Later,
                    (None, true) => UsedUnits::Unknown,
                }
            }
            (RequestProgress::Head { is_bodiless, .. }, CountMode::CostJson(_)) => {
                match is_bodiless {
                    true => UsedUnits::Unknown,
                    false => UsedUnits::Later,
                }
            }
            (RequestProgress::Ended { trailers, .. }, CountMode::CostHeader(name)) => {
                let units = trailers.and_then(|trailers| largest_in_fields(trailers, name));
                units.map_or(UsedUnits::Unknown, UsedUnits::Units)
            }
            (RequestProgress::Ended { meter, .. }, CountMode::CostJson(path)) => {
                match meter.and_then(|meter| meter.measured(path)) {
                    Some(measured) if measured.is_exact => UsedUnits::Units(measured.units),
                    Some(measured) => UsedUnits::AtLeast(measured.units),
                    None => UsedUnits::Unknown,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Fields;

    #[track_caller]
    fn check(count: &str, fields: &[&str], is_bodiless: bool, expected: UsedUnits) {
        let mut head = Fields::default();
        for value in fields {
            head.add(count, value.as_bytes());
        }
        let progress = RequestProgress::Head {
            status: 200,
            fields: &head,
            is_bodiless,
        };
        let count = CountMode::CostHeader(count.parse().unwrap());
        assert_eq!(progress.used_units(&count, None), expected, "{fields:?}");
        let ended = RequestProgress::Ended {
            meter: None,
            trailers: Some(&head),
        };
        let expected = match largest_in_fields(&head, &"x-cost".parse().unwrap()) {
            Some(units) => UsedUnits::Units(units),
            None => return,
        };
        assert_eq!(ended.used_units(&count, None), expected, "{fields:?}");
    }

    #[test]
    fn costs_in_fields() {
        check("x-cost", &["7"], false, UsedUnits::Units(7));
        check("x-cost", &["7"], true, UsedUnits::Units(7));
        check("x-cost", &["5", "500", "7"], false, UsedUnits::Units(500));
        check("x-cost", &["5, 500,7"], false, UsedUnits::Units(500));
        check("x-cost", &["many", "2"], false, UsedUnits::Units(2));
        check("x-cost", &["-5"], false, UsedUnits::Later);
        check("x-cost", &["-5"], true, UsedUnits::Unknown);
        check("x-cost", &[], false, UsedUnits::Later);
        check("x-cost", &[], true, UsedUnits::Unknown);
        check("content-length", &["700"], false, UsedUnits::Units(700));
        check("content-length", &["700"], true, UsedUnits::Units(0));
        check("content-length", &[], false, UsedUnits::Later);
    }
}
