//! Base64 as lenient readers take it: each skips what is no letter to it.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine};

/// Ignores what most decoders ignore.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a reader takes text for base64.
#[derive(Clone, Copy)]
pub(super) enum Base64Reader {
    /// Only `+` and `/` are letters, and padding ends nothing: PHP.
    Php,
    /// `-` and `_` are letters too.
    Both,
    /// The same, up to the padding: Python.
    Python,
}

impl Base64Reader {
    /// The letters that it reads, in base64url.
    pub(super) fn letters(self, text: &[u8]) -> Vec<u8> {
        let mut letters = Vec::with_capacity(text.len());
        let mut padding = 0;
        for &byte in text {
            let letter = match byte {
                b'+' => b'-',
                b'/' => b'_',
                b'-' | b'_' if matches!(self, Base64Reader::Php) => continue,
                b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => byte,
                b'=' if matches!(self, Base64Reader::Python) && letters.len() % 4 > 1 => {
                    padding += 1;
                    if letters.len() % 4 + padding > 3 {
                        break;
                    }
                    continue;
                }
                _ => continue,
            };
            padding = 0;
            letters.push(letter);
        }
        letters
    }

    /// Text in base64url without what the reader skips, and without the bits of its last letter that it ignores.
    pub(super) fn canonical(self, part: &[u8]) -> Vec<u8> {
        let letters = self.letters(part);
        match LENIENT.decode(&letters) {
            Ok(bytes) => URL_SAFE_NO_PAD.encode(bytes).into(),
            Err(_) => letters,
        }
    }

    /// The bytes of the letters that it reads; none where they are no base64.
    pub(super) fn decoded(self, text: &[u8]) -> Vec<u8> {
        let mut letters = self.letters(text);
        // A last letter alone has no byte.
        if letters.len() % 4 == 1 {
            letters.pop();
        }
        LENIENT.decode(letters).unwrap_or_default()
    }
}
