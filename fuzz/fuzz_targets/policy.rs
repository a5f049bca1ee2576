//! Whatever stands in a gateway file and a policy, loading ends without a panic, and what it says
//! can be printed.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tollgate::policy::source::MemoryFiles;
use tollgate::policy::{describe, describe_json, load_from};

const GATEWAY: &str = "listen: 127.0.0.1:8080
upstreams: { shop: http://127.0.0.1:9001 }
identity:
  user: { header: x-user, from: [10.0.0.0/8] }
  token: { bearer: true }
  email: { body: email }
  plan: { header: x-plan, from: [10.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, gold: { multiply: 10 } }
limits: { per-ip: { key: ip, rate: 10/s } }
";
const POLICY: &str = "match: /**\nupstream: shop\n";

fuzz_target!(|text: &str| {
    // A form feed parts the gateway file from the policy; without one the text is tried as each.
    match text.split_once('\u{c}') {
        Some((gateway, policy)) => load(gateway, policy),
        None => {
            load(GATEWAY, text);
            load(text, POLICY);
        }
    }
});

fn load(gateway: &str, policy: &str) {
    let files = MemoryFiles::new([("tollgate.yaml", gateway), ("policies/api.yaml", policy)]);
    match load_from(&files, Path::new("tollgate.yaml")) {
        Ok(loaded) => {
            assert_eq!(loaded.ruleset.routes.len(), 1);
            assert!(!describe(&loaded).is_empty());
            assert_eq!(describe_json(&loaded)["ok"], true);
        }
        Err(report) => {
            assert!(!report.diagnostics.is_empty());
            let said = report.to_string();
            assert!(!said.chars().any(|c| c.is_control() && c != '\n'));
            assert!(report.to_json().to_string().len() > 2);
        }
    }
}
