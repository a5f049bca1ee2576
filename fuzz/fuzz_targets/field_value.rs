//! Whatever the value of a changed field says and whatever it names, it becomes one field without a control character, and
//! no other field changes. Different users never look the same.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tollgate::http::head::Fields;
use tollgate::identity::ClientIdentity;
use tollgate::policy::source::MemoryFiles;
use tollgate::policy::{Ruleset, load_from};
use tollgate::serve::stack::changed_fields::{NamedValues, change_request};

const GATEWAY: &str = "listen: 127.0.0.1:8080
upstreams: { shop: http://127.0.0.1:9001 }
identity: { user: { header: x-user, from: [10.0.0.0/8] } }
";

fuzz_target!(|text: &str| {
    // A form feed parts the value from the user.
    let (template, user) = text.split_once('\u{c}').unwrap_or((text, "alice"));
    // In single quotes of YAML only a quote must be written in another way.
    let value = template.replace('\'', "''");
    let policy =
        format!("match: /**\nupstream: shop\nrequest: {{ set: {{ x-a: '{value}' }} }}\n");
    let files = MemoryFiles::new([("tollgate.yaml", GATEWAY), ("policies/api.yaml", &policy)]);
    let ruleset = match load_from(&files, Path::new("tollgate.yaml")) {
        Ok(loaded) => loaded.ruleset,
        Err(report) => {
            assert!(!report.diagnostics.is_empty());
            let said = report.to_string();
            return assert!(!said.chars().any(|c| c.is_control() && c != '\n'));
        }
    };
    let value = changed_value(&ruleset, user);
    let names_user = template.replace("$$", "").contains("${user}");
    assert!(!value.is_empty() || names_user && user.is_empty());
    let other = format!("{user}x");
    assert_eq!(value != changed_value(&ruleset, &other), names_user);
});

/// The value that the field gets for this user.
fn changed_value(ruleset: &Ruleset, user: &str) -> Vec<u8> {
    let mut client = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
    client.user = Some(user.into());
    let route = &ruleset.routes[0];
    let values = NamedValues {
        client: Some(&client),
        host: Some("shop.example"),
        route_name: &route.name,
        ruleset,
        request_id: None,
        peer: None,
    };
    let mut fields = Fields::default();
    for (name, value) in [("accept", "a"), ("x-a", "forged"), ("X_A", "forged"), ("cookie", "b")] {
        fields.add(name, value.as_bytes());
    }
    let changes = route.request_changes.as_ref().expect("the policy has one");
    change_request(&mut fields, changes, &values);
    let fields: Vec<_> = fields.iter().collect();
    let [(b"accept", b"a"), (b"cookie", b"b"), (b"x-a", value)] = fields[..] else {
        panic!("{fields:?}");
    };
    assert!(value.iter().all(|byte| matches!(byte, b' '..=b'~')));
    value.to_vec()
}
