//! What `check` says of the key of each limit: whether a client can choose it or leave it out, and the cure.

use std::path::Path;

use tollgate::policy;
use tollgate::policy::source::MemoryFiles;

const BY_TOKEN: &str = "{ token: { header: x-api-key }, email: { body: email } }";
const BY_JWT: &str =
    "{ token: { bearer: true }, user: { jwt: sub, secret: s }, plan: { jwt: plan } }";
const ANYONE: &str = "{ user: { jwt: sub, secret: s, unverified: anonymous } }";
const BY_KEY: &str =
    "{ token: { header: x-api-key }, user: { api_keys: k }, plan: { default: free } }";
const BY_HEADER: &str = "{ user: { header: x-user, from: [10.0.0.0/8] } }";
const NARROW: &str = "{ ip: { group: { ipv6: 128 }, parents: false } }";

/// `policy` is what stands beside `match` and `upstream`, `expected` what is said of the limit `few` and, where a
/// client passes it, the cure.
#[track_caller]
fn check(identity: &str, policy: &str, expected: (&str, Option<&str>)) {
    let gateway = format!(
        "listen: 127.0.0.1:0\nupstreams: {{ shop: http://127.0.0.1:9001 }}\n\
         plans: {{ free: {{ multiply: 1 }} }}\nidentity: {identity}\n"
    );
    let route = format!("match: /**\nupstream: shop\n{policy}\n");
    let files = [
        ("tollgate.yaml", &*gateway),
        ("policies/a.yaml", &*route),
        ("s", "0123456789abcdef0123456789abcdef"),
        ("k", "key: ann\n"),
    ];
    let loaded = policy::load_from(&MemoryFiles::new(files), Path::new("tollgate.yaml"));
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let (line, cure) = expected;
    let text = policy::describe(&loaded);
    assert!(text.contains(&format!("\n    {line}\n")), "{line}\n{text}");
    let notes: Vec<_> = loaded.warnings.iter().map(|note| &*note.message).collect();
    let cures: Vec<_> = loaded
        .warnings
        .iter()
        .filter_map(|note| note.help.as_deref())
        .collect();
    let described = policy::describe_json(&loaded);
    let few = &described["limits"].as_array().expect("limits")[0];
    assert_eq!(few["client"]["says"], line, "{few:#}");
    assert_eq!(few["client"]["passes"], cure.is_some(), "{few:#}");
    assert_eq!(cures, cure.into_iter().collect::<Vec<_>>(), "{notes:?}");
    if cure.is_some() {
        let message = format!("`few` does not hold on route `a`: {line}");
        assert_eq!(notes, [message]);
        assert_eq!(&*loaded.warnings[0].file, "policies/a.yaml");
    }
}

fn few(key: &str, more: &str) -> String {
    format!("limits: {{ few: {{ key: {key}, rate: 5/h }}{more} }}")
}

const BESIDE: &str = ", all: { key: ip, rate: 9/h }";

#[test]
fn addresses() {
    let held = ("a client cannot choose its key", None);
    check("{}", &few("ip", ""), held);
    let cure = "write `group: { ipv6: 64 }`, or drop `parents: false`";
    check(
        NARROW,
        &few("ip", ""),
        ("a client can choose another ip", Some(cure)),
    );
}

#[test]
fn users() {
    let cure = Some("add `require: user` to the policy, or a limit by ip beside it");
    for identity in [BY_JWT, BY_HEADER, BY_KEY] {
        let line = "requests without a user are not counted";
        check(identity, &few("user", ""), (line, cure));
        let line = "requests without a user are counted by `all` only";
        check(identity, &few("user", BESIDE), (line, None));
        let required = format!("require: user\n{}", few("user", ""));
        let line = "a client cannot choose its key; without a user it gets 401";
        check(identity, &required, (line, None));
        let line = "a client cannot choose its key; without a user it is counted by ip";
        check(identity, &few("[user, ip]", ""), (line, None));
    }
    let line = "requests without a user, or with one that does not verify, are not counted";
    check(ANYONE, &few("user", ""), (line, cure));
    // What counts something else, or refuses nothing, does not hold beside it.
    let line = "requests without a user are not counted";
    for beside in [
        ", all: { key: ip, rate: 9/h, mode: shadow }",
        ", all: { key: ip, rate: 9/h, count: status 401 }",
        ", all: { key: ip, concurrent: 9 }",
    ] {
        check(BY_JWT, &few("user", beside), (line, cure));
    }
}

#[test]
fn tokens() {
    let cure = Some("add a limit by ip beside it");
    let line = "a client can choose another token or leave it out";
    check(BY_TOKEN, &few("token", ""), (line, cure));
    let line = "a client can choose another token";
    let required = format!("require: token\n{}", few("token", ""));
    check(BY_TOKEN, &required, (line, cure));
    check(BY_TOKEN, &few("[ip, token]", ""), (line, cure));
    let line = "a client can choose another token; `all` counts it all the same";
    check(BY_TOKEN, &few("[ip, token]", BESIDE), (line, None));
    // Verified with the user.
    let cure = Some("add `require: token` to the policy, or a limit by ip beside it");
    let line = "requests without a token are not counted";
    check(BY_JWT, &few("token", ""), (line, cure));
    check(BY_KEY, &few("token", ""), (line, cure));
}

#[test]
fn emails_and_plans() {
    let cure = Some("add `require: email` to the policy");
    let line = "a client can choose another email or leave it out";
    check(BY_TOKEN, &few("email", ""), (line, cure));
    let line = "a client can choose another email or leave it out; `all` counts it all the same";
    check(BY_TOKEN, &few("email", BESIDE), (line, cure));
    let line = "a client can choose another email";
    let required = format!("require: email\n{}", few("email", ""));
    check(BY_TOKEN, &required, (line, None));
    let line = "requests without a plan are not counted";
    let cure = Some("add `default` to `plan`, or a limit by ip beside it");
    check(BY_JWT, &few("plan", ""), (line, cure));
    check(
        BY_KEY,
        &few("plan", ""),
        ("a client cannot choose its key", None),
    );
}
