//! curl, httpx and Node's fetch, unmodified: what they ask for by themselves, they decompress.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Gateway, Upstream, child};
use crate::{ALL, ok, text};

/// A gateway before an upstream with a body of text.
fn gateway() -> Gateway {
    let upstream = Upstream::answering(|_| ok("content-type: text/html\r\n", &text(5000)));
    Gateway::start(upstream.address, "compress: true\n", &[("all", ALL)])
}

/// Runs a client to its good end. Returns what it has printed.
#[track_caller]
fn succeeds(command: &mut Command, packages: &str) -> String {
    command
        .env_remove("http_proxy")
        .env_remove("HTTP_PROXY")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = child::finish(command);
    assert_eq!(ended.code, Some(0), "{}\nneeds {packages}", ended.err);
    ended.out
}

#[test]
fn curl() {
    let gateway = gateway();
    let folder = gateway.folder.path();
    let url = format!("http://{}/", gateway.address);
    for (version, expected_version) in [
        ("--http1.1", "1.1"),
        ("--http2-prior-knowledge", "2"),
        ("--http1.0", "1.1"),
    ] {
        for coding in ["zstd", "br", "gzip"] {
            let accepted = format!("accept-encoding: {coding}");
            let written = "%{stderr}%{http_version} %header{content-encoding} %{size_download}";
            let arguments = [
                "-sS",
                "--max-time",
                "15",
                version,
                "--compressed",
                "-H",
                &accepted,
                "-w",
                written,
                "-o",
                "got",
                &url,
            ];
            let ended = child::finish(&mut child::program("curl", folder, &arguments));
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            let facts: Vec<&str> = ended.err.split_whitespace().collect();
            let content = std::fs::read_to_string(folder.join("got")).unwrap();
            assert!(content == text(5000), "{version} {coding}");
            assert_eq!(facts[0], expected_version);
            let bytes: usize = facts.last().unwrap().parse().unwrap();
            match version {
                // Its end is the end of the connection, so it stays plain.
                "--http1.0" => assert_eq!((facts.len(), bytes), (2, content.len())),
                _ => assert!(facts[1] == coding && bytes * 2 < content.len(), "{facts:?}"),
            }
        }
    }
}

#[test]
fn httpx() {
    let gateway = gateway();
    let folder = gateway.folder.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compression/httpx_client.py");
    let url = format!("http://{}/", gateway.address);
    let arguments = [script.to_str().unwrap(), &url];
    // By its path, because only the system's own Python finds the packages.
    let mut client = child::program("/usr/bin/python3", folder, &arguments);
    let out = succeeds(
        &mut client,
        "python3-httpx python3-h2 python3-brotli python3-zstandard",
    );
    let results: Value = serde_json::from_str(&out).unwrap();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 8);
    for result in results {
        assert_eq!(result["content"], text(5000), "{}", result["coding"]);
        assert_eq!(result["coding"], result["expected"]);
        assert_eq!(result["version"], result["asked"]);
    }
}

#[test]
fn node() {
    let gateway = gateway();
    let folder = gateway.folder.path();
    let script = "const answer = await fetch(process.argv[1]);
        console.log(JSON.stringify([answer.headers.get('content-encoding'), await answer.text()]));";
    let url = format!("http://{}/", gateway.address);
    let arguments = ["--input-type=module", "-e", script, &url];
    let out = succeeds(&mut child::program("node", folder, &arguments), "nodejs");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert!(
        ["br", "gzip", "zstd"].contains(&result[0].as_str().unwrap()),
        "{}",
        result[0]
    );
    assert_eq!(result[1], text(5000));
}
