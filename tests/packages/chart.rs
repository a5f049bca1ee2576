//! The Helm chart: what it makes of five sets of values is valid by the schemas of Kubernetes and of the Prometheus
//! operator, and the gateway runs by it, from files laid out as a kubelet does it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::common::certificate::Certificate;
use super::common::child::{Server, command, finish, line_with, program};
use super::common::{Upstream, wait_until};
use super::{ROOT, read};

const SETS: [&str; 5] = ["single", "shared", "edge", "watched", "placed"];
/// The oldest version that Chart.yaml names, and the newest one that the schemas have.
const VERSIONS: [&str; 2] = ["1.27", "1.37"];

/// Runs Helm. Returns standard output, or standard error if it fails.
fn helm(arguments: &[&str]) -> Result<String, String> {
    let helm = format!("{ROOT}/target/kubernetes/helm/helm");
    let ended = finish(&mut program(&helm, Path::new(ROOT), arguments));
    match ended.code {
        Some(0) => Ok(ended.out),
        _ => Err(ended.err),
    }
}

fn template(set: &str, more: &[&str]) -> Result<String, String> {
    let values = format!("tests/packages/values/{set}.yaml");
    let arguments = ["template", "edge", "packaging/helm", "--values", &values];
    helm(&[&arguments, more].concat())
}

/// The resources that the chart makes of a set.
struct Rendered {
    text: String,
    resources: Vec<Value>,
}

impl Rendered {
    fn of(set: &str) -> Rendered {
        let text = template(set, &[]).unwrap_or_else(|error| panic!("{set}: {error}"));
        let documents = text
            .split("\n---\n")
            .map(|document| document.trim_start_matches("---\n"));
        let resources = documents.map(|document| {
            serde_yaml::from_str(document)
                .unwrap_or_else(|error| panic!("{set}: {error}\n{document}"))
        });
        let resources: Vec<Value> = resources.collect();
        Rendered { text, resources }
    }

    fn all(&self, kind: &str) -> Vec<&Value> {
        let of_kind = |resource: &&Value| resource["kind"] == kind;
        self.resources.iter().filter(of_kind).collect()
    }

    fn pod(&self) -> &Value {
        &self.all("Deployment")[0]["spec"]["template"]["spec"]
    }

    /// Lays out what the pod sees in /etc/tollgate, in a folder of the name `version`, and points `..data` to it.
    fn lay_out(&self, folder: &Path, version: &str, secret: impl Fn(&str) -> String) {
        let data = &self.all("ConfigMap")[0]["data"];
        let sources = self.pod()["volumes"][0]["projected"]["sources"].as_array();
        for source in sources.unwrap() {
            let is_secret = source.get("secret").is_some();
            let items = match is_secret {
                true => &source["secret"]["items"],
                false => &source["configMap"]["items"],
            };
            for item in items.as_array().unwrap() {
                let (key, path) = (
                    item["key"].as_str().unwrap(),
                    item["path"].as_str().unwrap(),
                );
                let text = match is_secret {
                    true => secret(key),
                    false => data[key].as_str().unwrap().to_owned(),
                };
                let file = folder.join(version).join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                let own = text.replace("/etc/tollgate", folder.to_str().unwrap());
                fs::write(file, own).unwrap();
                let first = path.split('/').next().unwrap();
                let _ = symlink(format!("..data/{first}"), folder.join(first));
            }
        }
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }
}

fn is_of_operator(resource: &&Value) -> bool {
    resource["apiVersion"]
        .as_str()
        .unwrap()
        .starts_with("monitoring.coreos.com/")
}

#[test]
fn resources_are_valid_by_the_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let mut of_operator = Vec::new();
    let mut paths = Vec::new();
    for set in SETS {
        let rendered = Rendered::of(set);
        of_operator.extend(rendered.resources.iter().filter(is_of_operator).cloned());
        let path = folder.path().join(format!("{set}.yaml"));
        fs::write(&path, rendered.text).unwrap();
        paths.push(path);
    }
    let mut validator = Command::new("/usr/bin/python3");
    validator.env("PYTHONPATH", format!("{ROOT}/target/kubernetes"));
    validator.args(["-m", "kubernetes_validate", "--strict"]);
    for version in VERSIONS {
        validator.args(["-k", version]);
    }
    validator
        .args(&paths)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ended = finish(&mut validator);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = [ended.out, ended.err].concat();
    for line in said.lines().filter(|line| !line.contains(" passed for ")) {
        // Kubernetes has no schemas of these two kinds.
        let is_known = ["PrometheusRule", "ServiceMonitor"]
            .iter()
            .any(|kind| line.contains(kind));
        assert!(is_known, "{line}");
    }
    assert!(
        said.lines().count() > 4 * SETS.len() * VERSIONS.len(),
        "{said}"
    );

    assert_eq!(of_operator.len(), 2);
    let script = format!("{ROOT}/tests/packages/operator.mjs");
    let mut node = program(
        "node",
        folder.path(),
        &[&script, &format!("{ROOT}/target/operator")],
    );
    let mut node = node.stdin(Stdio::piped()).spawn().unwrap();
    let text = serde_json::to_vec(&of_operator).unwrap();
    node.stdin.take().unwrap().write_all(&text).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_chart_is_sound() {
    let lint = ["lint", "--strict", "packaging/helm", "--values"];
    helm(&[&lint[..], &["tests/packages/values/single.yaml"]].concat()).unwrap();
    let version = read("packaging/helm/Chart.yaml");
    let own = format!("appVersion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(version.contains(&own), "{version}");
    let image = concat!("docker build -t tollgate:", env!("CARGO_PKG_VERSION"), " ");
    assert!(
        read("docs/install.md").contains(image),
        "the chart pulls another image"
    );
    // What is not a value is refused, and so is what the chart writes itself.
    for (set, named) in [
        ("replicaCount=3", "replicaCount"),
        ("gateway.listen=0.0.0.0:80", "gateway"),
        ("gateway.timeouts.drain=1s", "timeouts"),
        ("service.type=Internal", "type"),
        ("service.httpPort=9901", "service.httpPort"),
        ("policies.a__b\\.yaml=x", "a__b.yaml"),
        ("redis.address=memcached://m:11211", "address"),
    ] {
        let error = template("single", &["--set", set]).unwrap_err();
        assert!(error.contains(named), "{set}: {error}");
    }
}

/// No route and no upstream of the chart stands beside those of its user.
#[test]
fn nothing_is_open_that_the_values_do_not_name() {
    let values = tempfile::NamedTempFile::new().unwrap();
    let own = "gateway: { upstreams: { shop: ['http://shop:80'] } }\n\
               policies: { api.yaml: \"match: /api/**\\nupstream: shop\\n\" }\n";
    fs::write(values.path(), own).unwrap();
    let path = values.path().to_str().unwrap();
    let text = helm(&["template", "edge", "packaging/helm", "--values", path]).unwrap();
    assert!(text.contains("policies.api.yaml: |"), "{text}");
    for other in ["all.yaml", "http://api:80", "per-ip"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
    let error = helm(&["template", "edge", "packaging/helm"]).unwrap_err();
    assert!(error.contains("upstreams"), "{error}");
}

#[test]
fn pods_are_without_privileges_and_drain_in_time() {
    for set in SETS {
        let rendered = Rendered::of(set);
        let pod = rendered.pod();
        let container = &pod["containers"][0];
        assert_eq!(
            container["securityContext"]["readOnlyRootFilesystem"], true,
            "{set}"
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"][0], "ALL",
            "{set}"
        );
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{set}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{set}");
        let file = rendered.all("ConfigMap")[0]["data"]["tollgate.yaml"]
            .as_str()
            .unwrap();
        let gateway: Value = serde_yaml::from_str(file).unwrap();
        let seconds = |name: &str| -> u64 {
            let text = gateway["timeouts"][name].as_str().unwrap();
            text.trim_end_matches('s').parse().unwrap()
        };
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > seconds("drain") + seconds("drain_delay"), "{set}");
        // A redirect names the port of the listener with TLS, so the Service must have the same.
        let services = rendered.all("Service");
        let ports = services[0]["spec"]["ports"].as_array().unwrap();
        for listener in gateway["listen"].as_array().unwrap() {
            let address = listener["address"].as_str().unwrap();
            let port = |port: &Value| address.ends_with(&format!(":{}", port["port"]));
            assert!(ports.iter().any(port), "{set}: {address}");
        }
        let is_balanced = services[0]["spec"]["type"] == "LoadBalancer";
        let policy = services[0]["spec"]["externalTrafficPolicy"].as_str();
        assert_eq!(policy, is_balanced.then_some("Local"), "{set}");
    }
}

/// The files of the pod, with secrets as operators make them.
fn files(set: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = Certificate::of(&["localhost"]);
    Rendered::of(set).lay_out(folder.path(), "..one", |key| match key {
        "tls.crt" | "ca.crt" => made.pem.clone(),
        "tls.key" => made.key.clone(),
        "operators.yaml" => {
            String::from("ann: { token: 0123456789abcdef0123456789abcdef, rights: admin }\n")
        }
        _ => String::from("a password"),
    });
    folder
}

#[test]
fn the_gateway_accepts_the_files() {
    for set in SETS {
        let folder = files(set);
        let mut command = command(folder.path(), &["check", "--offline"]);
        command
            .env("POD_NAME", "edge-tollgate-0")
            .env("SHOP", "shop:80");
        let ended = finish(&mut command);
        assert_eq!(ended.code, Some(0), "{set}: {ended:?}");
    }
}

/// A ConfigMap that changes takes effect without a restart.
#[test]
fn the_gateway_runs_by_the_files_and_reloads_them() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let lay_out = |version: &str, rate: &str| {
        let mut rendered = Rendered::of("single");
        let map = rendered
            .resources
            .iter_mut()
            .find(|resource| resource["kind"] == "ConfigMap");
        let text = &mut map.unwrap()["data"]["tollgate.yaml"];
        let own = text.as_str().unwrap();
        let own = own
            .replace("0.0.0.0:80", "127.0.0.1:0")
            .replace("0.0.0.0:9901", "127.0.0.1:0");
        let own = own
            .replace("127.0.0.1:9900", "127.0.0.1:0")
            .replace("rate: 10/s", rate);
        let own = own.replace(
            "http://api.shop.svc:8080",
            &format!("http://{}", upstream.address),
        );
        *text = own.into();
        rendered.lay_out(folder.path(), version, |_| String::new());
    };
    lay_out("..one", "rate: 2/h");
    let server = Server::start(folder.path(), true);
    let statuses = || [(); 3].map(|()| server.connect().get("/").status());
    assert_eq!(statuses(), [200, 200, 429]);
    lay_out("..two", "rate: 100/h");
    line_with(&server.err, "policies reloaded");
    wait_until("the new limit holds", || statuses() == [200, 200, 200]);
}
