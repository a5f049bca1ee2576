//! The blocks of YAML in the guides.

use std::fs;
use std::path::Path;
use std::process::Command;

use tollgate::policy::{self, source::MemoryFiles};

use crate::yaml_blocks;

/// A block is a policy, or fields of a gateway file.
#[test]
fn every_block_of_the_guides_loads() {
    const BASE: [(&str, &str); 4] = [
        ("version:", "version: 1\n"),
        ("listen:", "listen: 127.0.0.1:0\n"),
        ("upstreams:", "upstreams: { shop: http://127.0.0.1:3000 }\n"),
        ("record:", "record: off\n"),
    ];
    const STAFF_ISSUER: &str = "\
identity:
  user: { jwt: sub, secret: secret.txt, issuer: https://staff.example }
";
    let policy = "match: /**\nupstream: shop\n";
    let mut blocks = 0;
    for entry in fs::read_dir("docs").expect("docs") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("a page");
        // A block that begins with the name of a file is that file.
        let file_name = |block: &str| {
            let name = block.strip_prefix("# ")?.lines().next()?.to_owned();
            (name.ends_with(".yaml") && name != "tollgate.yaml").then_some(name)
        };
        let named: Vec<(String, &str)> = (yaml_blocks(&page).into_iter())
            .filter_map(|block| Some((file_name(block)?, block)))
            .collect();
        for block in yaml_blocks(&page) {
            if file_name(block).is_some() {
                continue;
            }
            blocks += 1;
            let (gateway, policy) = match block.starts_with("match:") {
                true if block.contains("https://staff.example") => (STAFF_ISSUER, block),
                true => ("", block),
                false => (block, policy),
            };
            // Proxies that ask serve the requests.
            let is_asked = gateway.contains("decide:");
            let policy = if is_asked { "match: /**\n" } else { policy };
            let missing = BASE.iter().filter(|(field, _)| {
                let is_for_clients = ["listen:", "upstreams:"].contains(field);
                !(gateway.contains(field) || is_asked && is_for_clients)
            });
            let base: String = missing.map(|(_, line)| *line).collect();
            let gateway = format!("{base}{gateway}");
            let files = [
                ("tollgate.yaml", &*gateway),
                ("policies/a.yaml", policy),
                ("redis.password", "a password\n"),
                ("secret.txt", "0123456789abcdef0123456789abcdef\n"),
                ("blocked.txt", "203.0.113.0/24\n"),
                ("errors/429.html", "<h1>${title}</h1>\n"),
                ("errors/5xx.html", "<h1>${title}</h1>\n"),
                ("errors/all.json", "{\"message\": \"${detail}\"}\n"),
            ];
            let named = named.iter().map(|(name, text)| (name.as_str(), *text));
            let mut files = MemoryFiles::new(files.into_iter().chain(named));
            for (name, table) in [("country", "Country"), ("asn", "ASN")] {
                let table = fs::read(format!("tests/tables/GeoLite2-{table}-Test.mmdb"));
                files
                    .0
                    .insert(format!("{name}.mmdb").into(), table.expect("a table"));
            }
            policy::load_from(&files, Path::new("tollgate.yaml"))
                .unwrap_or_else(|report| panic!("{}: {report}", path.display()));
        }
    }
    assert!(blocks > 0);
}

/// The files that a page shows, as name and text. The name of YAML is its first line; that of a page for refusals ends the
/// line before it.
fn files_of(page: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = page.split("\n```").collect();
    let named = parts.chunks_exact(2).filter_map(|part| {
        let (language, text) = part[1].split_once('\n')?;
        let name = match language {
            "yaml" => text.lines().next()?.strip_prefix("# ")?,
            "html" | "json" => part[0].trim_end().strip_suffix("`:")?.rsplit('`').next()?,
            _ => return None,
        };
        Some((name, text))
    });
    named.filter(|(name, _)| !name.contains(' ')).collect()
}

/// The tests of policies that a guide shows hold for the files that it shows. Of two versions of a file the later counts.
#[test]
fn what_guides_expect_of_their_files_holds() {
    let binary = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut guides = 0;
    for entry in fs::read_dir("docs").expect("docs") {
        let guide = entry.expect("entry").path();
        if guide.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&guide).expect("a page");
        let files = files_of(&page);
        let is_test =
            |line: &&str| line.starts_with("tollgate explain ") && line.contains("--expect");
        let tests: Vec<&str> = page.lines().filter(is_test).collect();
        let is_whole = files.iter().any(|(name, _)| *name == "tollgate.yaml");
        if !is_whole || tests.is_empty() {
            continue;
        }
        guides += 1;
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).expect("a folder in it");
            fs::write(file, text).expect("written");
        }
        for test in tests {
            let mut shell = Command::new("/bin/sh");
            let shell = shell.args(["-c", test]).current_dir(folder.path());
            let ended = shell.env("PATH", &path).output().expect("a shell");
            assert!(
                ended.status.success(),
                "{}: {test}: {ended:?}",
                guide.display()
            );
        }
    }
    assert!(guides >= 4, "{guides} guides");
}
