//! The forms of the dashboard, in a real browser: what an operator orders there holds at once, and nobody else's text becomes
//! a part of the page.

use std::fs;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::browser::Browser;
use crate::common::{Upstream, assert_contains, wait_until, write};
use crate::rights::{operators, token};
use crate::{Setup, json};

const AXE: &str = include_str!("../storms/axe/axe.min.js");

pub const GATEWAY: &str = "\
admin: { address: 127.0.0.1:0, tokens: operators.yaml }
";
const LIMITED: &str = "\
match: GET /api/**
upstream: up
limits:
  per-user: { key: user, rate: 2/h }
";
const FREE: &str = "match: GET /free\nupstream: up\n";

/// From the click to the first request that is treated otherwise.
const AT_MOST: Duration = Duration::from_secs(1);

fn start() -> Setup {
    start_with_identity("user: { header: x-user, from: [127.0.0.0/8] }")
}

/// A gateway of operators that knows its clients so.
pub fn start_with_identity(identity: &str) -> Setup {
    let gateway = format!("{GATEWAY}identity: {{ {identity} }}\n");
    start_with_limits(&gateway, LIMITED)
}

/// A gateway of operators with this policy.
pub fn start_with_limits(gateway: &str, limited: &str) -> Setup {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
    let policies = [("api", limited), ("free", FREE)];
    write(&folder, upstream.address, gateway, &policies);
    let server = crate::child::Server::start(folder.path(), true);
    Setup {
        server,
        folder,
        upstream,
    }
}

impl Setup {
    /// The status of a request of this user.
    pub fn status_of(&self, user: &str, path: &str) -> u16 {
        let mut client = self.server.connect();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: t\r\nx-user: {user}\r\n\r\n"
        ));
        client.answer().status()
    }

    /// A browser in which an operator has opened a screen of the dashboard.
    pub fn open(&self, name: &str, screen: &str) -> Browser {
        let browser = Browser::open(1_440, 1_200);
        let page = format!("http://{}/", self.server.admin.unwrap());
        browser.go(&format!("{page}#{screen}"));
        wait_until("it asks for a token", || {
            browser
                .script("return document.querySelector('#token-form')?.checkVisibility() ?? false")
                == json!(true)
        });
        // What the browser says of the requests before is not a fault of the page.
        browser.complaints();
        browser.script(&format!(
            "document.querySelector('#token').value = '{}'; document.querySelector('#token-form').requestSubmit()",
            token(name)
        ));
        wait_until("the page knows the operator", || {
            browser.text("#gateway").contains(&format!("{name} ("))
        });
        browser.complaints();
        browser
    }
}

/// Writes into a field of the dialog as a person would.
pub fn fill(browser: &Browser, field: &str, text: &str) {
    browser.script(&format!(
        "const input = document.querySelector('#order-{field}'); input.value = {text:?};\
         input.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    ));
}

/// Presses a button of a table, whose rows are renewed every other second, if nothing lies above it.
pub fn press(browser: &Browser, selector: &str) {
    let script = format!(
        "const button = document.querySelector({selector:?});\
         if (!button?.checkVisibility()) return false;\
         button.scrollIntoView({{ block: 'center' }});\
         const {{ x, y, width, height }} = button.getBoundingClientRect();\
         if (document.elementFromPoint(x + width / 2, y + height / 2) !== button) return false;\
         button.click();\
         return true"
    );
    wait_until(&format!("{selector} can be pressed"), || {
        browser.script(&script) == json!(true)
    });
}

/// Sends the order of the dialog, and waits until the dialog has closed.
pub fn send(browser: &Browser) {
    browser.click("#order-send");
    wait_until("the order is done", || {
        browser.script("return document.querySelector('#order') === null") == json!(true)
    });
}

#[test]
fn a_client_is_banned_freed_and_reset_by_the_page() {
    let setup = start();
    let statuses = (0..3).map(|_| setup.status_of("alice", "/api/x"));
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 429]);
    assert_eq!(setup.status_of("alice", "/free"), 200);
    let browser = setup.open("simon", "keys");
    // From a row of the keys that were refused most.
    press(&browser, "#all-keys button[aria-label='Ban user=alice']");
    let effect = browser.text("#order-effect");
    assert!(
        effect.starts_with("Requests of user=alice get 429 on every route until "),
        "{effect}"
    );
    fill(&browser, "for", "20m");
    fill(&browser, "reason", "scans \"prices\"");
    let effect = browser.text("#order-effect");
    assert!(effect.ends_with(" Reason: scans \"prices\""), "{effect}");
    look(&browser);
    send(&browser);
    let clock = Clock::system();
    let sent = clock.now();
    wait_until("alice is banned", || {
        setup.status_of("alice", "/free") == 429
    });
    let waited: Duration = clock.now().since(sent).into();
    assert!(waited < AT_MOST, "{waited:?}");
    wait_until("the page shows the ban", || {
        browser.text("#bans").contains("user=alice")
    });
    assert_contains(&browser.text("#bans"), &["simon", "scans \"prices\""]);
    let bans = json(&setup.ask_as("rita", "GET", "/v1/bans", ""));
    let ban = &bans["bans"][0];
    assert_eq!(
        (&ban["by"], &ban["reason"]),
        (&json!("simon"), &json!("scans \"prices\""))
    );
    let left = ban["left"].as_f64().unwrap();
    assert!((1_100.0..=1_200.0).contains(&left), "{left}");
    // And lifted, from the list of bans.
    press(&browser, "#bans button[aria-label='Lift user=alice']");
    assert_contains(
        &browser.text("#order-effect"),
        &["user=alice", "not refused by this ban"],
    );
    send(&browser);
    let sent = clock.now();
    wait_until("alice is free", || setup.status_of("alice", "/free") == 200);
    let waited: Duration = clock.now().since(sent).into();
    assert!(waited < AT_MOST, "{waited:?}");
    // Any other client is written into the form; a mistake is said there.
    browser.click("#bans header button.order");
    fill(&browser, "key", "nonsense");
    browser.click("#order-send");
    wait_until("the mistake is said", || {
        browser.text("#order-trouble").contains("NAME=VALUE")
    });
    fill(&browser, "key", "user=bob");
    send(&browser);
    wait_until("bob is banned", || setup.status_of("bob", "/free") == 429);
    // The count of a key, on its own screen.
    assert_eq!(setup.status_of("alice", "/api/x"), 429);
    browser.script("location.hash = '#keys?key=user%3Dalice'");
    press(&browser, "#key button[aria-label='Reset user=alice']");
    assert_contains(&browser.text("#order-effect"), &["per-user", "user=alice"]);
    send(&browser);
    assert_eq!(setup.status_of("alice", "/api/x"), 200);
    // Cancelled orders are none.
    browser.click("#key button[aria-label='Ban user=alice']");
    browser.click("#order-cancel");
    assert_eq!(setup.status_of("alice", "/free"), 200);
    // The mistake above is the only response with an error.
    let complaints = browser.complaints();
    assert!(
        complaints
            .iter()
            .all(|line| line.contains("v1/bans") && line.contains("400")),
        "{complaints:?}"
    );
    assert!(complaints.len() <= 1, "{complaints:?}");
}

/// Whoever may only read sees no form, and cannot do without one either.
#[test]
fn a_reader_has_no_forms() {
    let setup = start();
    assert_eq!(setup.status_of("bob", "/api/x"), 200);
    let order = json!({ "key": "user=alice" }).to_string();
    assert_eq!(
        setup.ask_as("simon", "POST", "/v1/bans", &order).status(),
        200
    );
    let browser = setup.open("rita", "keys?of=asked");
    wait_until("there are a ban and a key", || {
        browser.text("#bans").contains("user=alice")
            && browser.text("#all-keys").contains("user=bob")
    });
    let counts = "const all = [...document.querySelectorAll('button.order')];\
                  return [all.length > 2, all.filter((button) => button.checkVisibility()).length]";
    assert_eq!(browser.script(counts), json!([true, 0]));
    let forged = browser.script_later(
        "const done = arguments[arguments.length - 1];\
         const headers = { authorization: `Bearer ${sessionStorage.getItem('tollgate-token')}` };\
         fetch('v1/bans/user%3Dalice', { method: 'DELETE', headers }).then((response) => done(response.status))",
    );
    assert_eq!(forged, json!(403));
    assert_eq!(setup.status_of("alice", "/free"), 429);
}

/// A token is stored only once the gateway has let it in.
#[test]
fn a_wrong_token_is_not_stored() {
    let setup = start();
    let browser = Browser::open(1_440, 1_200);
    browser.go(&format!("http://{}/", setup.server.admin.unwrap()));
    let is_shown = |id: &str| {
        let script = format!("return document.querySelector('#{id}').checkVisibility()");
        browser.script(&script) == json!(true)
    };
    wait_until("it asks for a token", || is_shown("token-form"));
    browser.script(
        "document.querySelector('#token').value = 'wrong-token-0123456789'; document.querySelector('#token-form').requestSubmit()",
    );
    wait_until("it says so", || is_shown("token-trouble"));
    assert_contains(&browser.text("#token-trouble"), &["wrong"]);
    let stored = browser.script("return sessionStorage.getItem('tollgate-token')");
    assert_eq!(stored, json!(null));
}

/// A wrong token is asked for again, and is not sent again and again.
#[test]
fn a_wrong_token_is_forgotten() {
    let setup = start();
    let browser = setup.open("rita", "now");
    browser.script("sessionStorage.setItem('tollgate-token', 'wrong-token-0123456789')");
    wait_until("it asks for a token", || {
        browser.script("return document.querySelector('#token-form').checkVisibility()")
            == json!(true)
    });
    let kept = browser.script("return sessionStorage.getItem('tollgate-token')");
    assert_eq!(kept, json!(null));
    assert_eq!(
        setup.ask_as("rita", "GET", "/v1/limits", "").status(),
        200,
        "it is not out of guesses"
    );
}

/// Keys, reasons and names are written by strangers.
#[test]
fn text_of_others_stays_text() {
    let setup = start();
    let hostile = [
        "<img src=x onerror=window.hit=1>",
        "\"><script>window.hit=1</script>",
        "' onmouseover='window.hit=1",
        "javascript:window.hit=1",
        "{{constructor.constructor('window.hit=1')()}}",
        "\u{202e}gnp.exe\u{2066}<b>x</b>",
    ];
    for text in hostile {
        let order = json!({ "key": format!("user={text}"), "reason": text, "by": text });
        let banned = setup.ask_as("ada", "POST", "/v1/bans", &order.to_string());
        assert_eq!(banned.status(), 200, "{}", banned.text());
        let order = json!({ "key": format!("user={text}"), "reason": text }).to_string();
        assert_eq!(
            setup.ask_as("ada", "POST", "/v1/bans", &order).status(),
            200
        );
    }
    let user = hostile[0];
    setup.ask_as(
        "ada",
        "DELETE",
        &format!("/v1/bans/{}", escape(&format!("user={user}"))),
        "",
    );
    wait_until("he is free", || setup.status_of(user, "/api/x") == 200);
    while setup.status_of(user, "/api/x") != 429 {}
    let browser = setup.open("ada", "keys");
    wait_until("they are listed", || {
        browser.text("#bans").contains("onmouseover")
            && browser.text("#all-keys").contains("onerror")
    });
    check_no_markup(&browser);
    press(&browser, "#bans tbody tr:first-child button.order");
    check_no_markup(&browser);
    browser.click("#order-cancel");
    press(&browser, "#all-keys tbody button.order");
    fill(&browser, "reason", hostile[1]);
    assert_contains(&browser.text("#order-effect"), &[user, hostile[1]]);
    check_no_markup(&browser);
    send(&browser);
    wait_until("it is banned", || setup.status_of(user, "/free") == 429);
    browser.script(&format!(
        "location.hash = '#keys?key={}'",
        escape(&format!("user={user}"))
    ));
    wait_until("the key is shown", || {
        browser.text("#key").contains("onerror")
    });
    check_no_markup(&browser);
    browser.script("location.hash = '#now'");
    wait_until("the key is shown", || {
        browser.text("#who").contains("onerror")
    });
    check_no_markup(&browser);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Percent-encodes all but letters and digits.
fn escape(text: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[track_caller]
fn check_no_markup(browser: &Browser) {
    let foreign = "const found = document.querySelectorAll(':is(main, dialog) :is(img, script, iframe, b > b, [onmouseover], [href^=\"javascript\"])');\
                   return [found.length, window.hit ?? null]";
    assert_eq!(browser.script(foreign), json!([0, null]));
}

/// Whether the dialog can be used by everybody.
#[track_caller]
pub fn look(browser: &Browser) {
    browser.script(AXE);
    let found = browser.script_later(
        "const done = arguments[arguments.length - 1];\
         axe.run('#order').then(found => done(found.violations), error => done([String(error)]))",
    );
    assert_eq!(found, json!([]), "{found:#}");
}
