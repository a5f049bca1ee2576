//! Tests of the choice of a coding by `Accept-Encoding`.

use proptest::prelude::*;

use super::*;

fn choose(accepted: &str) -> Option<&'static str> {
    choose_of(accepted, &ContentCoding::ALL)
}

fn choose_of(accepted: &str, offered: &[ContentCoding]) -> Option<&'static str> {
    ContentCoding::choose([accepted.as_bytes()].into_iter(), offered).map(ContentCoding::as_str)
}

#[test]
fn the_client_decides_first() {
    for (accepted, expected) in [
        ("gzip", Some("gzip")),
        ("GZip", Some("gzip")),
        ("x-gzip", Some("gzip")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("zstd;q=0.5, br;q=0.8, gzip;q=0.7", Some("br")),
        ("zstd ; q=0.5 ,br ; Q=0.500", Some("zstd")),
        ("zstd;q=0.001, br;q=0", Some("zstd")),
        ("*", Some("zstd")),
        ("*, zstd;q=0", Some("br")),
        ("*;q=0, gzip;q=0.1", Some("gzip")),
        ("*;q=0", None),
        ("identity", None),
        ("identity;q=0", None),
        ("identity;q=0, gzip;q=0.1", Some("gzip")),
        ("identity, gzip", Some("gzip")),
        ("identity;q=1, gzip;q=0.9", None),
        ("identity;q=0.5, gzip;q=0.4, br;q=0.6", Some("br")),
        ("", None),
        (", ,,", None),
        ("deflate, compress", None),
        ("gzipped", None),
        ("gzip;q=0", None),
        ("gzip;q=0.000", None),
        ("gzip;q=1.000", Some("gzip")),
    ] {
        assert_eq!(choose(accepted), expected, "{accepted}");
    }
}

#[test]
fn what_is_not_valid_is_refused() {
    for parameter in [
        "q=abc", "q=", "q", "q=2", "q=1.001", "q=-1", "q=0.1234", "q=.5", "q=1e0", "q = 1", "x=1",
        "q=1;q=1", "",
    ] {
        assert_eq!(choose(&format!("gzip;{parameter}")), None, "{parameter}");
        let also_valid = format!("gzip, gzip;{parameter}, br;q=0.1");
        assert_eq!(choose(&also_valid), Some("br"), "{parameter}");
    }
}

#[test]
fn several_fields_are_one_list() {
    let values = ["br;q=0".as_bytes(), b"*;q=0.2"];
    let offered = [ContentCoding::Br, ContentCoding::Gzip];
    let chosen = ContentCoding::choose(values.into_iter(), &offered);
    assert_eq!(chosen, Some(ContentCoding::Gzip));
}

#[test]
fn only_what_is_offered_is_chosen() {
    let gzip_first = [ContentCoding::Gzip, ContentCoding::Br];
    assert_eq!(choose_of("br, gzip, zstd", &gzip_first), Some("gzip"));
    assert_eq!(choose_of("zstd", &gzip_first), None);
    assert_eq!(choose_of("gzip", &[]), None);
}

const NAMES: [&str; 6] = ["zstd", "br", "gzip", "identity", "*", "deflate"];

/// The weights of a list in which each name stands at most once, by the words of RFC 9110.
fn expected(list: &[(usize, u16)], offered: &[ContentCoding]) -> Option<ContentCoding> {
    let stated = |name: &str| {
        let mut elements = list.iter().filter(|(index, _)| NAMES[*index] == name);
        elements.next().map(|(_, weight)| *weight)
    };
    let weight = |coding: &ContentCoding| stated(coding.as_str()).or(stated("*")).unwrap_or(0);
    let best = offered.iter().map(weight).max().unwrap_or(0);
    if best == 0 || best < stated("identity").unwrap_or(0) {
        return None;
    }
    offered
        .iter()
        .copied()
        .find(|coding| weight(coding) == best)
}

proptest! {
    #[test]
    fn choices_follow_the_weights(
        weights in prop::collection::vec(prop::option::of(0..=1000_u16), NAMES.len()),
        order in Just((0..NAMES.len()).collect::<Vec<_>>()).prop_shuffle(),
        offered in Just(ContentCoding::ALL.to_vec()).prop_shuffle(),
    ) {
        let list: Vec<(usize, u16)> = order
            .iter()
            .filter_map(|index| Some((*index, weights[*index]?)))
            .collect();
        let elements: Vec<String> = list
            .iter()
            .map(|(index, weight)| format!("{};q={}.{:03}", NAMES[*index], weight / 1000, weight % 1000))
            .collect();
        let chosen = ContentCoding::choose([elements.join(", ").as_bytes()].into_iter(), &offered);
        prop_assert_eq!(chosen, expected(&list, &offered));
    }

    #[test]
    fn any_bytes_have_a_choice(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ContentCoding::choose([&*value].into_iter(), &ContentCoding::ALL);
    }

    #[test]
    fn long_lists_are_read_to_their_end(count in 0..2000_usize) {
        let accepted = format!("{}gzip;q=0.5", "x-none;q=abc,".repeat(count));
        prop_assert_eq!(choose(&accepted), Some("gzip"));
    }
}
