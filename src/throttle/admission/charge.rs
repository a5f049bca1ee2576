//! How many units the end of a request uses of a limit that counts responses.

use http::header::CONTENT_LENGTH;

use crate::http::head::Lookup;
use crate::limit::Count;
use crate::limit::cost::{Meter, largest};

/// How an admitted request ended, or how far it came.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// It never reached an upstream: nothing was used.
    Unsent,
    /// The head of the response is there.
    Answered {
        /// Status of the response.
        status: u16,
        /// Its header fields.
        fields: &'a dyn Lookup,
        /// No body comes.
        bodiless: bool,
    },
    /// The body has ended or was cut off.
    Ended {
        /// What was found in it.
        meter: Option<&'a Meter>,
        /// The fields behind it.
        trailers: Option<&'a dyn Lookup>,
    },
}

/// What a request uses of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// Only what comes later decides.
    Later,
    Units(u32),
    /// So many, or what was reserved if that is more: the body was cut off behind this number.
    AtLeast(u32),
    /// What was reserved: nothing says how many.
    Unknown,
}

impl Outcome<'_> {
    pub(crate) fn charge(&self, count: &Count) -> Charge {
        match (self, count) {
            (Outcome::Unsent, _) => Charge::Units(0),
            (_, Count::All) => Charge::Units(1),
            (Outcome::Answered { status, .. }, Count::Status { from, to }) => {
                Charge::Units(u32::from((*from..=*to).contains(status)))
            }
            (Outcome::Ended { .. }, Count::Status { .. }) => Charge::Unknown,
            // It says how long the body would be.
            (Outcome::Answered { bodiless: true, .. }, Count::CostHeader(name))
                if name == CONTENT_LENGTH =>
            {
                Charge::Units(0)
            }
            (
                Outcome::Answered {
                    fields, bodiless, ..
                },
                Count::CostHeader(name),
            ) => {
                match (largest(*fields, name), bodiless) {
                    (Some(units), _) => Charge::Units(units),
                    // It may stand in a trailer.
                    (None, false) => Charge::Later,
                    (None, true) => Charge::Unknown,
                }
            }
            (Outcome::Answered { bodiless, .. }, Count::CostJson(_)) => match bodiless {
                true => Charge::Unknown,
                false => Charge::Later,
            },
            (Outcome::Ended { trailers, .. }, Count::CostHeader(name)) => {
                let units = trailers.and_then(|trailers| largest(trailers, name));
                units.map_or(Charge::Unknown, Charge::Units)
            }
            (Outcome::Ended { meter, .. }, Count::CostJson(path)) => {
                match meter.and_then(|meter| meter.measured(path)) {
                    Some(found) if found.exact => Charge::Units(found.units),
                    Some(found) => Charge::AtLeast(found.units),
                    None => Charge::Unknown,
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
    fn check(count: &str, fields: &[&str], bodiless: bool, expected: Charge) {
        let mut head = Fields::default();
        for value in fields {
            head.add(count, value.as_bytes());
        }
        let outcome = Outcome::Answered {
            status: 200,
            fields: &head,
            bodiless,
        };
        let count = Count::CostHeader(count.parse().unwrap());
        assert_eq!(outcome.charge(&count), expected, "{fields:?}");
        let ended = Outcome::Ended {
            meter: None,
            trailers: Some(&head),
        };
        let expected = match largest(&head, &"x-cost".parse().unwrap()) {
            Some(units) => Charge::Units(units),
            None => return,
        };
        assert_eq!(ended.charge(&count), expected, "{fields:?}");
    }

    #[test]
    fn costs_in_fields() {
        check("x-cost", &["7"], false, Charge::Units(7));
        check("x-cost", &["7"], true, Charge::Units(7));
        check("x-cost", &["5", "500", "7"], false, Charge::Units(500));
        check("x-cost", &["5, 500,7"], false, Charge::Units(500));
        check("x-cost", &["many", "2"], false, Charge::Units(2));
        check("x-cost", &["-5"], false, Charge::Later);
        check("x-cost", &["-5"], true, Charge::Unknown);
        check("x-cost", &[], false, Charge::Later);
        check("x-cost", &[], true, Charge::Unknown);
        check("content-length", &["700"], false, Charge::Units(700));
        check("content-length", &["700"], true, Charge::Units(0));
        check("content-length", &[], false, Charge::Later);
    }
}
