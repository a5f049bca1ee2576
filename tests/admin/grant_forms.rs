//! The forms of the dashboard for grants and API keys, in a real browser: what is ordered there holds within a second, and a
//! new key is shown once.

use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::browser::Browser;
use crate::common::{assert_contains, wait_until};
use crate::forms::{GATEWAY, fill, look, press, send, start_with_identity, start_with_limits};
use crate::{Setup, json};

const AT_MOST: Duration = Duration::from_secs(1);

/// Waits until a user's request is treated so, for at most [`AT_MOST`].
#[track_caller]
fn check_soon(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::system();
    let sent = clock.now();
    wait_until(what, is_so);
    let waited: Duration = clock.now().since(sent).into();
    assert!(waited < AT_MOST, "{what}: {waited:?}");
}

#[test]
fn a_grant_by_the_page_holds_at_once() {
    let setup = start_with_identity("user: { header: x-user, from: [127.0.0.0/8] }");
    let statuses = (0..3).map(|_| setup.status_of("alice", "/api/x"));
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 429]);
    let browser = setup.open("simon", "keys");
    press(&browser, "#all-keys button[aria-label='Grant user=alice']");
    fill(&browser, "times", "many");
    fill(&browser, "reason", "launch");
    browser.click("#order-send");
    wait_until("the mistake is said", || {
        browser.text("#order-trouble").contains("whole number")
    });
    fill(&browser, "times", "10");
    let effect = browser.text("#order-effect");
    assert_contains(
        &effect,
        &[
            "The limit per-user lets user=alice have 10 times its number until ",
            "Reason: launch",
        ],
    );
    look(&browser);
    send(&browser);
    check_soon("alice is let in", || {
        setup.status_of("alice", "/api/x") == 200
    });
    wait_until("the page lists the grant", || {
        browser.text("#grants").contains("user=alice")
    });
    assert_contains(&browser.text("#grants"), &["simon", "launch", "10 times"]);
    let grants = json(&setup.ask_as("rita", "GET", "/v1/grants", ""));
    assert_eq!(grants["grants"][0]["by"], "simon");
    press(&browser, "#grants button[aria-label='Revoke user=alice']");
    assert_contains(&browser.text("#order-effect"), &["per-user", "user=alice"]);
    send(&browser);
    check_soon("alice is refused", || {
        setup.status_of("alice", "/api/x") == 429
    });
    // And from the key's own screen.
    browser.script("location.hash = '#keys?key=user%3Dalice'");
    press(&browser, "#key button[aria-label='Grant user=alice']");
    fill(&browser, "add", "50");
    send(&browser);
    check_soon("alice is let in", || {
        setup.status_of("alice", "/api/x") == 200
    });
    wait_until("the screen says so", || {
        browser.text("#key-grants").contains("50 more")
    });
    let entries = setup.orders(4);
    let orders = entries.iter().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        (text("action"), text("result"))
    });
    let orders: Vec<(String, String)> = orders.collect();
    let expected = [
        ("POST /v1/grants", "400 Bad Request"),
        ("grant", "done"),
        ("revoke", "done"),
        ("grant", "done"),
    ];
    let expected = expected.map(|(action, result)| (action.to_owned(), result.to_owned()));
    assert_eq!(orders, expected);
}

/// The status of a request with an API key.
fn status_with(setup: &Setup, key: &str) -> u16 {
    let mut client = setup.server.connect();
    client.send(format!(
        "GET /api/x HTTP/1.1\r\nhost: t\r\nx-api-key: {key}\r\n\r\n"
    ));
    client.answer().status()
}

#[test]
fn a_key_by_the_page_is_shown_once() {
    let identity = "user: { api_keys: runtime }, token: { header: x-api-key }";
    let setup = start_with_identity(identity);
    let browser = setup.open("ada", "keys");
    press(&browser, "#api-keys header button.order");
    fill(&browser, "user", "carol");
    fill(&browser, "name", "import");
    let effect = browser.text("#order-effect");
    assert_contains(
        &effect,
        &["user=carol", "until it is revoked", "shown once"],
    );
    browser.click("#order-send");
    wait_until("the key is shown", || {
        browser.script("return document.querySelector('#new-key') !== null") == json!(true)
    });
    let key = browser.text("#new-key");
    assert!(key.starts_with("tg_") && key.len() == 46, "{key}");
    look(&browser);
    check_soon("the key lets in", || status_with(&setup, &key) == 200);
    browser.click("#order-close");
    // It is nowhere any more: neither in the page, nor in what the browser keeps, nor in the audit.
    let kept = "return document.documentElement.innerHTML + JSON.stringify({ ...sessionStorage, ...localStorage }) + location";
    let page = browser.script(kept);
    assert!(!page.as_str().unwrap().contains(&key));
    wait_until("the key is listed", || {
        browser.text("#api-keys").contains("carol")
    });
    let events = setup.ask_as("rita", "GET", "/v1/record/events?from=-1h", "");
    assert!(!events.text().contains(&key));
    let listed = json(&setup.ask_as("rita", "GET", "/v1/keys", ""));
    let id = listed["keys"][0]["id"].as_str().unwrap().to_owned();
    press(
        &browser,
        &format!("#api-keys button[aria-label='Revoke {id}']"),
    );
    assert_contains(&browser.text("#order-effect"), &[&id, "user=carol", "401"]);
    send(&browser);
    check_soon("the key is refused", || status_with(&setup, &key) == 401);
    let entries = setup.orders(2);
    let target = format!("{id} of carol");
    assert_eq!(entries[0]["action"], "key add");
    assert_eq!(entries[1]["action"], "key revoke");
    assert!(entries.iter().all(|entry| entry["target"] == target));
    // Whoever may not add keys sees no button.
    let browser = setup.open("simon", "keys");
    let shown = "return document.querySelector('#api-keys header button.order').checkVisibility()";
    wait_until("there are grants", || {
        browser.script(
            "return document.querySelector('#grants header button.order').checkVisibility()",
        ) == json!(true)
    });
    assert_eq!(browser.script(shown), json!(false));
}

/// Whether the dialog asks for this.
fn asks_for(browser: &Browser, field: &str) -> bool {
    let script = format!("return document.querySelector('#order-{field}').checkVisibility()");
    browser.script(&script) == json!(true)
}

#[test]
fn credits_by_the_page_have_no_end() {
    let gateway = format!(
        "{GATEWAY}identity: {{ user: {{ header: x-user, from: [127.0.0.0/8] }} }}\nstore: {{ snapshots: data }}\n"
    );
    let policy = "match: GET /api/**\nupstream: up\nlimits:\n  prepaid: { key: user, credits: true }\n  per-user: { key: user, rate: 99/h }\n";
    let setup = start_with_limits(&gateway, policy);
    assert_eq!(setup.status_of("alice", "/api/x"), 429);
    let browser = setup.open("simon", "keys");
    press(&browser, "#grants header button.order");
    fill(&browser, "limit", "per-user");
    wait_until("a grant has an end", || asks_for(&browser, "for"));
    assert!(asks_for(&browser, "times") && !asks_for(&browser, "order"));
    fill(&browser, "limit", "prepaid");
    wait_until("credits have none", || {
        fill(&browser, "limit", "prepaid");
        !asks_for(&browser, "for")
    });
    assert!(!asks_for(&browser, "times") && asks_for(&browser, "order"));
    fill(&browser, "key", "user=alice");
    fill(&browser, "add", "3");
    fill(&browser, "order", "inv-7");
    let effect = browser.text("#order-effect");
    assert_contains(
        &effect,
        &["The limit prepaid lets user=alice use 3 credits more."],
    );
    look(&browser);
    send(&browser);
    check_soon("alice is let in", || {
        setup.status_of("alice", "/api/x") == 200
    });
    wait_until("the page lists the account", || {
        browser.text("#grants").contains("3 credits in all")
    });
    assert_contains(&browser.text("#grants"), &["user=alice", "simon", "no end"]);
    let grants = json(&setup.ask_as("rita", "GET", "/v1/grants", ""));
    assert_eq!(grants["grants"][0]["credits"]["added"], 3);
    press(&browser, "#grants button[aria-label='Revoke user=alice']");
    wait_until("it says what is taken back", || {
        browser
            .text("#order-effect")
            .contains("all credits that are left")
    });
    send(&browser);
    wait_until("it says how many", || {
        browser
            .text("#said")
            .contains("credits of user=alice are taken back")
    });
    check_soon("alice is refused", || {
        setup.status_of("alice", "/api/x") == 429
    });
}
