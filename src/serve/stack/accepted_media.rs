//! Reads from `Accept` whether a client prefers HTML to JSON, as browsers do where they open a page (RFC 9110 section
//! 12.5.1). It decides about the body of a refusal, and about nothing else.

use crate::http::head::Fields;
use crate::http::quality::{FULL_QUALITY, parse_quality};

/// Maximum bytes of `Accept` that are read, in all its fields. Browsers send about 200. Whoever sends more gets JSON.
const MAX_ACCEPT_BYTES: usize = 2048;

/// The media types that are compared: HTML, and the two that stand for JSON.
const MEDIA_TYPES: [(&str, &str); 3] = [
    ("text", "html"),
    ("application", "json"),
    ("application", "problem+json"),
];

/// How well a range fits a media type, and the quality of the range in thousandths. The range that fits best counts.
type Match = (u8, u16);

/// Whether a client with these fields prefers HTML to JSON. It does not where both are equal, such as with `*/*`, or where
/// it says nothing.
pub(super) fn prefers_html(fields: &Fields) -> bool {
    if fields.all("accept").map(<[u8]>::len).sum::<usize>() > MAX_ACCEPT_BYTES {
        return false;
    }
    let mut best_matches: [Match; MEDIA_TYPES.len()] = [(0, 0); MEDIA_TYPES.len()];
    let texts = fields
        .all("accept")
        .filter_map(|value| std::str::from_utf8(value).ok());
    for range in texts.flat_map(|text| text.split(',')) {
        let (media_range, parameters) = range.split_once(';').unwrap_or((range, ""));
        let Some((kind, subtype)) = media_range.trim().split_once('/') else {
            continue;
        };
        let quality = quality_of(parameters);
        for (best_match, media_type) in best_matches.iter_mut().zip(MEDIA_TYPES) {
            let fit = match (kind, subtype) {
                ("*", "*") => 1,
                (kind, "*") if kind.eq_ignore_ascii_case(media_type.0) => 2,
                (kind, subtype)
                    if kind.eq_ignore_ascii_case(media_type.0)
                        && subtype.eq_ignore_ascii_case(media_type.1) =>
                {
                    3
                }
                _ => continue,
            };
            *best_match = (*best_match).max((fit, quality));
        }
    }
    let [html, json, problem] = best_matches.map(|(_, quality)| quality);
    html > json.max(problem)
}

/// The quality among the parameters of a range, in thousandths: 1000 without one, 0 for one that is malformed.
fn quality_of(parameters: &str) -> u16 {
    let mut pairs = parameters
        .split(';')
        .filter_map(|pair| pair.split_once('='));
    let quality = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    quality.map_or(FULL_QUALITY, |(_, value)| {
        parse_quality(value.trim().as_bytes()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &[&str], expected: bool) {
        let mut fields = Fields::default();
        for value in accept {
            fields.add("Accept", value.as_bytes());
        }
        assert_eq!(prefers_html(&fields), expected, "{accept:?}");
    }

    #[test]
    fn browsers_that_open_a_page_prefer_html() {
        check(
            &[
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            ],
            true,
        );
        check(
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            true,
        );
        check(&["image/avif,image/webp,*/*;q=0.8"], false);
        check(&["*/*"], false);
        check(&["application/json, text/javascript, */*; q=0.01"], false);
        check(&["application/json, text/plain, */*"], false);
        check(&[], false);
    }

    #[test]
    fn the_range_that_fits_best_counts() {
        check(&["text/html"], true);
        check(&["TEXT/HTML;LEVEL=1 ; Q=0.5 , */*;q=0.4"], true);
        check(&["text/*", "application/*;q=0.9"], true);
        check(&["text/*, text/html;q=0"], false);
        check(&["*/*, application/*;q=0.1"], true);
        check(
            &["*/*, application/*;q=0.1, application/problem+json"],
            false,
        );
        check(&["text/html, application/json"], false);
        check(&["text/html;q=0.001, application/json;q=0"], true);
        check(&["text/html;q=0"], false);
        check(&["text/html;q=0", "text/html;q=0.3"], true);
    }

    #[test]
    fn hostile_lists_ask_for_nothing() {
        for quality in [
            "", "2", "1.1", "1.0001", "-1", "0.5.5", "0,5", "1e0", "NaN", "+1", "0x1", "0.+5",
        ] {
            check(&[&format!("text/html;q={quality}")], false);
        }
        check(&["text/html/x"], false);
        check(&["text / html"], false);
        check(&["/", ";", ",,,", ";q=1", "q=1", "*"], false);
        check(&[&format!("text/html,{}", "a/b;q=0.1,".repeat(300))], false);
        let many = vec!["text/html"; 300];
        check(&many, false);
        check(&many[..200], true);
    }
}
