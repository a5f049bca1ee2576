//! Keys of limits, and the networks around a client.

use super::*;

#[test]
fn keys_of_limits() {
    let all = identifier(settings(
        None,
        Some(token::TokenSource::Query("key".into())),
    ));
    let mut one = who(&all, CLIENT, &[]);
    let body = br#"{"email":"ann@example.com"}"#;
    all.set_identities_in_fields(
        &mut one,
        &Head::default(),
        (true, IdentitySet::default()),
        (body, true),
    );
    let mut other = one.clone();
    other.email = None;
    let ip_email = [Identity::Ip, Identity::Email];
    let key = |who: &ClientIdentity, parts: &[Identity]| all.key(who, &parts.into());
    assert_eq!(
        key(&one, &ip_email),
        key(&one, &[Identity::Email, Identity::Ip])
    );
    assert_ne!(key(&one, &ip_email), key(&other, &ip_email));
    assert_eq!(key(&other, &ip_email), key(&other, &[Identity::Ip]));
    assert_eq!(key(&other, &[Identity::Email]), None);
    assert_eq!(key(&other, &[Identity::User, Identity::Email]), None);
    let everyone = all.key(&one, &KeySpec::everyone());
    assert!(everyone.is_some());
    assert_eq!(everyone, all.key(&other, &KeySpec::everyone()));
    let email_or_ip = KeyPart::first_of(&[Identity::Email, Identity::Ip]).unwrap();
    let email_or_ip = KeySpec::new(vec![email_or_ip]);
    assert_eq!(all.key(&one, &email_or_ip), key(&one, &[Identity::Email]));
    assert_eq!(all.key(&other, &email_or_ip), key(&other, &[Identity::Ip]));
    let single_keys = Identity::BUILT_IN.map(|identity| all.single_identity_key(&one, identity));
    let known = single_keys
        .iter()
        .flatten()
        .collect::<std::collections::HashSet<_>>();
    assert_eq!((single_keys.iter().flatten().count(), known.len()), (4, 4));
    let mut neighbour = one.clone();
    neighbour.ip = "203.0.113.10".parse().unwrap();
    assert_ne!(
        all.single_identity_key(&one, Identity::Ip),
        all.single_identity_key(&neighbour, Identity::Ip)
    );
}

#[test]
fn networks_around_a_client() {
    let factors = |ip: &str, ipv6, parents| {
        let ip_settings = ip::Settings {
            ipv6,
            parents,
            ..ip::Settings::default()
        };
        let all = identifier(Settings {
            ip: ip_settings,
            ..Settings::default()
        });
        let parents = all.parents(&who(&all, ip, &[]));
        parents
            .iter()
            .map(|parent| parent.factor)
            .collect::<Vec<_>>()
    };
    assert_eq!(factors("2001:db8::1", 64, true), [4, 16, 256]);
    assert_eq!(factors("2001:db8::1", 56, true), [16, 256]);
    assert_eq!(factors("2001:db8::1", 32, true), [0; 0]);
    assert_eq!(factors("2001:db8::1", 64, false), [0; 0]);
    assert_eq!(factors(CLIENT, 64, true), [0; 0]);
    assert_eq!(factors("::ffff:203.0.113.9", 64, true), [0; 0]);

    let all = identifier(Settings::default());
    let keys = |ip: &str| all.parents(&who(&all, ip, &[])).map_keys();
    let (one, near, far) = (
        keys("2001:db8::1"),
        keys("2001:db8:0:1::1"),
        keys("2001:db8:1::1"),
    );
    assert_eq!(one, near);
    assert_eq!(
        (one[0] == far[0], one[1] == far[1], one[2] == far[2]),
        (false, false, true)
    );
}

/// Gateways of different versions share counters, so this may never change.
#[test]
fn keys_are_stable() {
    let all = identifier(settings(None, None));
    let mut one = who(&all, "2001:db8::1", &[]);
    one.user = Some("ann".into());
    let key = |parts: &[Identity]| {
        let key = all.key(&one, &parts.into());
        key.map(|key| format!("{:032x}", key.0))
    };
    assert_eq!(
        key(&[Identity::Ip]).as_deref(),
        Some("bea7cd0620b774e7e52a6afbedc866c9")
    );
    assert_eq!(
        key(&[Identity::Ip, Identity::User]).as_deref(),
        Some("0ed8a6a1dc7a8f64d2b221f9c07ef7ce")
    );
}

trait MapKeys {
    fn map_keys(&self) -> Vec<Fingerprint>;
}

impl MapKeys for SmallVec<[ParentNetwork; 3]> {
    fn map_keys(&self) -> Vec<Fingerprint> {
        self.iter().map(|parent| parent.key).collect()
    }
}
