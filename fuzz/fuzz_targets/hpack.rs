//! Compressed fields: whatever is read of them can be said again, and is then read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::http::http2::hpack::{Decoder, Encoder, FieldKind};

fuzz_target!(|data: &[u8]| {
    let (mut decoder, mut encoder, mut other) =
        (Decoder::default(), Encoder::default(), Decoder::default());
    // Blocks follow each other on a connection.
    for block in data.split(|byte| *byte == 0xfe) {
        let mut said = Vec::new();
        let read = decoder.decode(block, |field| {
            if field.kind != FieldKind::Malformed {
                said.push((field.name.to_vec(), field.value.to_vec()));
            }
        });
        if read.is_err() {
            return;
        }
        let mut again = Vec::new();
        encoder.begin_block(&mut again);
        for (name, value) in &said {
            encoder.write_field(&mut again, name, value);
        }
        let mut heard = Vec::new();
        let read = other.decode(&again, |field| {
            heard.push((field.name.to_vec(), field.value.to_vec()));
        });
        assert_eq!((read, heard), (Ok(()), said));
    }
});
