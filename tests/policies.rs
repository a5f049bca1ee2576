//! What the loader makes of files: the samples that ship, the contract's own, and broken ones whose
//! every message is written down.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "policies/filled.rs"]
mod filled;
#[path = "policies/folders.rs"]
mod folders;
#[path = "policies/guides.rs"]
mod guides;
#[path = "policies/keys.rs"]
mod keys;
#[path = "policies/secrets.rs"]
mod secrets;

use std::fs;
use std::path::{Path, PathBuf};

use common::certificate::Certificate;
use common::mangling::mangle;
use proptest::prelude::*;
use tollgate::limit::Identity;
use tollgate::policy;
use tollgate::policy::source::MemoryFiles;

/// The directories under `tests/golden/broken`, sorted.
fn broken() -> Vec<PathBuf> {
    let folder = fs::read_dir("tests/golden/broken").expect("the folder is there");
    let mut cases: Vec<PathBuf> = folder.map(|entry| entry.expect("entry").path()).collect();
    cases.sort();
    cases
}

/// Messages as they are written down: with paths as if the case's folder were the current one.
fn messages(case: &Path) -> String {
    let report = match policy::load(&case.join("tollgate.yaml")) {
        Ok(_) => return String::from("no mistakes\n"),
        Err(report) => report.to_string(),
    };
    report.replace(&format!("{}/", case.display()), "")
}

/// `UPDATE_GOLDEN=1 cargo test --test policies` writes what is said now; look at the difference.
#[test]
fn broken_files_are_told_word_for_word() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let cases = broken();
    assert!(cases.len() >= 65, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let said = messages(case);
        let path = case.join("expected.txt");
        if update {
            fs::write(&path, &said).expect("written");
            continue;
        }
        if fs::read_to_string(&path).unwrap_or_default() != said {
            wrong.push(format!("=== {}\n{said}", case.display()));
        }
        assert!(
            !said.contains('\u{1b}'),
            "{}: no escape reaches the terminal",
            case.display()
        );
        assert!(said.contains("mistake"), "{} is broken", case.display());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What editors are given; `UPDATE_GOLDEN=1` writes it.
#[test]
fn schemas_are_as_published() {
    for (name, schema) in [
        ("gateway", policy::schema::gateway_schema()),
        ("policy", policy::schema::policy_schema()),
        ("defaults", policy::schema::defaults_schema()),
    ] {
        let text = format!("{schema:#}\n");
        let path = format!("tests/golden/schema/{name}.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).expect("written");
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == text,
            "{path} is not what is made"
        );
    }
}

/// What readers are given; `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_reference_is_as_published() {
    let (path, text) = ("docs/reference.md", policy::reference::reference_markdown());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, &text).expect("written");
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == text,
        "{path} is not what is made"
    );
}

#[test]
fn samples_run_as_they_are() {
    let loaded =
        policy::load(Path::new("tollgate.yaml")).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings, [], "the samples are above reproach");
    // One policy has two matches.
    let policies = fs::read_dir("policies").unwrap().count() - 1;
    assert_eq!(loaded.ruleset.routes.len(), policies + 1);
    let shared: Vec<_> = loaded
        .ruleset
        .rules
        .iter()
        .filter(|rule| rule.name.as_str() == "link-changes")
        .collect();
    assert_eq!(shared.len(), 1, "two routes share one counter");
    let said = policy::describe(&loaded);
    for route in &loaded.ruleset.routes {
        assert!(said.contains(&format!("\n{}: ", route.name)), "{said}");
    }
    assert!(
        said.contains("by user, 600/m, hard, sliding-log, for plan gold"),
        "{said}"
    );
}

/// Clients choose their bodies, so a limit by email alone holds only where an email must be there.
#[test]
fn samples_require_the_email_that_they_count_by() {
    let loaded =
        policy::load(Path::new("tollgate.yaml")).unwrap_or_else(|report| panic!("{report}"));
    let mut seen = 0;
    for route in &loaded.ruleset.routes {
        for rule in route
            .rules
            .iter()
            .filter(|r| r.key.is_only(Identity::Email))
        {
            seen += 1;
            let required = route.require.contains(&Identity::Email);
            assert!(required, "{} of {}", rule.name, route.name);
        }
    }
    assert_eq!(seen, 2);
}

/// The blocks of YAML on a page.
fn yaml_blocks(page: &str) -> Vec<&str> {
    let starts = page.split("```yaml\n").skip(1);
    starts
        .map(|rest| rest.split("```").next().expect("an end"))
        .collect()
}

#[test]
fn every_block_of_the_readme_loads() {
    let page = fs::read_to_string("README.md").expect("a README");
    let blocks = yaml_blocks(&page);
    let (gateways, policies): (Vec<&str>, Vec<&str>) = blocks
        .iter()
        .partition(|block| block.starts_with("version:"));
    assert_eq!((gateways.len(), policies.len()), (1, 2), "{blocks:#?}");
    let names: Vec<String> = (0..policies.len())
        .map(|number| format!("policies/{number}.yaml"))
        .collect();
    let files = names.iter().map(String::as_str).zip(policies);
    let memory = MemoryFiles::new(files.chain([("tollgate.yaml", gateways[0])]));
    let loaded = policy::load_from(&memory, Path::new("tollgate.yaml"))
        .unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.ruleset.routes.len(), 2);
}

#[test]
fn the_readme_shows_the_quick_start_as_it_ships() {
    let page = fs::read_to_string("README.md").expect("a README");
    let mut shown = yaml_blocks(&page);
    let names = ["tollgate.yaml", "policies/api.yaml", "policies/login.yaml"];
    for name in names {
        let path = format!("examples/quickstart/{name}");
        let text = fs::read_to_string(&path).expect(&path);
        let place = shown.iter().position(|block| *block == text);
        shown.remove(place.unwrap_or_else(|| panic!("{path} is not shown")));
        assert!(page.contains(&format!("`{name}`")), "{name} is not named");
    }
    assert!(shown.is_empty(), "no file ships this: {shown:#?}");
    for verb in ["check", "run"] {
        let line = format!("{verb} --config examples/quickstart/tollgate.yaml");
        assert!(page.contains(&line), "{line}");
    }
}

/// The contract's files, with a certificate.
fn contract() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let to = |name: &str| folder.path().join(name);
    fs::create_dir(to("policies")).expect("a folder in it");
    for name in [
        "tollgate.yaml",
        "jwks.json",
        "policies/api.yaml",
        "policies/login.yaml",
        "policies/analytics.yaml",
    ] {
        fs::copy(Path::new("tests/golden/product").join(name), to(name)).expect(name);
    }
    let made = Certificate::of(&["localhost"]);
    fs::write(to("cert.pem"), made.pem).expect("cert.pem");
    fs::write(to("key.pem"), made.key).expect("key.pem");
    folder
}

#[test]
fn the_contract_loads_as_written() {
    let folder = contract();
    let path = &folder.path().join("tollgate.yaml");
    let loaded = policy::load(path).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.ruleset.routes.len(), 3);
    let tls: Vec<bool> = loaded.process.listen.iter().map(|l| l.tls).collect();
    assert_eq!(tls, [false, true]);
    let policy::CertificateSource::Files(certificate) =
        &loaded.ruleset.listeners[1].certificates[0]
    else {
        panic!("{:?}", loaded.ruleset.listeners);
    };
    assert_eq!(certificate.names, ["localhost"]);
}

/// Loads a gateway file and policies from memory.
fn load(
    gateway: &str,
    policies: &[(&str, &str)],
) -> Result<policy::LoadedConfig, policy::DiagnosticReport> {
    let gateway =
        format!("listen: 127.0.0.1:0\nupstreams: {{ shop: http://127.0.0.1:9001 }}\n{gateway}");
    let files = policies
        .iter()
        .copied()
        .chain([("tollgate.yaml", gateway.as_str())]);
    policy::load_from(&MemoryFiles::new(files), Path::new("tollgate.yaml"))
}

#[test]
fn what_shares_a_counter() {
    let gateway = "limits:
  everywhere: { key: ip, rate: 1/s }
  each: { key: ip, rate: 1/s, routes: each }
  some: { key: ip, rate: 1/s, routes: listed }
  apart: { key: ip, rate: 1/s, routes: each-listed }
";
    let own = "match: /a/**\nupstream: shop\nlimits:\n  some: ~\n  own: { key: ip, rate: 1/s }\n";
    let other = "match: /b/**\nupstream: shop\nlimits:\n  own: { key: ip, rate: 1/s }\n";
    let third = "match: /c/**\nupstream: shop\nlimits: [some, apart, everywhere]\n";
    let policies = [
        ("policies/a.yaml", own),
        ("policies/b.yaml", other),
        ("policies/c.yaml", third),
    ];
    let loaded = load(gateway, &policies).unwrap_or_else(|report| panic!("{report}"));
    let scopes: Vec<Vec<&str>> = loaded
        .ruleset
        .routes
        .iter()
        .map(|route| route.rules.iter().map(|rule| rule.scope.as_str()).collect())
        .collect();
    let expected = [
        vec!["everywhere", "a/each", "some", "a/own"],
        vec!["everywhere", "b/each", "b/own"],
        vec!["everywhere", "c/each", "some", "c/apart"],
    ];
    assert_eq!(scopes, expected);
    for (index, rule) in loaded.ruleset.rules.iter().enumerate() {
        assert_eq!(rule.index, index);
    }
}

/// Another spelling of a path passes its limits where the upstream folds it and the gateway does not.
#[test]
fn limited_routes_with_a_broader_one_beside_them_are_named() {
    let policies = [
        (
            "policies/login.yaml",
            "match: POST /login\nupstream: shop\nlimits: { l: { key: ip, rate: 5/15m } }\n",
        ),
        ("policies/rest.yaml", "match: /**\nupstream: shop\n"),
        ("policies/health.yaml", "match: /health\nupstream: shop\n"),
    ];
    let spellings = "other spellings of its path (case, formats, what follows a script)";
    for (gateway, note) in [
        ("", format!("  takes {spellings} too, before rest")),
        ("paths: exact\n", format!("  leaves {spellings} to rest")),
    ] {
        let loaded = load(gateway, &policies).unwrap_or_else(|report| panic!("{report}"));
        let text = policy::describe(&loaded);
        let named = format!("login: POST /login to shop\n{note}\n");
        assert!(text.contains(&named), "{text}");
        assert_eq!(text.matches(spellings).count(), 1, "{text}");
        let described = policy::describe_json(&loaded);
        let broader = described["routes"].as_array().unwrap().iter();
        let broader = broader.map(|route| route["broader"].as_str());
        assert_eq!(broader.collect::<Vec<_>>(), [None, Some("rest"), None]);
    }
}

/// A client chooses the host that it names, and many upstreams do not look at it.
#[test]
fn limits_of_one_host_beside_a_route_of_all_are_named() {
    let login = |host: &str| {
        format!(
            "{host}match: POST /login\nupstream: shop\nlimits: {{ l: {{ key: ip, rate: 5/15m }} }}\n"
        )
    };
    let rest = "match: /**\nupstream: shop\n";
    for (host, rest, named) in [
        ("host: a.com\n", rest, 1),
        ("host: \"*.a.com\"\n", rest, 1),
        ("", rest, 0),
        (
            "host: a.com\n",
            "host: b.com\nmatch: /**\nupstream: shop\n",
            0,
        ),
    ] {
        let login = login(host);
        let policies = [
            ("policies/login.yaml", &*login),
            ("policies/rest.yaml", rest),
        ];
        let loaded = load("", &policies).unwrap_or_else(|report| panic!("{report}"));
        let text = policy::describe(&loaded);
        let note =
            "holds for its host only: with another `Host` a client reaches shop through rest";
        assert_eq!(text.matches(note).count(), named, "{text}");
    }
}

#[test]
fn routes_whose_bodies_are_searched_for_a_method_are_named() {
    let policies = [
        (
            "policies/put.yaml",
            "match: PUT /photos\nupstream: shop\nlimits: { l: { key: ip, rate: 5/15m } }\n",
        ),
        (
            "policies/post.yaml",
            "match: POST /photos\nupstream: shop\n",
        ),
        ("policies/rest.yaml", "match: GET /**\nupstream: shop\n"),
        (
            "policies/login.yaml",
            "match: POST /login\nupstream: shop\nlimits: { l: { key: ip, rate: 5/15m } }\n",
        ),
    ];
    for (gateway, named) in [("", 1), ("paths: exact\n", 0)] {
        let loaded = load(gateway, &policies).unwrap_or_else(|report| panic!("{report}"));
        let text = policy::describe(&loaded);
        let note = "post: POST /photos to shop\n  counts a POST whose body is coded or longer than 1 MiB by";
        assert_eq!(text.matches(note).count(), named, "{text}");
        assert_eq!(text.matches("`_method`").count(), 2 * named, "{text}");
    }
}

#[test]
fn what_is_not_said_has_a_default() {
    let policies = [("policies/a.yaml", "match: /**\nupstream: shop\n")];
    let loaded = load("", &policies).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.process.admin, Some(([127, 0, 0, 1], 9900).into()));
    assert_eq!(loaded.process.store_budget, 256 * 1024 * 1024);
    assert!(loaded.process.workers >= 1);
    assert_eq!(loaded.ruleset.timeouts.first_byte.as_secs(), 60);
    assert_eq!(loaded.ruleset.upstreams[0].connect_timeout.as_secs(), 2);
    let off = load("admin: off\n", &policies).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(off.process.admin, None);
}

#[test]
fn keys_of_users_are_neither_kept_nor_shown() {
    let gateway = "identity: { user: { api_keys: keys.yaml } }\n";
    let policies = [
        ("policies/a.yaml", "match: /**\nupstream: shop\n"),
        ("keys.yaml", "sesame-1: alice\nsesame-2: { user: bob }\n"),
    ];
    let loaded = load(gateway, &policies).unwrap_or_else(|report| panic!("{report}"));
    assert!(!format!("{:?}", loaded.ruleset).contains("sesame"));
    let wrong = [
        "sesame-1: [x]\n",
        "sesame-1: a\nsesame-1: b\n",
        "sesame-1: {\n",
        "sesame-1\n",
    ];
    for keys in wrong {
        let report = load(gateway, &[policies[0], ("keys.yaml", keys)]).expect_err(keys);
        assert!(!report.to_string().contains("sesame"), "{report}");
    }
}

proptest! {
    /// Never a panic, and what is said can be printed.
    #[test]
    fn mangled_samples(
        file in 0..SAMPLES.len(),
        edits in prop::collection::vec((0.0..1.0, 0.0..1.0, 0usize..12, "[ -~\n\té]{0,4}"), 1..4),
    ) {
        let mangled = mangle(SAMPLES[file].1, &edits);
        let files = SAMPLES.iter().enumerate().map(|(index, (name, text))| {
            (*name, if index == file { mangled.as_str() } else { *text })
        });
        match policy::load_from(&MemoryFiles::new(files), Path::new("tollgate.yaml")) {
            Ok(loaded) => prop_assert!(!policy::describe(&loaded).is_empty()),
            Err(report) => {
                let said = report.to_string();
                prop_assert!(!report.diagnostics.is_empty());
                prop_assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{}", said);
            }
        }
    }
}

const SAMPLES: [(&str, &str); 5] = [
    ("tollgate.yaml", include_str!("../tollgate.yaml")),
    (
        "examples/identity/jwks.json",
        include_str!("../examples/identity/jwks.json"),
    ),
    (
        "policies/login.yaml",
        include_str!("../policies/login.yaml"),
    ),
    (
        "policies/tiers.yaml",
        include_str!("../policies/tiers.yaml"),
    ),
    (
        "policies/analytics.yaml",
        include_str!("golden/product/policies/analytics.yaml"),
    ),
];
