//! The parser on replies of servers, on the first parts of them, and on noise.

use super::*;

fn parse(text: &[u8]) -> (Result<Option<ParsedReply>, ReplyError>, usize) {
    let mut input = BytesMut::from(text);
    let parsed = parse_reply(&mut input);
    (parsed, text.len() - input.len())
}

fn value(text: &str, version: u64) -> MetaReply {
    MetaReply::Value {
        bytes: SmallVec::from_slice(text.as_bytes()),
        version,
    }
}

const GOOD: [&str; 10] = [
    "HD\r\n",
    "HD O12 c9\r\n",
    "EN O4294967295\r\n",
    "NF\r\n",
    "NS O1\r\n",
    "EX\r\n",
    "VA 2 O13\r\n10\r\n",
    "VA 2 c3 O1\r\n7 \r\n",
    "VA 0\r\n\r\n",
    "SERVER_ERROR out of memory storing object\r\n",
];

#[test]
fn replies_are_read() {
    let refused = "SERVER_ERROR out of memory storing object".to_owned();
    let expected = [
        (MetaReply::Done, None),
        (MetaReply::Done, Some(12)),
        (MetaReply::Missing, Some(u32::MAX)),
        (MetaReply::Missing, None),
        (MetaReply::NotStored, Some(1)),
        (MetaReply::NotStored, None),
        (value("10", 0), Some(13)),
        (value("7 ", 3), Some(1)),
        (value("", 0), None),
        (MetaReply::ServerError(refused), None),
    ];
    for (text, (reply, opaque)) in GOOD.iter().zip(expected) {
        let parsed = (Ok(Some(ParsedReply { reply, opaque })), text.len());
        assert_eq!(parse(text.as_bytes()), parsed, "{text:?}");
    }
}

#[test]
fn halves_wait_for_the_rest() {
    for text in GOOD {
        for end in 0..text.len() {
            let parsed = parse(&text.as_bytes()[..end]);
            assert_eq!(parsed, (Ok(None), 0), "{:?}", &text[..end]);
        }
    }
}

#[test]
fn what_is_no_reply_is_an_error_and_nothing_is_consumed() {
    let long = "H".repeat(MAX_LINE_BYTES);
    let large = format!("VA {}\r\n", MAX_VALUE_BYTES + 1);
    for text in [
        "ERROR\r\n",
        "CLIENT_ERROR bad command line format\r\n",
        "HD\n",
        "\r\n",
        "VA\r\n",
        "VA x\r\n",
        "VA -1\r\n",
        "VA 18446744073709551616\r\n",
        "VA 2\r\nabc\r\n",
        "VA 2\r\n10\n\n",
        "HD O\r\n",
        "HD O+1\r\n",
        "HD O4294967296\r\n",
        "HD x1\r\n",
        "HD ä\r\n",
        &long,
        &large,
    ] {
        let (parsed, used) = parse(text.as_bytes());
        assert!(parsed.is_err() && used == 0, "{text:?}: {parsed:?}");
    }
}

#[test]
fn counters_are_digits_and_spaces_at_the_end() {
    for (text, expected) in [
        ("0", Some(0)),
        ("7 ", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("", None),
        (" ", None),
        (" 7", None),
        ("-1", None),
        ("1 2", None),
    ] {
        assert_eq!(parse_count(text.as_bytes()), expected, "{text:?}");
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// Streams of good replies with some bytes changed, inserted or lost, and plain noise, in pieces: the
/// parser ends, keeps its bounds, and takes nothing that it does not understand.
#[test]
fn noise_neither_panics_nor_grows() {
    let alphabet = b"HDVAENFSXOc 0123456789\r\n\r\n\0\xff";
    for seed in 0..20_000 {
        let mut draw = Draw(seed);
        let mut stream: Vec<u8> = Vec::new();
        while stream.len() < 200 {
            match draw.below(4) {
                0 => stream.push(alphabet[draw.below(alphabet.len())]),
                _ => stream.extend_from_slice(GOOD[draw.below(GOOD.len())].as_bytes()),
            }
        }
        for _ in 0..draw.below(4) {
            let position = draw.below(stream.len());
            match draw.below(3) {
                0 => stream[position] = draw.below(256) as u8,
                1 => stream.insert(position, draw.below(256) as u8),
                _ => drop(stream.remove(position)),
            }
        }
        let (mut input, mut sent) = (BytesMut::new(), &stream[..]);
        let mut left = stream.len();
        while !sent.is_empty() {
            let (now, later) = sent.split_at(draw.below(sent.len()) + 1);
            (input, sent) = ([&input[..], now].concat()[..].into(), later);
            loop {
                let before = input.len();
                match parse_reply(&mut input) {
                    Ok(Some(_)) => {
                        assert!(input.len() < before, "seed {seed}");
                        left -= before - input.len();
                    }
                    Ok(None) => break,
                    Err(cause) => {
                        assert!(
                            input.len() == before && cause.to_string().len() < 4_096,
                            "seed {seed}"
                        );
                        sent = &[];
                        break;
                    }
                }
            }
        }
        assert!(left >= input.len(), "seed {seed}");
    }
}
