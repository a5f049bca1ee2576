//! The examples of RFC 7541, what is not readable, and both ends against each other.

use proptest::prelude::*;

use super::integer::{read_number, write_number};
use super::table::ENTRY_OVERHEAD_BYTES;
use super::*;
use crate::http::http2::{ConnectionError, Reason};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<String, ConnectionError> {
    let mut said = String::new();
    decoder.decode(block, |field| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        said += &format!("{}={};", text(field.name), text(field.value));
    })?;
    Ok(said)
}

/// RFC 7541 sections C.3 and C.4: the same requests, without and with Huffman's code.
#[test]
fn requests_of_the_specification() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let said = [
        ":method=GET;:scheme=http;:path=/;:authority=www.example.com;",
        ":method=GET;:scheme=http;:path=/;:authority=www.example.com;cache-control=no-cache;",
        ":method=GET;:scheme=https;:path=/index.html;:authority=www.example.com;custom-key=custom-value;",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        for (block, said) in blocks.iter().zip(said) {
            assert_eq!(decoded(&mut decoder, &bytes(block)).as_deref(), Ok(said));
        }
    }
}

/// RFC 7541 section C.6: responses whose fields evict each other from a table of 256 bytes.
#[test]
fn responses_of_the_specification() {
    let blocks = [
        "3fe1 01 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d
         29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7
         b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let date = "Mon, 21 Oct 2013 20:13:21 GMT";
    let said = [
        format!(":status=302;cache-control=private;date={date};location=https://www.example.com;"),
        format!(":status=307;cache-control=private;date={date};location=https://www.example.com;"),
        ":status=200;cache-control=private;date=Mon, 21 Oct 2013 20:13:22 GMT;\
         location=https://www.example.com;content-encoding=gzip;\
         set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1;"
            .into(),
    ];
    let mut decoder = Decoder::default();
    for (block, said) in blocks.iter().zip(said) {
        assert_eq!(decoded(&mut decoder, &bytes(block)), Ok(said));
    }
}

/// RFC 7541 sections 2.3.3, 4.2, 5.1 and 5.2: what cannot be read ends the connection.
#[test]
fn unreadable_blocks() {
    let cases = [
        ("80", "index 0"),
        ("be", "an index that nothing has"),
        ("ff ff ff ff ff 0f", "a number that is too large"),
        ("ff", "half a number"),
        ("00 01", "half a field"),
        ("00 01 61 7f", "half a length"),
        ("82 20", "a size in the middle"),
        ("3f e2 1f", "a size above the bound"),
        ("00 01 61 84 ff ff ff ff", "the end in a text"),
        ("00 01 61 82 1f ff", "a byte of padding"),
        ("00 01 61 81 1e", "padding with zeroes"),
    ];
    for (block, what) in cases {
        assert_eq!(
            decoded(&mut Decoder::default(), &bytes(block)),
            Err(ConnectionError(Reason::COMPRESSION_ERROR)),
            "{what}"
        );
    }
    let sizes = bytes("20 3f e1 1f 82");
    let said = decoded(&mut Decoder::default(), &sizes);
    assert_eq!(said.as_deref(), Ok(":method=GET;"));
}

/// Two or three bytes that say 3.9 KB, sound and malformed, kept and not kept.
#[test]
fn a_block_says_no_more_than_four_heads() {
    let learn = |value: u8| {
        let mut block = vec![0x40];
        write_number(&mut block, 0, 7, 3900);
        block.resize(block.len() + 3900, b'x');
        block.extend_from_slice(&[1, value]);
        block
    };
    let most = 4 * crate::http::http1::MAX_HEAD_BYTES / (3900 + ENTRY_OVERHEAD_BYTES);
    for value in [b'a', 1] {
        for again in [&[0x0f, 0x2f, 0][..], &[0x7e, 0], &[0xbe]] {
            let mut decoder = Decoder::default();
            decoded(&mut decoder, &learn(value)).unwrap();
            assert!(decoded(&mut decoder, &again.repeat(most)).is_ok());
            let mut count = 0;
            let read = decoder.decode(&again.repeat(20_000), |_| count += 1);
            assert_eq!(read, Err(ConnectionError(Reason::ENHANCE_YOUR_CALM)));
            assert_eq!(count, most, "{value} {again:x?}");
        }
    }
    // Literal fields, which decode to about as many bytes as they have, are below the bound.
    let plain = [&[0x00, 1, b'a', 0x7f, 0xd9, 0x03][..], &[b'v'; 600]].concat();
    let mut decoder = Decoder::default();
    assert!(decoded(&mut decoder, &plain.repeat(105)).is_ok());
}

#[test]
fn names_and_values_that_no_field_has() {
    let kinds = |name: &str, value: &str| {
        let mut block = vec![0x40];
        for text in [name, value] {
            write_number(&mut block, 0, 7, text.len());
            block.extend_from_slice(text.as_bytes());
        }
        // The same field by its index in the table, and its name by its index with another value.
        block.extend_from_slice(&[0xbe, 0x7e, 1, b'b']);
        let mut kinds = Vec::new();
        let read = Decoder::default().decode(&block, |field| kinds.push(field.kind));
        read.unwrap();
        kinds
    };
    use FieldKind::{Malformed, Method, Regular};
    assert_eq!(kinds("x-a", "b"), [Regular, Regular, Regular]);
    assert_eq!(kinds(":method", "b"), [Method, Method, Method]);
    for name in ["", "X-a", "a b", "a:", ":other", "a\0", "\u{e9}"] {
        assert_eq!(
            kinds(name, "b"),
            [Malformed, Malformed, Malformed],
            "{name:?}"
        );
    }
    for value in ["a\r\nb", "a\0", "\u{7f}", " a", "a\t", "a\u{1}"] {
        assert_eq!(
            kinds("x-a", value),
            [Malformed, Malformed, Regular],
            "{value:?}"
        );
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Two ends of a connection that change the size of the table meanwhile.
fn agree(blocks: &[(Pairs, Option<usize>)]) {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for (fields, size) in blocks {
        if let Some(size) = size {
            encoder.resize(*size);
        }
        let mut block = Vec::new();
        encoder.begin_block(&mut block);
        encoder.write_status(&mut block, 429);
        for (name, value) in fields {
            encoder.write_field(&mut block, name, value);
        }
        let mut said = Vec::new();
        let read = decoder.decode(&block, |field| {
            said.push((field.name.to_vec(), field.value.to_vec()));
        });
        read.unwrap();
        let status = (b":status".to_vec(), b"429".to_vec());
        let lower = |(name, value): &(Vec<u8>, Vec<u8>)| (name.to_ascii_lowercase(), value.clone());
        let expected: Vec<_> = std::iter::once(status)
            .chain(fields.iter().map(lower))
            .collect();
        assert_eq!(said, expected);
    }
}

#[test]
fn what_comes_again_is_short() {
    let mut encoder = Encoder::default();
    let mut lengths = Vec::new();
    for turn in 0..5 {
        let mut block = Vec::new();
        encoder.begin_block(&mut block);
        encoder.write_field(&mut block, b"content-type", b"application/problem+json");
        encoder.write_field(&mut block, b"X-Turn", format!("{turn}").as_bytes());
        encoder.write_field(&mut block, b"set-cookie", b"a=b");
        lengths.push(block.len());
    }
    let shortest = 1 + 10 + 6;
    assert_eq!(lengths, [43, 42, shortest, shortest, shortest]);
}

proptest! {
    #[test]
    fn both_ends_agree(blocks in prop::collection::vec(
        (
            prop::collection::vec(
                (
                    prop::sample::select(vec!["a", "Content-Type", "date", "set-cookie", "x-long-name"]),
                    prop::sample::select(vec![0, 1, 2, 3, 7, 100, 200, 300, 5000]),
                ),
                0..12,
            ),
            prop::option::weighted(0.1, 0_usize..5000),
        ),
        1..40,
    )) {
        let blocks: Vec<_> = blocks
            .into_iter()
            .map(|(fields, size)| {
                let field = |(name, length): (&str, usize)| {
                    (name.as_bytes().to_vec(), vec![b'a' + (length % 26) as u8; length])
                };
                (fields.into_iter().map(field).collect(), size)
            })
            .collect();
        agree(&blocks);
    }

    #[test]
    fn nothing_panics(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        let _ = decoded(&mut decoder, &block);
        let _ = decoded(&mut decoder, &block);
    }

    #[test]
    fn numbers(number in 0_usize..1 << 28, bits in 1_u32..8) {
        let mut block = Vec::new();
        write_number(&mut block, 0, bits, number);
        let mut rest = &block[..];
        prop_assert_eq!(read_number(&mut rest, bits), Some(number));
        prop_assert!(rest.is_empty());
    }
}
