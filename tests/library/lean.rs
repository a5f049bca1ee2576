//! A new service with the layer has few packages in its lock file, and builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most packages in the lock file of a service, itself included.
const MAX_PACKAGES: usize = 60;

/// The service of the guide, with what the guide leaves out.
pub const SERVICE: &str = r#"
use std::net::SocketAddr;
use axum::{Router, routing::get};
use tollgate::{Key, Throttle};

async fn items() -> &'static str {
    "items"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let throttle = Throttle::builder()
        .limit("per-ip", Key::Ip, "100/m")?
        .limit("per-key", Key::header("x-api-key"), "3/m")?
        .build()?;
    let app = Router::new().route("/items", get(items)).layer(throttle);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
"#;

/// The folder of this crate.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where services of these tests are built. They share what they have in common.
pub fn build_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("library")
}

/// Runs cargo for the package in `folder`. Panics with what it prints if it fails.
pub fn cargo(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
    command.args(arguments).current_dir(folder);
    command.env("CARGO_TARGET_DIR", build_folder());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {printed}");
    assert!(!printed.contains("warning"), "{printed}");
}

#[test]
fn a_service_of_axum_has_few_packages() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        r#"
[package]
name = "service"
edition = "2024"

[dependencies]
axum = "0.8"
tokio = {{ version = "1", features = ["macros", "net", "rt-multi-thread"] }}
tollgate = {{ path = {:?}, default-features = false, features = ["axum"] }}
"#,
        root()
    );
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.path().join("src/main.rs"), SERVICE).unwrap();
    // From the versions of this crate's own lock file, which are there already. Cargo removes all that is not used.
    let lock = folder.path().join("Cargo.lock");
    fs::copy(root().join("Cargo.lock"), &lock).unwrap();
    cargo(folder.path(), &["build", "--offline", "--quiet"]);
    let lock = fs::read_to_string(lock).unwrap();
    let packages = lock.matches("[[package]]").count();
    assert!((20..=MAX_PACKAGES).contains(&packages), "{packages}");
}
