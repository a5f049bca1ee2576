//! `${env:NAME}` and `${file:PATH}`: what is filled in, and that nobody sees it.

use std::path::Path;

use tollgate::policy::source::{Files, FolderListing, MemoryFiles};
use tollgate::policy::{self, DiagnosticReport, LoadedConfig};
use tollgate::store::shared::Backend;

/// With blanks around it, and with characters that mean something in a URL.
const SECRET: &str = "sesame/open:me@100%";

struct Machine(MemoryFiles);

impl Machine {
    fn new(gateway: &str) -> Machine {
        let route = "match: /**\nupstream: shop\n";
        Machine(MemoryFiles::new([
            ("tollgate.yaml", gateway),
            ("policies/a.yaml", route),
            ("secrets/redis", &format!(" {SECRET}\r\n\n")),
            ("long", "0123456789abcdef0123456789abcdef"),
            ("name", "long"),
        ]))
    }

    fn load(&self) -> Result<LoadedConfig, DiagnosticReport> {
        policy::load_from(self, Path::new("tollgate.yaml"))
    }
}

impl Files for Machine {
    fn read(&self, path: &Path, most: usize) -> Result<Vec<u8>, String> {
        self.0.read(path, most)
    }

    fn environment_variable(&self, name: &str) -> Option<String> {
        let value = match name {
            "PORT" => "8081",
            "HOST" => "shop.internal",
            "WORKERS" => "3",
            "YES" => "true",
            "EMPTY" => "",
            "LINES" => "one\ntwo",
            "SECRET" => SECRET,
            "WORD" => "upstreams",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn list(&self, folder: &Path) -> Result<FolderListing, String> {
        self.0.list(folder)
    }
}

#[track_caller]
fn load(gateway: &str) -> LoadedConfig {
    let loaded = Machine::new(gateway).load();
    loaded.unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn any_value_of_the_gateway_file_is_filled_in() {
    let loaded = load(
        "version: 1\nworkers: ${env:WORKERS}\nlisten: \"127.0.0.1:${env:PORT}\"\n\
         upstreams: { shop: [\"http://${env:HOST}:${env:PORT}\"] }\n\
         identity: { token: { bearer: \"${env:YES}\" } }\n\
         limits: { a: { key: ip, rate: \"${env:WORKERS}/m\" } }\n\
         admin: { address: 127.0.0.1:0, token_file: \"${file:name}\" }\n\
         record: { push: [{ to: otlp, url: https://a:4318/v1/metrics, labels: { is: \"a$$b $ c$1\" } }] }\n",
    );
    let (process, ruleset) = (&loaded.process, &loaded.ruleset);
    assert_eq!(process.workers, 3);
    assert_eq!(process.listen[0].address.to_string(), "127.0.0.1:8081");
    let server = &ruleset.upstreams[0].servers[0];
    assert_eq!(server.location.to_string(), "shop.internal:8081");
    assert!(ruleset.operators.is_some());
    assert_eq!(process.push[0].labels[0].1, "a$b $ c$1");
}

#[test]
fn a_password_means_nothing_in_its_address() {
    for (user, store) in [
        (
            "tollgate",
            "store: redis://tollgate:${file:secrets/redis}@127.0.0.5:6379/2\n",
        ),
        (
            "tollgate",
            "store: redis://tollgate:${env:SECRET}@127.0.0.5:6379/2\n",
        ),
        (
            "tollgate",
            "store: { address: redis://tollgate@127.0.0.5:6379/2, password_file: secrets/redis }\n",
        ),
        // The path of a file is no part of the URL.
        (
            SECRET,
            "store: redis://${env:SECRET}:${file:secrets/redis}@127.0.0.5:6379/2\n",
        ),
        (
            SECRET,
            "store: redis://${file:secrets/redis}:${env:SECRET}@127.0.0.5:6379/2\n",
        ),
    ] {
        let loaded = load(&format!("{USUAL}{store}"));
        let Some(Backend::Redis(redis)) = loaded.process.shared.map(|shared| shared.backend) else {
            panic!("{store}");
        };
        assert_eq!(redis.address.user.as_deref(), Some(user), "{store}");
        assert_eq!(redis.address.password.as_deref(), Some(SECRET), "{store}");
        assert_eq!(redis.address.hosts, [("127.0.0.5".to_owned(), 6379)]);
        assert_eq!(redis.address.database, 2);
    }
}

const USUAL: &str = "listen: 127.0.0.1:0\nupstreams: { shop: http://127.0.0.1:9001 }\n";

/// A reload follows the file that is filled in.
#[test]
fn a_changed_file_is_a_changed_configuration() {
    let mut machine = Machine::new(&format!(
        "{USUAL}store: redis://:${{file:secrets/redis}}@a:1\n"
    ));
    let before = machine.load().expect("sound").fingerprint;
    assert_eq!(machine.load().expect("sound").fingerprint, before);
    let secret = Path::new("secrets/redis").to_owned();
    machine.0.0.insert(secret, b"another".to_vec());
    assert_ne!(machine.load().expect("sound").fingerprint, before);
}

#[test]
fn what_cannot_be_filled_in_is_a_mistake() {
    for (reference, says) in [
        ("${env:NOT_SET}", "has no variable `NOT_SET`"),
        ("${env:EMPTY}", "`EMPTY` of the environment is empty"),
        ("${env:LINES}", "is not one line of text"),
        (
            "${file:missing}",
            "cannot read `missing`: it does not exist",
        ),
        ("${PORT}", "write `${env:PORT}`"),
        ("$PORT", "write `${env:PORT}`"),
        ("${}", "write `${env:NAME}`"),
        ("${env:PORT", "`${` has no `}`"),
        ("${ENV:PORT}", "`${ENV:PORT}` is not filled in"),
    ] {
        let gateway = format!("{USUAL}store: \"redis://:{reference}@a:1\"\n");
        let report = Machine::new(&gateway).load().expect_err(reference);
        let said = report.to_string();
        assert!(said.contains(says), "{reference}: {said}");
        assert!(said.ends_with("1 mistake\n"), "{reference}: {said}");
        assert!(said.contains("tollgate.yaml:3:"), "{reference}: {said}");
    }
}

/// All that operators get to read of a configuration, or of its mistakes.
fn all_said(loaded: &Result<LoadedConfig, DiagnosticReport>) -> String {
    match loaded {
        Ok(loaded) => {
            let files = loaded.ruleset.files.iter().map(|(_, text)| text.as_str());
            let files: String = files.collect();
            format!(
                "{files}{}{}{:?}{:?}{:?}",
                policy::describe(loaded),
                policy::describe_json(loaded),
                loaded.warnings,
                loaded.process.push,
                loaded.filled,
            )
        }
        Err(report) => format!("{report}{:#}", report.to_json()),
    }
}

/// A password may be a word of the messages.
#[test]
fn a_word_that_is_filled_in_is_hidden_only_in_its_place() {
    let store = "store: redis://:${env:WORD}@a:1\nupstreens: 1\n";
    let report = Machine::new(&format!("{USUAL}{store}")).load();
    let said = report.expect_err("a field is unknown").to_string();
    assert!(said.contains("did you mean `upstreams`?"), "{said}");
    let policies = "policies: ${env:WORD}\n";
    let report = Machine::new(&format!("{USUAL}{policies}")).load();
    let said = report.expect_err("there is no such folder").to_string();
    assert!(said.contains("folder `${env:WORD}`"), "{said}");
}

/// Wherever it stands, and whether it fits there or not.
#[test]
fn what_is_filled_in_is_never_shown() {
    let fields = [
        r#"store: "redis://:@@@a:1""#,
        r#"store: { address: "redis://@@", password_file: "@@" }"#,
        r#"store: { address: "redis://a:1", ca: "@@" }"#,
        r#"store: "@@""#,
        r#"admin: "@@""#,
        r#"admin: { address: 127.0.0.1:0, token_file: "@@" }"#,
        r#"workers: "@@""#,
        r#"record: { push: [{ to: prometheus, url: "http://a/@@" }] }"#,
        r#"record: { push: [{ to: prometheus, url: "http://a/w?token=@@", labels: { a: "@@" } }] }"#,
        r#"record: { push: [{ to: "@@", url: "http://a/w", name: "@@" }] }"#,
        r#"access_log: { file: a, requests: "@@" }"#,
        r#"timeouts: { idle: "@@" }"#,
        r#"identity: { user: { jwt: sub, secret: "@@" } }"#,
        r#"identity: { user: { jwt: sub, secret: long, issuer: "@@" } }"#,
        r#"identity: { ip: { trusted_proxies: ["@@"] } }"#,
        r#"identity: { plan: { jwt: plan, default: "@@" } }"#,
        r#"limits: { a: { key: "@@", rate: 5/m } }"#,
        r#"limits: { a: { key: ip, rate: "@@" } }"#,
        r#"limits: { a: { key: ip, rate: 5/m, count: "@@" } }"#,
        r#"policies: "@@""#,
    ];
    let mut sound = 0;
    for field in fields {
        for reference in ["${env:SECRET}", "${file:secrets/redis}"] {
            let field = field.replace("@@", reference);
            let loaded = Machine::new(&format!("{USUAL}{field}\n")).load();
            let said = all_said(&loaded);
            if loaded.is_ok() {
                sound += 1;
                assert!(said.contains(reference), "{field}");
            }
            for part in ["sesame", "open:me", "me@", "100%"] {
                assert!(!said.contains(part), "{field}: {part}: {said}");
            }
        }
    }
    assert!(sound >= 4, "{sound}");
}

/// Operators read the files through the gateway; a password that is written there is not for all of them.
#[test]
fn a_written_password_is_masked() {
    for store in [
        "store: redis://tollgate:sesame@a:1",
        "store: { address: \"redis://:sesame@a:1\" }",
    ] {
        let loaded = load(&format!("{USUAL}{store}\n"));
        let (_, text) = &loaded.ruleset.files[0];
        assert!(!text.contains("sesame"), "{text}");
        assert_eq!(text.matches("******@a:1").count(), 1, "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

/// Also beside what is filled in, and where the value takes several lines.
#[test]
fn a_written_password_is_never_shown() {
    let mut sound = 0;
    for store in [
        "redis://${env:HOST}:sesame@a:1",
        "redis://${file:long}:sesame@${env:HOST}:1",
        "redis://:sesame${env:WORKERS}@a:1",
        "redis://:${env:WORKERS}sesame@a:1",
        "redis://:${env:WORKERS}sesame${env:WORKERS}@a:1",
        "redis://:${env:NONE}sesame@a:1",
        "redis://:sesame${env:NONE@a:1",
        "\"redis://:\\x73esame@a:1\"",
        "\"redis://:\\x73esame@${env:HOST}:1\"",
        ">-\n  redis://:sesame@a:1",
        ">\n  redis://:sesame@${env:HOST}:1\n\n",
        ">-\n  redis://a\n  :sesame@a:1",
        "|-\n  redis://:x\n\n  sesame@a:1",
        "\"redis://:x\\\n  sesame@a:1\"",
        "redis://:x\n  sesame@a:1",
    ] {
        for field in ["store: ", "store:\n  address: "] {
            let deeper = if field.contains('\n') { "\n  " } else { "\n" };
            let store = format!("{field}{}\n", store.replace('\n', deeper));
            let loaded = Machine::new(&format!("{USUAL}{store}")).load();
            sound += usize::from(loaded.is_ok());
            let said = all_said(&loaded);
            for part in ["sesame", "\\x73"] {
                assert!(!said.contains(part), "{store}: {said}");
            }
        }
    }
    assert!(sound >= 14, "{sound}");
}
