//! Keys as operators read and write them: `ip=203.0.113.9,user=alice`.
//!
//! A key is its parts with commas between them, a part is an identity, `=` and a value. Keys are written in URLs,
//! shells and terminals. In a value every byte that is not plain text in all of these is `~` and two hexadecimal
//! digits: `~`, `,`, `%`, `?`, `#`, `&`, `+`,
//! `\`, control and formatting characters, and blanks at its ends. So the user `CN=alice,O=Example` is written
//! `user=CN=alice~2CO=Example`. Credentials and email addresses are written as `#` and their keyed hash.
//!
//! What is written here is read back as the same key and as no other, but for users that are email addresses: of those
//! the hash is shown, and the address must be given. A comma is read as one of the value where no identity follows it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{ClientIdentity, Identifier};
use crate::limit::{Fingerprint, Identity};

/// Hexadecimal digits of a hash from which a key can be read again.
const WHOLE: usize = 32;

/// Why a text is no key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A part without `=`.
    #[error("`{0}` is not written NAME=VALUE, like ip=203.0.113.9")]
    Part(String),
    /// A part of another identity.
    #[error("this limit counts by {by}, not by `{name}`")]
    Identity {
        /// What the limit counts by.
        by: String,
        /// What was written.
        name: String,
    },
    /// A part that is there twice.
    #[error("`{0}` is there twice; a comma in a value is written ~2C")]
    Twice(&'static str),
    /// No address or network.
    #[error("`{0}` is not an address")]
    Address(String),
    /// A network that is not one client.
    #[error("`{0}` is not one client: addresses are grouped as `{1}`")]
    Network(IpNet, IpNet),
    /// No email address.
    #[error("`{0}` is not an email address")]
    Email(String),
    /// The hash of a user that is an email address.
    #[error(
        "`{0}` is the hash of an email address, which no key can be found by: write the address"
    )]
    Hash(String),
    /// No plan.
    #[error("there is no plan `{0}`")]
    Plan(String),
    /// No address where it is part of the key.
    #[error("this limit counts by ip: write ip=ADDRESS too")]
    NoAddress,
    /// Nothing but the plan.
    #[error("the key names nobody that this limit counts by")]
    Nobody,
}

impl Identifier {
    /// Who [`Identifier::key`] is of, as operators write it.
    pub fn key_name(&self, who: &ClientIdentity, parts: &[Identity]) -> String {
        let settings = self.settings();
        let mut name = String::new();
        for identity in parts {
            let part = match identity {
                Identity::Ip => {
                    let network = settings.ip.group(who.ip);
                    let single = network.prefix_len() == network.max_prefix_len();
                    Some(if single {
                        network.addr().to_string()
                    } else {
                        network.to_string()
                    })
                }
                Identity::User => who.user.as_deref().map(|user| self.user_name(user)),
                Identity::Token => who.token.map(hash),
                Identity::Email => who.email.map(hash),
                Identity::Plan => {
                    let plan = who.plan.and_then(|plan| settings.plan.plans.get(plan));
                    plan.map(|plan| plan.name.to_string())
                }
            };
            if let Some(part) = part {
                let comma = if name.is_empty() { "" } else { "," };
                name = name + comma + identity.as_str() + "=" + &part;
            }
        }
        name
    }

    /// How a user is called where it is kept: one that is an address of email by the beginning of its hash.
    pub fn user_name(&self, user: &str) -> String {
        match self.address_key(user) {
            Some(key) => format!("#{:012x}", key.0 >> 80),
            None => escaped(user),
        }
    }

    /// Whom a key names of a limit that counts by `parts`. `plan=gold` may stand there for what the plan multiplies; who
    /// has no plan where none stands there.
    ///
    /// # Errors
    ///
    /// Why the text is no key of such a limit.
    pub fn read_key(&self, text: &str, parts: &[Identity]) -> Result<ClientIdentity, KeyError> {
        let mut who = ClientIdentity::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut given = Vec::new();
        for part in split(text) {
            let pair = part.split_once('=');
            let (name, value) = pair.ok_or_else(|| KeyError::Part(part.to_owned()))?;
            let mut known = parts.iter().chain(&[Identity::Plan]);
            let identity = known.find(|identity| identity.as_str() == name.trim());
            let identity = *identity.ok_or_else(|| KeyError::Identity {
                by: parts
                    .iter()
                    .map(|part| part.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
                name: name.to_owned(),
            })?;
            if given.contains(&identity) {
                return Err(KeyError::Twice(identity.as_str()));
            }
            given.push(identity);
            self.set(&mut who, identity, value)?;
        }
        // Every request has an address; the others may be missing, but not all.
        if parts.contains(&Identity::Ip) && !given.contains(&Identity::Ip) {
            return Err(KeyError::NoAddress);
        }
        if !parts.iter().any(|identity| given.contains(identity)) {
            return Err(KeyError::Nobody);
        }
        Ok(who)
    }

    fn set(
        &self,
        who: &mut ClientIdentity,
        identity: Identity,
        written: &str,
    ) -> Result<(), KeyError> {
        let settings = self.settings();
        let value = unescaped(written);
        match identity {
            Identity::Ip => {
                let address = || value.parse::<IpAddr>().map(IpNet::from);
                let network = value.parse().or_else(|_| address());
                let network: IpNet = network.map_err(|_| KeyError::Address(value))?;
                let group = settings.ip.group(network.addr());
                if network.prefix_len() != network.max_prefix_len() && network != group {
                    return Err(KeyError::Network(network, group));
                }
                who.ip = settings.ip.counted(network.addr());
            }
            Identity::User if written.starts_with('#') => {
                return Err(KeyError::Hash(written.to_owned()));
            }
            Identity::User => who.user = Some(value.into()),
            Identity::Token => {
                who.token = Some(whole(written).unwrap_or_else(|| self.token_key(&value)))
            }
            Identity::Email => {
                let key = whole(written).or_else(|| self.email_key(&value));
                who.email = Some(key.ok_or(KeyError::Email(value))?);
            }
            Identity::Plan => {
                let plan = settings.plan.named(&value);
                who.plan = Some(plan.ok_or(KeyError::Plan(value))?);
            }
        }
        Ok(())
    }
}

/// The parts of a key: a comma ends one where an identity follows.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',') {
        let name = text[comma + 1..]
            .split_once('=')
            .map(|(name, _)| name.trim());
        let is_identity = |name| {
            Identity::ALL
                .iter()
                .any(|identity| identity.as_str() == name)
        };
        if name.is_some_and(is_identity) {
            parts.push(&text[start..comma]);
            start = comma + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

fn hash(key: Fingerprint) -> String {
    format!("#{:0WHOLE$x}", key.0)
}

/// The fingerprint that [`hash`] has written.
fn whole(written: &str) -> Option<Fingerprint> {
    let digits = written.strip_prefix('#')?;
    let plain = digits.len() == WHOLE && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok();
    number.filter(|_| plain).map(Fingerprint)
}

/// A value as it stands in a key.
fn escaped(value: &str) -> String {
    let (start, end) = (value.trim_start().len(), value.trim_end().len());
    let inner = value.len() - start..end;
    let mut out = String::with_capacity(value.len());
    for (at, letter) in value.char_indices() {
        if is_plain(letter) && (inner.contains(&at) || !letter.is_whitespace()) {
            out.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(out, "~{byte:02X}");
        }
    }
    out
}

fn is_plain(letter: char) -> bool {
    let formats = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !letter.is_control() && !formats && !"~,%?#&+\\".contains(letter)
}

/// The value that stands in a key; what is not escaped stands for itself.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match after {
            [high, low, ..] if byte == b'~' => [*high, *low],
            _ => [0, 0],
        };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        match digits.map(digit) {
            [Some(high), Some(low)] => {
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::{Keyer, Settings, plan};

    fn identifier() -> Identifier {
        let plan = |name: &str| plan::Plan {
            name: name.into(),
            multiply: 1,
            priority: None,
        };
        let mut settings = Settings::default();
        settings.plan.plans = vec![plan("free"), plan("gold")];
        Identifier::new(settings, Keyer::new([7; 16]))
    }

    #[test]
    fn users_as_they_are_written() {
        let subject = identifier();
        for (user, written) in [
            ("alice", "alice"),
            ("CN=alice", "CN=alice"),
            ("CN=alice,O=Example", "CN=alice~2CO=Example"),
            ("auth0|5f7c/ü x", "auth0|5f7c/ü x"),
            ("100%", "100~25"),
            ("~2C", "~7E2C"),
            ("#a?b&c+d\\e", "~23a~3Fb~26c~2Bd~5Ce"),
            (" a\tb ", "~20a~09b~20"),
            ("a\u{202e}b\u{7f}", "a~E2~80~AEb~7F"),
        ] {
            assert_eq!(subject.user_name(user), written);
            assert_eq!(unescaped(written), user);
        }
        assert!(subject.user_name("alice@example.com").starts_with('#'));
    }

    #[track_caller]
    fn check(text: &str, parts: &[Identity], expected: Result<&str, &str>) {
        let subject = identifier();
        let read = subject.read_key(text, parts);
        let name = read.map(|who| subject.key_name(&who, parts));
        let name = name.map_err(|error| error.to_string());
        assert_eq!(
            name.as_deref().map_err(|error| &**error),
            expected,
            "{text}"
        );
    }

    #[test]
    fn keys_that_operators_write() {
        use Identity::{Email, Ip, Plan, Token, User};
        check("user=alice", &[User], Ok("user=alice"));
        check("user=~bob", &[User], Ok("user=~7Ebob"));
        check(
            "ip=2001:db8::7, user=alice",
            &[Ip, User],
            Ok("ip=2001:db8::/64,user=alice"),
        );
        check("ip=2001:db8::/64", &[Ip], Ok("ip=2001:db8::/64"));
        check("ip=64:ff9b::192.0.2.1", &[Ip], Ok("ip=192.0.2.1"));
        check("ip=192.0.2.1/32,plan=gold", &[Ip], Ok("ip=192.0.2.1"));
        check(
            "ip=192.0.2.1,plan=gold",
            &[Ip, Plan],
            Ok("ip=192.0.2.1,plan=gold"),
        );
        // No identity is called O, so that comma is one of the name.
        check(
            "user=CN=alice,O=Example",
            &[User],
            Ok("user=CN=alice~2CO=Example"),
        );
        check("user=a,b", &[User], Ok("user=a~2Cb"));
        check("user=a~2Ctoken=z", &[User, Token], Ok("user=a~2Ctoken=z"));
        let hash = "token=#0123456789abcdef0123456789abcdef";
        check(hash, &[Token], Ok(hash));
        check(
            "email=#0123456789abcdef0123456789abcdef",
            &[Email],
            Ok("email=#0123456789abcdef0123456789abcdef"),
        );
        check(
            "alice",
            &[User],
            Err("`alice` is not written NAME=VALUE, like ip=203.0.113.9"),
        );
        check(
            "user=a,user=b",
            &[User],
            Err("`user` is there twice; a comma in a value is written ~2C"),
        );
        check(
            "user=a,token=b",
            &[User],
            Err("this limit counts by user, not by `token`"),
        );
        check(
            "plan=gold",
            &[User],
            Err("the key names nobody that this limit counts by"),
        );
        check("user=a,plan=x", &[User], Err("there is no plan `x`"));
        check(
            "user=a",
            &[Ip, User],
            Err("this limit counts by ip: write ip=ADDRESS too"),
        );
        check("ip=1.2.3", &[Ip], Err("`1.2.3` is not an address"));
        check(
            "ip=192.0.2.0/24",
            &[Ip],
            Err("`192.0.2.0/24` is not one client: addresses are grouped as `192.0.2.0/32`"),
        );
        check(
            "email=a@b@c",
            &[Email],
            Err("`a@b@c` is not an email address"),
        );
        check(
            "user=#0123456789ab",
            &[User],
            Err(
                "`#0123456789ab` is the hash of an email address, which no key can be found by: write the address",
            ),
        );
    }

    fn any_parts() -> impl Strategy<Value = Vec<Identity>> {
        proptest::sample::subsequence(Identity::ALL.to_vec(), 1..=Identity::ALL.len())
    }

    fn any_user() -> impl Strategy<Value = Option<String>> {
        let odd = "[a-z=,%~#\" /?&+\\\\\u{0}-\u{20}é\u{2028}]{1,12}";
        let pairs =
            "(user|ip|token|plan|O)=[a-z1.]{0,3}(,(user|ip|token|plan|O)=[a-z~2C%]{0,4}){0,3}";
        proptest::option::of(prop_oneof![odd, pairs, ".{1,8}"])
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_key_wherever_it_was(
            parts in any_parts(),
            user in any_user(),
            token in any::<Option<u128>>(),
            email in any::<Option<u128>>(),
            plan in proptest::option::of(0..2_usize),
            ip in any::<IpAddr>(),
        ) {
            let subject = identifier();
            prop_assume!(user.as_deref().is_none_or(|user| subject.address_key(user).is_none()));
            let mut who = ClientIdentity::new(ip);
            who.user = user.map(Into::into);
            who.token = token.map(Fingerprint);
            who.email = email.map(Fingerprint);
            who.plan = plan;
            let name = subject.key_name(&who, &parts);
            let Some(key) = subject.key(&who, &parts) else {
                prop_assert_eq!(name, "");
                return Ok(());
            };
            // A plan alone is no key that can be asked for.
            prop_assume!(!name.starts_with("plan="));
            let read = subject.read_key(&name, &parts);
            let read = read.map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
            prop_assert_eq!(subject.key_name(&read, &parts), name.clone());
            prop_assert_eq!(subject.key(&read, &parts), Some(key), "{}", name);
            // Clients of HTTP may escape what they like.
            prop_assert!(!name.bytes().any(|byte| b"%?&+\\".contains(&byte)), "{}", name);
        }
    }
}
