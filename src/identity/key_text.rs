//! Formats and parses keys of limits as operators read and write them: `ip=203.0.113.9,user=alice`.
//!
//! A key is a list of parts with commas between them; a part is an identity, `=` and a value. A key that is the same for
//! every client is the word `everyone`.
//!
//! In values these characters are escaped, each byte as `~` and two hexadecimal digits: `~`, `,`, `%`, `?`, `#`, `&`, `+`,
//! `\`, control and formatting characters, and blanks at a value's ends. All other characters stay, so in a shell some
//! keys need quotes. The user `CN=alice,O=Example` is written `user=CN=alice~2CO=Example`. Credentials, email addresses
//! and secret values of custom identities are written as `#` and their keyed hash.
//!
//! A formatted key parses to the same key and to no other. The exception is a name that is an email address, of a user or
//! of a custom identity: the formatted key has a part of its hash, and an operator must write the address. When a key is
//! parsed, a comma belongs to the value unless an identity and `=` follow it.

mod error;
mod escape;

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::custom_value::{CustomValue, IdentityValue};
use super::{ClientIdentity, Identifier, custom};
use crate::limit::key_spec::EVERYONE;
use crate::limit::{CustomIdentity, Fingerprint, Identity, IdentitySet, KeySpec};
pub use error::KeyError;
use escape::{escape, unescape};

/// Number of hexadecimal digits of a whole hash. Only a whole hash can be parsed.
const HASH_DIGITS: usize = 32;

/// Bits that are left out of the hash of a name that is an email address. The 12 digits that are left of 32 suffice to
/// tell users apart in a log.
const HIDDEN_HASH_BITS: u32 = 80;

impl Identifier {
    /// Formats the key that [`Identifier::key`] makes for this client: `everyone` if `spec` has no parts. Parts that the
    /// client lacks are left out, so the text may be empty.
    pub fn format_key(&self, client: &ClientIdentity, spec: &KeySpec) -> String {
        if spec.is_everyone() {
            return EVERYONE.to_owned();
        }
        let settings = self.settings();
        let mut text = String::new();
        let mut formatted_identities = IdentitySet::default();
        for part in spec.parts() {
            let mut identities = part.identities().iter();
            let Some(identity) = identities.find(|identity| client.has(**identity)) else {
                continue;
            };
            // Two parts may select the same identity, which the key has once.
            if formatted_identities.contains(*identity) {
                continue;
            }
            formatted_identities.insert(*identity);
            let value = match identity {
                Identity::Ip => Some(format_network(settings.ip.client_network(client.ip))),
                Identity::User => client.user.as_deref().map(|user| self.format_user(user)),
                Identity::Token => client.token.map(format_hash),
                Identity::Email => client.email.map(format_hash),
                Identity::Plan => {
                    let plan = client.plan.and_then(|index| settings.plan.plans.get(index));
                    plan.map(|plan| plan.name.to_string())
                }
                Identity::Custom(custom) => client
                    .custom_value(*custom)
                    .and_then(|value| self.format_custom(value)),
            };
            if let Some(value) = value {
                let comma = if text.is_empty() { "" } else { "," };
                text = text + comma + identity.as_str() + "=" + &value;
            }
        }
        text
    }

    /// Formats the value of a custom identity; `None` for an ambiguous one. Each name of a list is formatted as a user,
    /// with `+` between the names.
    pub fn format_custom(&self, value: &IdentityValue) -> Option<String> {
        match value {
            IdentityValue::Names(names) => {
                let names = names.iter().map(|name| self.format_user(name));
                Some(names.collect::<Vec<_>>().join("+"))
            }
            IdentityValue::Hash(hash) => Some(format_hash(*hash)),
            IdentityValue::Ambiguous => None,
        }
    }

    /// Formats a user for texts that operators read. An email address becomes `#` and the first 12 digits of its hash; any
    /// other name is escaped.
    pub fn format_user(&self, user: &str) -> String {
        match self.hash_address(user) {
            Some(hash) => format!("#{:012x}", hash.0 >> HIDDEN_HASH_BITS),
            None => escape(user),
        }
    }

    /// Parses a key of a limit that counts by `spec`, and returns a client with this key. The text may also have a part
    /// such as `plan=gold`, for limits that the plan multiplies. Without one the client has no plan.
    ///
    /// # Errors
    ///
    /// [`KeyError`] for a text that is no key of such a limit.
    pub fn parse_key(&self, text: &str, spec: &KeySpec) -> Result<ClientIdentity, KeyError> {
        // The address stays unspecified only if no key of this limit is made of it: see `MissingAddress` below.
        let mut client = ClientIdentity::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut written_identities = Vec::new();
        let is_everyone = spec.is_everyone() && text.trim() == EVERYONE;
        let parts = match is_everyone {
            true => Vec::new(),
            false => split_parts(text),
        };
        for part in parts {
            let pair = part.split_once('=');
            let (name, value) = pair.ok_or_else(|| KeyError::MissingEquals(part.to_owned()))?;
            let identity = parse_identity(name, spec)?;
            if written_identities.contains(&identity) {
                return Err(KeyError::RepeatedIdentity(identity.as_str()));
            }
            written_identities.push(identity);
            self.set_identity(&mut client, identity, value)?;
        }
        // Every request has an address. Other identities may be absent, but not all of them.
        let key_identities = spec.select(|identity| client.has(identity));
        if key_identities.contains(Identity::Ip) && !written_identities.contains(&Identity::Ip) {
            return Err(KeyError::MissingAddress);
        }
        let has_counted_identity = spec
            .identities()
            .any(|identity| written_identities.contains(&identity));
        if !has_counted_identity && !is_everyone {
            return Err(KeyError::NoCountedIdentity);
        }
        Ok(client)
    }

    /// The identities that a key names, for [`Identifier::parse_key`] where no limit says which ones it may name.
    ///
    /// # Errors
    ///
    /// A part is not written `NAME=VALUE`, or names no identity.
    pub fn named_identities(&self, text: &str) -> Result<Vec<Identity>, KeyError> {
        let named_identity = |part: &str| {
            let pair = part.split_once('=');
            let (name, _) = pair.ok_or_else(|| KeyError::MissingEquals(part.to_owned()))?;
            let identity = Identity::find(name.trim());
            identity.ok_or_else(|| KeyError::UnknownIdentity(name.trim().to_owned()))
        };
        split_parts(text).into_iter().map(named_identity).collect()
    }

    /// Sets one identity of the client to the value `text`, which is still escaped.
    fn set_identity(
        &self,
        client: &mut ClientIdentity,
        identity: Identity,
        text: &str,
    ) -> Result<(), KeyError> {
        let settings = self.settings();
        let value = unescape(text);
        match identity {
            Identity::Ip => {
                let single_address = || value.parse::<IpAddr>().map(IpNet::from);
                let network = value.parse().or_else(|_| single_address());
                let network: IpNet = network.map_err(|_| KeyError::InvalidAddress(value))?;
                let client_network = settings.ip.client_network(network.addr());
                if network.prefix_len() != network.max_prefix_len() && network != client_network {
                    return Err(KeyError::NotOneClient {
                        written: network,
                        client_network,
                    });
                }
                client.ip = settings.ip.counted_address(network.addr());
            }
            // A user that begins with `#` has it escaped, so this is a hash.
            Identity::User if text.starts_with('#') => {
                return Err(KeyError::EmailHash(text.to_owned()));
            }
            Identity::User => client.user = Some(value.into()),
            Identity::Token => {
                client.token = Some(parse_hash(text).unwrap_or_else(|| self.hash_token(&value)));
            }
            Identity::Email => {
                let hash = parse_hash(text).or_else(|| self.hash_email(&value));
                client.email = Some(hash.ok_or(KeyError::InvalidEmail(value))?);
            }
            Identity::Plan => {
                let plan = settings.plan.index_of(&value);
                client.plan = Some(plan.ok_or(KeyError::UnknownPlan(value))?);
            }
            Identity::Custom(custom) => {
                let value = self.parse_custom_value(custom, text)?;
                client.custom.push(CustomValue {
                    identity: custom,
                    value,
                });
            }
        }
        Ok(())
    }

    /// Parses the value of a custom identity, which is still escaped: a whole hash or a name. A claim may have several names
    /// with `+` between them.
    fn parse_custom_value(
        &self,
        identity: CustomIdentity,
        text: &str,
    ) -> Result<IdentityValue, KeyError> {
        if let Some(hash) = parse_hash(text) {
            return Ok(IdentityValue::Hash(hash));
        }
        if text.starts_with('#') {
            return Err(KeyError::EmailHash(text.to_owned()));
        }
        let is_claim = matches!(
            self.settings().custom_source(identity),
            Some(custom::Source::Claim(_))
        );
        let names: Vec<String> = match is_claim {
            true => text.split('+').map(unescape).collect(),
            false => vec![unescape(text)],
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let value = self.parse_custom(identity, &names);
        value.ok_or_else(|| KeyError::InvalidValue {
            identity: identity.as_str(),
            text: text.to_owned(),
        })
    }
}

/// Parses the name of a part, which is an identity of the key or `plan`.
fn parse_identity(name: &str, spec: &KeySpec) -> Result<Identity, KeyError> {
    let mut allowed_identities = spec.identities().chain([Identity::Plan]);
    let identity = allowed_identities.find(|identity| identity.as_str() == name.trim());
    identity.ok_or_else(|| KeyError::UncountedIdentity {
        counted: spec.part_names().join(", "),
        written: name.to_owned(),
    })
}

/// Splits a key at each comma that the name of an identity and `=` follow.
fn split_parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut part_start = 0;
    for (comma, _) in text.match_indices(',') {
        let name = text[comma + 1..]
            .split_once('=')
            .map(|(name, _)| name.trim());
        let is_identity = |name| Identity::all().any(|identity| identity.as_str() == name);
        if name.is_some_and(is_identity) {
            parts.push(&text[part_start..comma]);
            part_start = comma + 1;
        }
    }
    parts.push(&text[part_start..]);
    parts
}

/// Formats a network; one of a single address is written without its prefix length.
fn format_network(network: IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// Writes `#` and all digits of the hash.
fn format_hash(hash: Fingerprint) -> String {
    format!("#{:0HASH_DIGITS$x}", hash.0)
}

/// Parses `#` and [`HASH_DIGITS`] hexadecimal digits of either case; `None` for any other text, also for a shortened hash.
fn parse_hash(text: &str) -> Option<Fingerprint> {
    let digits = text.strip_prefix('#')?;
    let has_hash_digits =
        digits.len() == HASH_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok();
    number.filter(|_| has_hash_digits).map(Fingerprint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::{Keyer, Settings, plan};
    use crate::limit::KeyPart;

    fn identifier() -> Identifier {
        let plan = |name: &str| plan::Plan {
            name: name.into(),
            plan_factor: 1,
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
            assert_eq!(subject.format_user(user), written);
            assert_eq!(unescape(written), user);
        }
        assert!(subject.format_user("alice@example.com").starts_with('#'));
    }

    #[track_caller]
    fn check(text: &str, parts: &[Identity], expected: Result<&str, &str>) {
        check_spec(text, &parts.into(), expected);
    }

    #[track_caller]
    fn check_spec(text: &str, spec: &KeySpec, expected: Result<&str, &str>) {
        let subject = identifier();
        let read = subject.parse_key(text, spec);
        let name = read.map(|who| subject.format_key(&who, spec));
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

    #[test]
    fn keys_with_alternatives() {
        use Identity::{Email, Ip, Token, User};
        let part = |identities: &[Identity]| KeyPart::first_of(identities).unwrap();
        let by_user_or_ip = KeySpec::new(vec![part(&[User, Ip])]);
        check_spec("user=alice", &by_user_or_ip, Ok("user=alice"));
        check_spec("ip=192.0.2.1", &by_user_or_ip, Ok("ip=192.0.2.1"));
        check_spec("ip=192.0.2.1,user=a", &by_user_or_ip, Ok("user=a"));
        let message = "this limit counts by user or ip, not by `email`";
        check_spec("email=a@b.example", &by_user_or_ip, Err(message));
        let by_two = KeySpec::new(vec![part(&[User, Token]), part(&[Email])]);
        check_spec("user=alice", &by_two, Ok("user=alice"));
        check_spec(
            "plan=gold",
            &by_two,
            Err("the key names nobody that this limit counts by"),
        );
        let everyone = KeySpec::everyone();
        check_spec("everyone", &everyone, Ok("everyone"));
        let message = "this limit counts by everyone, not by `ip`";
        check_spec("ip=192.0.2.1", &everyone, Err(message));
    }

    fn any_spec() -> impl Strategy<Value = KeySpec> {
        let identities = proptest::sample::subsequence(Identity::BUILT_IN.to_vec(), 1..=3);
        let part = identities
            .prop_shuffle()
            .prop_map(|identities| KeyPart::first_of(&identities).unwrap());
        proptest::collection::vec(part, 0..4).prop_map(KeySpec::new)
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
            spec in any_spec(),
            user in any_user(),
            token in any::<Option<u128>>(),
            email in any::<Option<u128>>(),
            plan in proptest::option::of(0..2_usize),
            ip in any::<IpAddr>(),
        ) {
            let subject = identifier();
            prop_assume!(user.as_deref().is_none_or(|user| subject.hash_address(user).is_none()));
            let mut who = ClientIdentity::new(ip);
            who.user = user.map(Into::into);
            who.token = token.map(Fingerprint);
            who.email = email.map(Fingerprint);
            who.plan = plan;
            let name = subject.format_key(&who, &spec);
            let Some(key) = subject.key(&who, &spec) else {
                prop_assert_eq!(name, "");
                return Ok(());
            };
            // A plan alone is no key that an operator can write.
            prop_assume!(!name.starts_with("plan="));
            let read = subject.parse_key(&name, &spec);
            let read = read.map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
            prop_assert_eq!(subject.format_key(&read, &spec), name.clone());
            prop_assert_eq!(subject.key(&read, &spec), Some(key), "{}", name);
            // Such characters would have to be escaped in the URL of the admin API.
            prop_assert!(!name.bytes().any(|byte| b"%?&+\\".contains(&byte)), "{}", name);
        }
    }
}
