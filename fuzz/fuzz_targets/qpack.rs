//! Compressed fields of HTTP/3: whatever is read of them can be said again, and is then read as the same. One byte stands for
//! at most 80 bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::http::http2::hpack::FieldKind;
use tollgate::http::http3::qpack;

/// Bytes of the longest field of the static table, its name and its value.
const MAX_BYTES_OF_ONE: usize = 80;

fuzz_target!(|block: &[u8]| {
    let (mut said, mut length) = (Vec::new(), 0);
    let read = qpack::decode(block, |field| {
        length += field.name.len() + field.value.len();
        if field.kind != FieldKind::Malformed {
            said.push((field.name.to_vec(), field.value.to_vec()));
        }
    });
    assert!(length <= MAX_BYTES_OF_ONE * block.len());
    if read.is_err() {
        return;
    }
    let mut again = Vec::new();
    qpack::begin_block(&mut again);
    for (name, value) in &said {
        qpack::write_field(&mut again, name, value);
    }
    let mut heard = Vec::new();
    let read = qpack::decode(&again, |field| {
        heard.push((field.name.to_vec(), field.value.to_vec()));
    });
    assert_eq!((read, heard), (Ok(()), said));
});
