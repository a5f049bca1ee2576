//! However a chunked body is cut, it reads the same, and ends at the same byte.
#![no_main]

use bytes::BytesMut;
use http::HeaderMap;
use libfuzzer_sys::fuzz_target;
use tollgate::http::http1::chunked::{BodyPiece, ChunkedDecoder};

/// Content, trailers, and how many bytes follow the body; nothing when it is not one, or not whole.
fn read(data: &[u8], step: usize) -> Option<(Vec<u8>, HeaderMap, usize)> {
    let (mut chunked, mut input) = (ChunkedDecoder::default(), BytesMut::new());
    let (mut content, mut trailers) = (Vec::new(), HeaderMap::new());
    let mut rest = data.chunks(step);
    loop {
        match chunked.next_piece(&mut input).ok()? {
            BodyPiece::Incomplete => input.extend_from_slice(rest.next()?),
            BodyPiece::Data(data) => content.extend_from_slice(&data),
            BodyPiece::Trailers(map) => trailers = map,
            BodyPiece::End => break,
        }
    }
    Some((
        content,
        trailers,
        input.len() + rest.map(<[u8]>::len).sum::<usize>(),
    ))
}

fuzz_target!(|data: &[u8]| {
    let whole = read(data, data.len().max(1));
    assert_eq!(whole, read(data, 1));
    assert_eq!(whole, read(data, 7));
    if let Some((content, _, after)) = whole {
        assert!(content.len() + 5 + after <= data.len());
        let mut again = format!("{:X};again\r\n", content.len()).into_bytes();
        again.extend_from_slice(&content);
        if content.is_empty() {
            again.truncate(0);
        }
        again.extend_from_slice(if content.is_empty() {
            b"0\r\n\r\n"
        } else {
            b"\r\n0\r\n\r\n"
        });
        assert_eq!(read(&again, 3).map(|read| read.0), Some(content));
    }
});
