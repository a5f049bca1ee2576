//! Decodes base64 as lenient readers do: each reader skips the bytes that are not in its alphabet. No input is an error.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine};

/// Decodes base64url with any padding, and ignores the unused bits of the last letter, as most decoders do.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Number of letters that encode three bytes together; padding fills an incomplete group.
const LETTERS_PER_GROUP: usize = 4;

/// A way of reading base64.
#[derive(Clone, Copy)]
pub(super) enum Base64Reader {
    /// PHP knows only the letters of standard base64, skips `-` and `_`, and reads on after padding.
    Php,
    /// A reader that knows the letters of both alphabets, and reads on after padding.
    BothAlphabets,
    /// Python knows the letters of both alphabets, and stops at padding that fills a group.
    Python,
}

impl Base64Reader {
    /// The letters that this reader does not skip, in the alphabet of base64url.
    pub(super) fn letters(self, text: &[u8]) -> Vec<u8> {
        let mut letters = Vec::with_capacity(text.len());
        let mut padding_length = 0;
        for &byte in text {
            let letter = match byte {
                b'+' => b'-',
                b'/' => b'_',
                b'-' | b'_' if matches!(self, Base64Reader::Php) => continue,
                b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => byte,
                // Python skips padding until a group has two letters, and stops once the padding fills the group.
                b'=' if matches!(self, Base64Reader::Python)
                    && letters.len() % LETTERS_PER_GROUP > 1 =>
                {
                    padding_length += 1;
                    if letters.len() % LETTERS_PER_GROUP + padding_length >= LETTERS_PER_GROUP {
                        break;
                    }
                    continue;
                }
                _ => continue,
            };
            padding_length = 0;
            letters.push(letter);
        }
        letters
    }

    /// Re-encodes the text in base64url, without the bytes and bits that this reader ignores. If the letters are no
    /// base64, they are returned as they are.
    pub(super) fn canonical_text(self, text: &[u8]) -> Vec<u8> {
        let letters = self.letters(text);
        match LENIENT.decode(&letters) {
            Ok(bytes) => URL_SAFE_NO_PAD.encode(bytes).into(),
            Err(_) => letters,
        }
    }

    /// The bytes that this reader decodes; empty if the letters are no base64.
    pub(super) fn decode(self, text: &[u8]) -> Vec<u8> {
        let mut letters = self.letters(text);
        // A single letter at the end has fewer bits than a byte.
        if letters.len() % LETTERS_PER_GROUP == 1 {
            letters.pop();
        }
        LENIENT.decode(letters).unwrap_or_default()
    }
}
