//! API keys are for operators with the right `admin`, and what is recorded of their orders has no key.

use std::fs;

use crate::common::{Upstream, assert_contains, child};
use crate::rights::{operators, token};
use crate::{json, problem, start_with};

const GATEWAY: &str = "\
admin: { address: 127.0.0.1:0, tokens: operators.yaml }
identity:
  user: { api_keys: runtime }
  token: { header: x-api-key }
record: { dir: record }
";

#[test]
fn orders_about_keys_need_admin_and_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
    fs::write(folder.path().join("ada.token"), token("ada")).unwrap();
    let setup = start_with(Upstream::plain(), folder, GATEWAY);
    let order = json!({ "user": "alice", "name": "nightly job" }).to_string();
    for name in ["rita", "simon"] {
        let refused = setup.ask_as(name, "POST", "/v1/keys", &order);
        problem(&refused, 403, "needs the right `admin`");
        let refused = setup.ask_as(name, "DELETE", "/v1/keys/0123456789abcdef", "");
        problem(&refused, 403, "needs the right `admin`");
        let listed = setup.ask_as(name, "GET", "/v1/keys", "");
        assert_eq!(json(&listed)["keys"], json!([]));
    }
    let added = json(&setup.ask_as("ada", "POST", "/v1/keys", &order));
    assert_eq!(added["by"], "ada");
    let [key, id] = ["key", "id"].map(|name| added[name].as_str().unwrap().to_owned());
    let path = |text: &str| format!("/v1/keys/{text}?by=bob");
    let pasted = setup.ask_as("ada", "DELETE", &path(&key), "");
    problem(&pasted, 404, "this is no id of an API key");
    let revoked = setup.ask_as("ada", "DELETE", &path(&id), "");
    assert_eq!(revoked.status(), 200, "{}", revoked.text());
    let again = setup.ask_as("ada", "DELETE", &path(&id), "");
    problem(&again, 404, &id);
    let mistaken = json!({ "user": "alice", "plan": "gold" }).to_string();
    let mistaken = setup.ask_as("ada", "POST", "/v1/keys", &mistaken);
    problem(&mistaken, 400, "there is no plan `gold`");
    let endless = json!({ "user": "bob", "for": "never", "name": "backup" }).to_string();
    let endless = setup.ask_as("ada", "POST", "/v1/keys", &endless);
    assert_eq!(endless.status(), 400);
    let by_mail = json!({ "user": "ann@example.com", "plan": "gold" }).to_string();
    let by_mail = setup.ask_as("ada", "POST", "/v1/keys", &by_mail);
    assert_eq!(by_mail.status(), 400);
    let by_mail = json!({ "user": "ann@example.com" }).to_string();
    let by_mail = json(&setup.ask_as("ada", "POST", "/v1/keys", &by_mail));
    // The command signs with the name of the token too.
    let admin = setup.server.admin.unwrap().to_string();
    let arguments = ["--admin", &admin, "--token-file", "ada.token", "--json"];
    let of_command = [&["key", "add", "carl"], &arguments[..]].concat();
    let of_command = child::run(setup.folder.path(), &of_command);
    assert_contains(&of_command.out, &["\"by\":\"ada\""]);

    let entries = setup.orders(13);
    let target = format!("{id} of alice");
    let mail_id = by_mail["id"].as_str().unwrap();
    let refused = "needs the right `admin`";
    let not_found = "404 Not Found";
    let expected = [
        ("rita", "POST /v1/keys", "", refused),
        ("rita", "DELETE /v1/keys/{id}", "", refused),
        ("simon", "POST /v1/keys", "", refused),
        ("simon", "DELETE /v1/keys/{id}", "", refused),
        ("ada", "key add", &*target, "done"),
        ("ada for bob", "key revoke", "…", not_found),
        ("ada for bob", "key revoke", &target, "done"),
        ("ada for bob", "key revoke", &id, not_found),
        // Who was meant, but for email addresses.
        ("ada", "key add", "alice", "400 Bad Request"),
        ("ada", "key add", "bob", "400 Bad Request"),
        ("ada", "key add", "…", "400 Bad Request"),
        ("ada", "key add", mail_id, "done"),
    ];
    for (entry, (by, action, target, result)) in entries.iter().zip(expected) {
        for (member, value) in [
            ("by", by),
            ("action", action),
            ("target", target),
            ("result", result),
        ] {
            assert_eq!(entry[member], value, "{entry}");
        }
    }
    assert_eq!(entries[4]["reason"], "nightly job");
    assert_eq!(entries[9]["reason"], "backup");
    let events = setup.ask_as("rita", "GET", "/v1/record/events?from=-1h", "");
    assert!(!events.text().contains(&key[3..10]), "{}", events.text());
    assert!(!events.text().contains("example.com"), "{}", events.text());
}
