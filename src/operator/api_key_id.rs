//! The ids by which operators name API keys: made of the hash of a key, they disclose nothing of it.

use crate::identity::api_keys::{Sha256Hash, sha256};
use crate::identity::runtime_keys::KEY_PREFIX;

/// Bytes of the hash in an id: 10,000 keys have no two ids alike.
const ID_HASH_BYTES: usize = 8;
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 2 * ID_HASH_BYTES;

/// The id that an operator names: the text itself without the blanks around it. If the text looks like a key that a gateway
/// has made, it is the id of that key. So a key that was pasted in the place of its id goes nowhere. `None` if the text is
/// neither.
pub fn find_named_id(text: &str) -> Option<String> {
    let text = text.trim();
    if text.starts_with(KEY_PREFIX) {
        return find_id(&sha256(text.as_bytes())?);
    }
    is_id(text).then(|| text.to_owned())
}

/// Whether a text has the form of an id. Any other one may be a secret, so that no message quotes it.
pub fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of the key with this hash: the beginning of a hash of it, from which nobody learns the hash.
pub(super) fn find_id(hash: &Sha256Hash) -> Option<String> {
    let hash_of_hash = sha256(&[b"tollgate id of an API key: ", &hash[..]].concat())?;
    Some(hex_digits(&hash_of_hash[..ID_HASH_BYTES]))
}

/// Two hexadecimal digits for each byte.
pub(super) fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_no_part_of_the_hash() {
        let hash = sha256(b"tg_x").unwrap();
        let id = find_id(&hash).unwrap();
        assert!(is_id(&id));
        assert!(!hex_digits(&hash).contains(&id[..6]));
        assert_ne!(find_id(&sha256(b"tg_y").unwrap()).unwrap(), id);
    }

    #[test]
    fn a_key_in_the_place_of_its_id_leads_to_the_id() {
        let id = find_id(&sha256(b"tg_x").unwrap());
        assert_eq!(find_named_id(" tg_x\n"), id);
        let id = "0123456789abcdef";
        assert_eq!(find_named_id(&format!(" {id} ")).as_deref(), Some(id));
        for text in [
            "tg_0123456789abc",
            "",
            "0123456789abcdeg",
            "0123456789abcdef0",
        ] {
            assert!(!is_id(text), "{text}");
        }
        for text in ["", "secret", "0123456789abcdef0"] {
            assert_eq!(find_named_id(text), None, "{text}");
        }
    }
}
