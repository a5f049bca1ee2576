//! Keys of limits, and the networks around a client.

use super::*;

#[test]
fn keys_of_limits() {
    let all = identifier(settings(
        None,
        Some(token::TokenSource::Query("key".into())),
    ));
    let mut client = identify(&all, CLIENT, &[]);
    let body = br#"{"email":"ann@example.com"}"#;
    all.set_identities_in_fields(
        &mut client,
        &Head::default(),
        email_only(),
        BufferedBody::whole(body),
    );
    let mut without_email = client.clone();
    without_email.email = None;
    let ip_email = [Identity::Ip, Identity::Email];
    let key = |client: &ClientIdentity, parts: &[Identity]| all.key(client, &parts.into());
    assert_eq!(
        key(&client, &ip_email),
        key(&client, &[Identity::Email, Identity::Ip])
    );
    assert_ne!(key(&client, &ip_email), key(&without_email, &ip_email));
    assert_eq!(
        key(&without_email, &ip_email),
        key(&without_email, &[Identity::Ip])
    );
    assert_eq!(key(&without_email, &[Identity::Email]), None);
    assert_eq!(
        key(&without_email, &[Identity::User, Identity::Email]),
        None
    );
    let everyone = all.key(&client, &KeySpec::everyone());
    assert!(everyone.is_some());
    assert_eq!(everyone, all.key(&without_email, &KeySpec::everyone()));
    let email_or_ip = KeyPart::first_of(&[Identity::Email, Identity::Ip]).unwrap();
    let email_or_ip = KeySpec::new(vec![email_or_ip]);
    assert_eq!(
        all.key(&client, &email_or_ip),
        key(&client, &[Identity::Email])
    );
    assert_eq!(
        all.key(&without_email, &email_or_ip),
        key(&without_email, &[Identity::Ip])
    );
    let single_keys = Identity::BUILT_IN.map(|identity| all.single_identity_key(&client, identity));
    let distinct_keys = single_keys
        .iter()
        .flatten()
        .collect::<std::collections::HashSet<_>>();
    assert_eq!(
        (single_keys.iter().flatten().count(), distinct_keys.len()),
        (4, 4)
    );
    let mut neighbour = client.clone();
    neighbour.ip = "203.0.113.10".parse().unwrap();
    assert_ne!(
        all.single_identity_key(&client, Identity::Ip),
        all.single_identity_key(&neighbour, Identity::Ip)
    );
}

#[test]
fn networks_around_a_client() {
    let factors = |ip: &str, ipv6_prefix_length, has_parent_budgets| {
        let ip_settings = ip::Settings {
            ipv6_prefix_length,
            has_parent_budgets,
            ..ip::Settings::default()
        };
        let all = identifier(Settings {
            ip: ip_settings,
            ..Settings::default()
        });
        let parents = all.parent_networks(&identify(&all, ip, &[]));
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
    let parent_keys = |ip: &str| {
        let parents = all.parent_networks(&identify(&all, ip, &[]));
        parents.iter().map(|parent| parent.key).collect::<Vec<_>>()
    };
    let keys = parent_keys("2001:db8::1");
    assert_eq!(keys, parent_keys("2001:db8:0:1::1"));
    let keys_of_next_48 = parent_keys("2001:db8:1::1");
    let are_equal = [0, 1, 2].map(|index| keys[index] == keys_of_next_48[index]);
    assert_eq!(are_equal, [false, false, true]);
}

/// Gateways of different versions share counters, so this may never change.
#[test]
fn keys_are_stable() {
    let all = identifier(settings(None, None));
    let mut client = identify(&all, "2001:db8::1", &[]);
    client.user = Some("ann".into());
    let key = |parts: &[Identity]| {
        let key = all.key(&client, &parts.into());
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
