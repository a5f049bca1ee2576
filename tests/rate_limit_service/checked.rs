//! What a check says of files that have policies of descriptors.

use tollgate::policy;

use super::common::assert_contains;
use super::write;

const PER_ADDRESS: &str =
    "domain: edge\nentries: { remote_address: any }\nlimits: { per-ip: { key: ip, rate: 1/s } }\n";

/// The warnings of a check, and its whole text.
fn check(gateway: &str, policies: &[(&str, &str)]) -> (Vec<String>, String) {
    let folder = write(gateway, &[]);
    for (name, text) in policies {
        let path = folder.path().join(format!("policies/{name}.yaml"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let loaded = policy::load(&folder.path().join("tollgate.yaml"));
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let warnings = loaded.warnings.iter();
    let warnings = warnings.map(|warning| {
        let file = warning.file.rsplit('/').next().unwrap();
        format!("{file}:{}: {}", warning.line, warning.message)
    });
    (warnings.collect(), policy::describe(&loaded))
}

const LISTS: &str =
    "lists of clients do not hold for descriptors, and policies with `domain` are below this one";

#[test]
fn lists_of_clients_are_neither_shown_at_descriptors_nor_hold_there() {
    let lists = "deny: { user: [mallory], ip: [203.0.113.0/24] }\nidentity: { user: { header: x-user, from: [10.0.0.0/8] } }\n";
    let door = "decide: { grpc: 127.0.0.1:0 }\n";
    let of_folder = "deny: { ip: [198.51.100.0/24] }\n";
    let policies = [
        ("edge/address", PER_ADDRESS),
        ("edge/_defaults", of_folder),
        ("web/_defaults", of_folder),
        ("web/all", "match: /**\nrespond: { status: 204 }\n"),
    ];
    let both = format!("listen: 127.0.0.1:0\nupstreams: {{ up: http://127.0.0.1:9 }}\n{door}");
    let (warnings, text) = check(&format!("{lists}{both}"), &policies);
    let of_lists = |warnings: &[String]| -> Vec<String> {
        let about_lists = warnings.iter().filter(|text| text.contains("lists of"));
        about_lists.cloned().collect()
    };
    assert_eq!(of_lists(&warnings), [format!("tollgate.yaml:2: {LISTS}")]);
    let (_, of_edge) = text.split_once("edge(remote_address)").unwrap();
    let (of_edge, _) = of_edge.split_once("\n\n").unwrap();
    assert!(!of_edge.contains("denies"), "{text}");
    assert_contains(&text, &["on every request:\n  denies", "198.51.100.0/24"]);
    // Without lists of the gateway file that of the folder is named.
    let (warnings, _) = check(&both, &policies);
    assert_eq!(of_lists(&warnings), [format!("_defaults.yaml:1: {LISTS}")]);
    // If nothing but descriptors is asked about, nothing is denied at all.
    let (warnings, text) = check(&format!("{lists}{door}"), &policies[..2]);
    assert_eq!(of_lists(&warnings).len(), 1, "{warnings:?}");
    assert!(!text.contains("denies"), "{text}");
    let (warnings, _) = check(&both, &policies[2..]);
    assert_eq!(of_lists(&warnings), [""; 0]);
}

#[test]
fn limits_that_only_descriptors_could_have_are_warned_of() {
    let nothing = |place: &str, name: &str| {
        format!(
            "{place}: nothing is counted by `{name}`: only descriptors could be, and no policy with `domain` lists it"
        )
    };
    let door = "decide: { grpc: 127.0.0.1:0 }\nlimits: { g: { key: everyone, rate: 2/h }, l: { key: ip, rate: 2/h, routes: listed } }\n";
    let of_folder = "limits: { f: { key: everyone, rate: 2/h } }\n";
    let folder = [("edge/address", PER_ADDRESS), ("edge/_defaults", of_folder)];
    let (warnings, _) = check(door, &folder);
    let mut expected = [
        nothing("tollgate.yaml:3", "g"),
        nothing("tollgate.yaml:3", "l"),
        nothing("_defaults.yaml:1", "f"),
    ];
    expected.sort();
    let mut sorted = warnings;
    sorted.sort();
    assert_eq!(sorted, expected);
    let lists_all = "domain: edge\nentries: { remote_address: any }\nlimits: [g, l, f]\n";
    let (warnings, _) = check(door, &[("edge/address", lists_all), folder[1]]);
    assert_eq!(warnings, [""; 0]);
    // The gateway file's limits hold for requests, but those of a folder of descriptors still do not.
    let both = format!("listen: 127.0.0.1:0\nupstreams: {{ up: http://127.0.0.1:9 }}\n{door}");
    let web = ("web", "match: /**\nrespond: { status: 204 }\nlimits: [l]\n");
    let (warnings, _) = check(&both, &[folder[0], folder[1], web]);
    let about_limits: Vec<&String> = warnings
        .iter()
        .filter(|text| text.contains("nothing is counted"))
        .collect();
    assert_eq!(about_limits, [&nothing("_defaults.yaml:1", "f")]);
}

#[test]
fn addresses_that_anyone_may_reach_are_warned_of() {
    for (address, is_open) in [
        ("0.0.0.0:8081", true),
        ("\"[::]:8081\"", true),
        ("127.0.0.1:8081", false),
        ("unix:/tmp/tollgate-check.sock", false),
    ] {
        let (warnings, _) = check(
            &format!("decide: {{ grpc: {address} }}\n"),
            &[("address", PER_ADDRESS)],
        );
        let open = warnings
            .iter()
            .filter(|text| text.contains("whoever can connect may ask"));
        assert_eq!(open.count(), usize::from(is_open), "{warnings:?}");
        assert_eq!(warnings.len(), usize::from(is_open), "{warnings:?}");
    }
}
