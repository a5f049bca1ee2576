//! The key sets that a process passes to the one that takes over, which may start while an issuer cannot be reached.
//!
//! They pass as JSON over a pipe, because a set may be longer than a variable of the environment. The new process
//! parses and checks each set as if it had been fetched.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::identity::jwt::{RemoteKeySet, VerificationKeys};

/// The largest number of bytes that are read. A fetched set has at most 1 MiB, and most have a few KiB.
const MAX_BYTES: u64 = 32 << 20;

/// Key sets as they were received, by the name that `set_name` gives them. Their number is that of the fetchers.
#[derive(Debug, Default)]
pub struct PassedKeySets(BTreeMap<String, String>);

impl PassedKeySets {
    /// Adds the set that was fetched from `source`. `set` must be JSON, and thus UTF-8.
    pub(super) fn add(&mut self, source: &RemoteKeySet, set: &[u8]) {
        let text = String::from_utf8_lossy(set).into_owned();
        self.0.insert(set_name(source), text);
    }

    /// Whether there is no set to pass.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The set of `source` and its keys; `None` if none was passed, or if it has no usable keys.
    pub(super) fn find(&self, source: &RemoteKeySet) -> Option<(Bytes, VerificationKeys)> {
        let set = self.0.get(&set_name(source))?;
        let keys = VerificationKeys::from_jwks(set.as_bytes()).ok()?;
        Some((Bytes::copy_from_slice(set.as_bytes()), keys))
    }

    /// Reads what [`PassedKeySets::write`] wrote, to its end.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read, are not what `write` wrote, or are more than [`MAX_BYTES`].
    pub fn read(from: impl Read) -> io::Result<PassedKeySets> {
        let sets = serde_json::from_reader(from.take(MAX_BYTES))?;
        Ok(PassedKeySets(sets))
    }

    /// Writes all sets as one JSON object.
    ///
    /// # Errors
    ///
    /// `to` cannot be written, for instance because the other end of the pipe was closed.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&serde_json::to_vec(&self.0)?)
    }
}

/// The name of a set: its URL and its issuer, because the keys of one issuer must not verify the tokens of another.
fn set_name(source: &RemoteKeySet) -> String {
    // A URL has no blanks, so two sets never have the same name.
    format!("{} {}", source.url, source.issuer.as_deref().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Roots;

    const SET: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "é",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    #[test]
    fn sets_pass_with_their_url_and_issuer() {
        let source = |url: &str, issuer: Option<&str>| {
            let roots = Roots::from_system().unwrap();
            RemoteKeySet::new(url.parse().unwrap(), roots, issuer.map(str::to_owned))
        };
        let one = source("https://a.example/k", Some("https://a.example"));
        let mut sets = PassedKeySets::default();
        sets.add(&one, SET.as_bytes());
        let mut bytes = Vec::new();
        sets.write(&mut bytes).unwrap();
        let read = PassedKeySets::read(&*bytes).unwrap();
        assert_eq!(read.find(&one).unwrap().0, SET);
        for other in [
            source("https://b.example/k", Some("https://a.example")),
            source("https://a.example/k", Some("https://b.example")),
            source("https://a.example/k", None),
        ] {
            assert!(read.find(&other).is_none());
        }
    }

    #[test]
    fn what_is_no_set_is_left_out() {
        let source = RemoteKeySet::new(
            "https://a.example/k".parse().unwrap(),
            Roots::from_system().unwrap(),
            None,
        );
        for bytes in ["", "{", "[]", "null", r#"{"https://a.example/k ": 1}"#] {
            assert!(PassedKeySets::read(bytes.as_bytes()).is_err(), "{bytes}");
        }
        let no_set = r#"{"https://a.example/k ": "{\"keys\": []}"}"#;
        let read = PassedKeySets::read(no_set.as_bytes()).unwrap();
        assert!(read.find(&source).is_none());
    }
}
