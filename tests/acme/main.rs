//! Certificates from a directory of ACME: pebble, which Let's Encrypt makes for tests.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod directory;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::child::{Server, line_with};
use common::tls::{ALL, Tls};
use common::{Gateway, Message, Upstream, wait_until, write};
use directory::{Directory, Plan};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tollgate::base::clock::Clock;
use tollgate::base::telemetry::{Label, Metric};
use tollgate::serve::admin::Control;

const POLICY: &str = "match: /**\nupstream: up\n";
const NAME: &str = "api.example";

/// The folder of a gateway that wants a certificate for `names` from there.
fn folder(upstream: &Upstream, plan: &Plan, challenge: &str, names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder,
        upstream.address,
        "admin: off\n",
        &[("all", POLICY)],
    );
    fs::write(folder.path().join("ca.pem"), plan.pem()).unwrap();
    let (http, tls, url) = (plan.http, plan.tls, plan.url());
    let names = names.join(", ");
    let listen = format!(
        "listen:\n  - 127.0.0.1:{http}\n  - address: 127.0.0.1:{tls}\n    tls:\n      acme: {{ directory: \"{url}\", domains: [{names}], contact: ops@api.example, challenge: {challenge}, roots: ca.pem }}\n"
    );
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    folder
}

fn start(folder: TempDir) -> Gateway {
    Gateway::start_in(folder, Clock::system())
}

fn config(roots: &RootCertStore, protocol: &[u8]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(ALL)
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

/// A new connection that has been answered.
fn connect(gateway: &Gateway, roots: &RootCertStore) -> io::Result<(Tls, Message)> {
    let config = config(roots, b"http/1.1");
    let mut client = Tls::to(gateway.app.addresses()[1].tcp().unwrap(), NAME, &config);
    let answer = client.try_get("/")?;
    Ok((client, answer))
}

/// The certificate that new connections are shown, as soon as there is one.
fn shown(gateway: &Gateway, directory: &Directory) -> CertificateDer<'static> {
    let mut shown = None;
    wait_until("there is a certificate", || {
        shown = connect(gateway, &directory.roots).ok();
        shown.is_some()
    });
    let (client, answer) = shown.unwrap();
    assert_eq!(answer.status(), 200);
    client.shown()
}

fn orders(gateway: &Gateway, outcome: &str) -> u64 {
    let labels = [(Label::Certificate, NAME), (Label::Outcome, outcome)];
    Control::counter_total(&gateway.app, Metric::CertificateOrders, &labels)
}

fn proofs(gateway: &Gateway) -> u64 {
    Control::counter_total(&gateway.app, Metric::AcmeProofs, &[])
}

/// All files below a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path:?}");
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn each_challenge(challenge: &str) {
    let (upstream, plan) = (Upstream::plain(), Plan::new());
    let directory = plan.start();
    let names = [NAME, "www.api.example"];
    let gateway = start(folder(&upstream, &plan, challenge, &names));
    let first = shown(&gateway, &directory);
    assert_eq!(orders(&gateway, "ok"), 1);
    assert_eq!(orders(&gateway, "failed"), 0);
    // It looks from several places.
    assert!(proofs(&gateway) >= 2);
    let metrics = gateway.app.metrics();
    let expiry = format!("tollgate_certificate_expiry_timestamp_seconds{{certificate=\"{NAME}\"}}");
    assert!(metrics.contains(&expiry), "{metrics}");

    // Only the owner may read what is kept, and nothing else is left.
    let kept = files(&gateway.folder.path().join("acme"));
    let kept_names: Vec<_> = kept.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(kept_names, ["account.json", "api.example.pem"]);
    for path in &kept {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path:?}");
    }

    // No proof is shown any more, and who asks for one is not served otherwise.
    let config = config(&directory.roots, b"acme-tls/1");
    let mut client = Tls::to(gateway.app.addresses()[1].tcp().unwrap(), NAME, &config);
    assert!(client.try_get("/").is_err());
    upstream.drain();
    let path = "/.well-known/acme-challenge/x";
    assert_eq!(gateway.connect().get(path).status(), 200);
    assert_eq!(upstream.drain().len(), 1, "it is the upstream's again");

    // A reload keeps it.
    let reloaded = gateway.reload().unwrap();
    assert!(reloaded.needs_restart.is_empty(), "{reloaded:?}");
    assert_eq!(shown(&gateway, &directory), first);

    // So does a restart, and nobody is asked.
    let roots = directory.roots.clone();
    drop(directory);
    let Gateway { app, folder, .. } = gateway;
    drop(app);
    let gateway = start(folder);
    let (client, _) = connect(&gateway, &roots).unwrap();
    assert_eq!(client.shown(), first);
    assert_eq!(orders(&gateway, "ok") + orders(&gateway, "failed"), 0);
}

#[test]
fn tls_alpn_01_brings_a_certificate_that_is_kept() {
    each_challenge("tls-alpn-01");
}

#[test]
fn http_01_brings_a_certificate_that_is_kept() {
    each_challenge("http-01");
}

#[test]
fn a_renewal_closes_no_connection() {
    let (upstream, mut plan) = (Upstream::plain(), Plan::new());
    plan.life = 9;
    let directory = plan.start();
    let gateway = start(folder(&upstream, &plan, "tls-alpn-01", &[NAME]));
    let first = shown(&gateway, &directory);
    let (mut open, _) = connect(&gateway, &directory.roots).unwrap();
    let mut renewed = 0;
    wait_until("it is renewed", || {
        assert_eq!(open.get("/").status(), 200);
        // Never a moment without one that holds.
        let (client, _) = connect(&gateway, &directory.roots).unwrap();
        renewed += u64::from(client.shown() != first);
        renewed > 0
    });
    assert_eq!(open.get("/").status(), 200);
    assert!(orders(&gateway, "ok") >= 2);
    assert_eq!(orders(&gateway, "failed"), 0);
}

#[test]
fn a_reload_may_want_more_names() {
    let (upstream, plan) = (Upstream::plain(), Plan::new());
    let directory = plan.start();
    let gateway = start(folder(&upstream, &plan, "http-01", &[NAME]));
    let first = shown(&gateway, &directory);
    let file = gateway.folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("[api.example]", "[api.example, b.example]"),
    )
    .unwrap();
    gateway.reload().unwrap();
    // The one that there is serves its own name until there is another.
    let (mut open, _) = connect(&gateway, &directory.roots).unwrap();
    let config = config(&directory.roots, b"http/1.1");
    let address = gateway.app.addresses()[1].tcp().unwrap();
    wait_until("the other name has one too", || {
        assert!(connect(&gateway, &directory.roots).is_ok());
        Tls::to(address, "b.example", &config).try_get("/").is_ok()
    });
    assert_ne!(shown(&gateway, &directory), first);
    assert_eq!(open.get("/").status(), 200);
    assert_eq!(orders(&gateway, "ok"), 2);
}

#[test]
fn a_directory_that_is_down_is_asked_again() {
    let (upstream, plan) = (Upstream::plain(), Plan::new());
    let gateway = start(folder(&upstream, &plan, "http-01", &[NAME]));
    wait_until("it has been asked", || orders(&gateway, "failed") > 0);
    assert_eq!(gateway.connect().get("/").status(), 200);
    assert!(connect(&gateway, &RootCertStore::empty()).is_err());
    let directory = plan.start();
    shown(&gateway, &directory);
    assert_eq!(orders(&gateway, "ok"), 1);

    // One that has forgotten the account, which one for tests does at its end, gets another.
    drop(directory);
    let Gateway { app, folder, .. } = gateway;
    drop(app);
    let kept = files(&folder.path().join("acme"));
    fs::remove_file(&kept[1]).unwrap();
    let account = fs::read(&kept[0]).unwrap();
    let directory = plan.start();
    let gateway = start(folder);
    shown(&gateway, &directory);
    assert_ne!(fs::read(&kept[0]).unwrap(), account);
}

#[test]
fn a_refusal_is_told_in_the_directorys_words() {
    let (upstream, plan) = (Upstream::plain(), Plan::new());
    let _directory = plan.start();
    let folder = folder(&upstream, &plan, "http-01", &[plan.refused]);
    let server = Server::start(folder.path(), false);
    let line = line_with(&server.err, "no new certificate");
    common::assert_contains(&line, &["rejectedIdentifier", "refused.example"]);
    assert_eq!(server.connect().get("/").status(), 200);
}

#[test]
fn where_nothing_can_be_kept_nobody_is_asked() {
    let (upstream, plan) = (Upstream::plain(), Plan::new());
    let folder = folder(&upstream, &plan, "http-01", &[NAME]);
    fs::write(folder.path().join("acme"), "a file").unwrap();
    let server = Server::start(folder.path(), false);
    // Not that the directory, which is not there, cannot be reached.
    let line = line_with(&server.err, "no new certificate");
    common::assert_contains(&line, &["the folder for certificates cannot be used: "]);
    assert_eq!(server.connect().get("/").status(), 200);
}

#[test]
fn what_cannot_be_proven_is_told_in_the_directorys_words() {
    let (upstream, mut plan) = (Upstream::plain(), Plan::new());
    let listens = plan.tls;
    plan.tls = directory::port();
    let _directory = plan.start();
    plan.tls = listens;
    let folder = folder(&upstream, &plan, "tls-alpn-01", &[NAME]);
    let server = Server::start(folder.path(), false);
    let line = line_with(&server.err, "no new certificate");
    let parts = [
        "api.example could not be proven by tls-alpn-01: ",
        "Failed to connect",
    ];
    common::assert_contains(&line, &parts);
    assert_eq!(server.connect().get("/").status(), 200);
}
