//! [`OperatorTokens`]: who the operators are and what each may do. Only hashes of tokens are kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

/// The bytes of the SHA-256 hash of a token.
type TokenHash = [u8; 32];

/// What an operator may do. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To see everything that discloses no secret.
    Read,
    /// The daily work of a support team: to ban, to grant, and to forget counts.
    Support,
    /// All orders, also reloads and API keys.
    Admin,
}

impl Right {
    /// All rights, the smallest one first.
    pub const ALL: [Right; 3] = [Right::Read, Right::Support, Right::Admin];

    /// The word for the right in files, in the API and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Support => "support",
            Right::Admin => "admin",
        }
    }

    /// The right with this word; `None` for any other text.
    pub fn parse(word: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.as_str() == word)
    }
}

/// The token of one operator.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorToken {
    /// The name of the operator, by which orders are signed.
    pub name: Arc<str>,
    /// What the operator may do.
    pub right: Right,
    /// The time since the Unix epoch from which on the token is no longer valid; `None` if it does not expire.
    pub expires_at: Option<Duration>,
    hash: TokenHash,
}

impl OperatorToken {
    /// Lengths of a token in bytes, each a printable ASCII character. A shorter one could be guessed.
    pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;

    /// Most bytes of a name. It must fit into the `by` of an order beside the name of somebody else.
    pub const MAX_NAME_BYTES: usize = 32;

    /// A token of which only the SHA-256 hash is known.
    pub fn of_hash(
        name: &str,
        right: Right,
        expires_at: Option<Duration>,
        hash: TokenHash,
    ) -> OperatorToken {
        let name = name.into();
        OperatorToken {
            name,
            right,
            expires_at,
            hash,
        }
    }

    /// A token by its text.
    pub fn of_text(
        name: &str,
        right: Right,
        expires_at: Option<Duration>,
        text: &str,
    ) -> OperatorToken {
        OperatorToken::of_hash(name, right, expires_at, sha256(text.as_bytes()))
    }

    /// Whether a text can be a token: see [`OperatorToken::LENGTHS`].
    pub fn is_token(text: &str) -> bool {
        OperatorToken::LENGTHS.contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// Whether a text can be a name: letters, digits and `-_.@+` of ASCII, at most [`OperatorToken::MAX_NAME_BYTES`].
    pub fn is_name(text: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
        (1..=OperatorToken::MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
    }
}

/// Shows everything but the hash.
impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorToken({}, {})", self.name, self.right.as_str())
    }
}

/// The tokens of all operators, at most [`OperatorTokens::MAX_TOKENS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorTokens(Vec<OperatorToken>);

/// Why a token lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// No operator has it.
    Unknown,
    /// Its time is over.
    Expired,
}

impl OperatorTokens {
    /// The most tokens. A request's token is compared with all of them.
    pub const MAX_TOKENS: usize = 256;

    /// The tokens of a list; those beyond [`OperatorTokens::MAX_TOKENS`] are left out.
    ///
    /// # Errors
    ///
    /// The index of the first token that an earlier entry has too.
    pub fn new(mut tokens: Vec<OperatorToken>) -> Result<OperatorTokens, usize> {
        tokens.truncate(OperatorTokens::MAX_TOKENS);
        for (index, token) in tokens.iter().enumerate() {
            let mut earlier_tokens = tokens.iter().take(index);
            if earlier_tokens.any(|earlier| earlier.hash == token.hash) {
                return Err(index);
            }
        }
        Ok(OperatorTokens(tokens))
    }

    /// All tokens.
    pub fn list(&self) -> impl Iterator<Item = &OperatorToken> {
        self.0.iter()
    }

    /// The operator who sent this token at `now`, the time since the Unix epoch.
    ///
    /// All hashes are compared, each in constant time, so that the duration reveals nothing of the tokens.
    ///
    /// # Errors
    ///
    /// See [`TokenError`].
    pub fn find(&self, sent: &[u8], now: Duration) -> Result<&OperatorToken, TokenError> {
        // A hash in the file may be that of any text, also of one that can be guessed.
        let is_token = std::str::from_utf8(sent).is_ok_and(OperatorToken::is_token);
        if !is_token {
            return Err(TokenError::Unknown);
        }
        let sent_hash = sha256(sent);
        // A loop without an early end.
        let found = self.0.iter().fold(None, |found, token| {
            match verify_slices_are_equal(&sent_hash, &token.hash) {
                Ok(()) => Some(token),
                Err(_) => found,
            }
        });
        let token = found.ok_or(TokenError::Unknown)?;
        match token.expires_at {
            Some(expires_at) if expires_at <= now => Err(TokenError::Expired),
            _ => Ok(token),
        }
    }
}

/// The SHA-256 hash of a text.
fn sha256(text: &[u8]) -> TokenHash {
    let mut hash = [0; 32];
    let digest = digest(&SHA256, text);
    for (byte, of_digest) in hash.iter_mut().zip(digest.as_ref()) {
        *byte = *of_digest;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, right: Right, text: &str) -> OperatorToken {
        OperatorToken::of_text(name, right, None, text)
    }

    #[test]
    fn each_right_includes_those_before_it() {
        assert!(Right::Read < Right::Support && Right::Support < Right::Admin);
        for right in Right::ALL {
            assert_eq!(Right::parse(right.as_str()), Some(right));
        }
        assert_eq!(Right::parse("Admin"), None);
    }

    #[test]
    fn tokens_are_found_by_text_and_by_hash() {
        // From FIPS 180-4, as `abc` is too short to be sent.
        let text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let digits = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
        let digits = digits.as_bytes().chunks(2);
        let bytes = digits.map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        });
        let hash: TokenHash = bytes.collect::<Vec<_>>().try_into().unwrap();
        let until = Some(Duration::from_secs(9));
        let alice = OperatorToken::of_hash("alice", Right::Read, until, hash);
        let short = token("short", Right::Read, "short-token-123");
        let bob = token("bob", Right::Admin, "token-of-bob-0123456789");
        let tokens = OperatorTokens::new(vec![alice, bob, short]).unwrap();
        let find = |text: &str, seconds| {
            let found = tokens.find(text.as_bytes(), Duration::from_secs(seconds));
            found.map(|token| &*token.name)
        };
        assert_eq!(find(text, 8), Ok("alice"));
        assert_eq!(find(text, 9), Err(TokenError::Expired));
        assert_eq!(find("token-of-bob-0123456789", 9), Ok("bob"));
        let upper = text.to_uppercase();
        for wrong in [
            "",
            "ab",
            "token-of-bob-012345678",
            &upper,
            "short-token-123",
        ] {
            assert_eq!(find(wrong, 8), Err(TokenError::Unknown), "{wrong}");
        }
        let shown = format!("{tokens:?}");
        assert_eq!(
            shown,
            "OperatorTokens([OperatorToken(alice, read), OperatorToken(bob, admin), OperatorToken(short, read)])"
        );
    }

    #[test]
    fn a_token_has_one_name() {
        let tokens = ["a", "b", "a"].map(|text| token(text, Right::Read, text));
        assert_eq!(OperatorTokens::new(tokens.to_vec()), Err(2));
    }
}
