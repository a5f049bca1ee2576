//! However a request's head is cut, it reads the same; and what is taken for one says in one way only
//! how far its body reaches.
#![no_main]

use bytes::BytesMut;
use http::Version;
use libfuzzer_sys::fuzz_target;
use tollgate::http::http1::Framing;
use tollgate::serve::http1::repeat_cache::RepeatCache;
use tollgate::serve::http1::request::{HeadError, ParsedRequest, parse_request};

/// What was read, in a form that compares, and how many bytes are left.
type Read = (Result<Option<String>, HeadError>, usize);

fn told(request: &ParsedRequest) -> String {
    let fields: Vec<_> = request.head.fields.iter().collect();
    let ParsedRequest {
        head,
        framing,
        expectations,
        awaits_continue,
        repeated_fields: _,
    } = request;
    format!(
        "{} {} {fields:?} {framing:?} {expectations:?} {awaits_continue}",
        head.method, head.uri
    )
}

fn read(pieces: [&[u8]; 2]) -> Read {
    let mut input = BytesMut::new();
    let (mut result, mut last) = (Ok(None), RepeatCache::default());
    for piece in pieces {
        input.extend_from_slice(piece);
        if matches!(result, Ok(None)) {
            result = parse_request(&mut input, &mut last)
                .map(|request| request.map(|request| told(&request)));
        }
    }
    (result, input.len())
}

fuzz_target!(|data: &[u8]| {
    let whole = read([data, b""]);
    for at in [data.len() / 3, data.len() / 2, data.len().saturating_sub(1)] {
        let cut = read([&data[..at], &data[at..]]);
        match (&whole.0, &cut.0) {
            // Which mistake is seen first may depend on what is there.
            (Err(_), Err(_)) => {}
            _ => assert_eq!(whole, cut),
        }
    }
    let mut input = BytesMut::from(data);
    let Ok(Some(request)) = parse_request(&mut input, &mut RepeatCache::default()) else {
        return;
    };
    // What is remembered of it changes nothing.
    let (left, mut last) = (input.len(), RepeatCache::default());
    for _ in 0..3 {
        let mut input = BytesMut::from(data);
        let again = parse_request(&mut input, &mut last)
            .expect("it was read")
            .expect("it was whole");
        assert_eq!((told(&again), input.len()), (told(&request), left));
    }
    // Nor does what is remembered of one that has the same fields.
    let mut other = BytesMut::from(&b"POST /other HTTP/1.1\r\n"[..]);
    if let Some(line) = data.iter().position(|byte| *byte == b'\n') {
        other.extend_from_slice(&data[line + 1..]);
    }
    let mut fresh = other.clone();
    let expected =
        parse_request(&mut fresh, &mut RepeatCache::default()).map(|read| read.as_ref().map(told));
    let known = parse_request(&mut other, &mut last).map(|read| read.as_ref().map(told));
    assert_eq!((known, other.len()), (expected, fresh.len()));
    let fields = &request.head.fields;
    let lengths: Vec<_> = fields.all("content-length").collect();
    let codings: Vec<_> = fields.all("transfer-encoding").collect();
    match request.framing {
        Framing::Length(length) if lengths.is_empty() => assert!(length == 0 && codings.is_empty()),
        Framing::Length(length) => {
            assert!(lengths.len() == 1 && codings.is_empty());
            let text = std::str::from_utf8(lengths[0]).expect("digits");
            assert_eq!(
                text.trim_start_matches('0'),
                length.to_string().trim_start_matches('0')
            );
        }
        Framing::Chunked(_) => {
            assert_eq!(request.head.version, Version::HTTP_11);
            assert!(lengths.is_empty() && codings.len() == 1);
            assert!(codings[0].eq_ignore_ascii_case(b"chunked"));
        }
        Framing::Close => panic!("a request does not end with its connection"),
    }
    for (name, value) in fields.iter() {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
        assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)));
    }
});
