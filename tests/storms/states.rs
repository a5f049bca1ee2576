//! What the dashboard says where nothing can be compared, where nothing is really refused, and on the page of a limit.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::common::browser::Browser;
use crate::common::child::Server;
use crate::common::{Client, Upstream, wait_until, write};
use crate::dashboard::look;

/// The time between two requests of a steady client.
const PAUSE: Duration = Duration::from_millis(100);

/// A gateway without traffic.
struct Fresh {
    server: Server,
    _upstream: Upstream,
    _folder: TempDir,
}

impl Fresh {
    fn start(policy: &str) -> Fresh {
        let upstream = Upstream::plain();
        let folder = tempfile::tempdir().unwrap();
        let gateway = "admin: 127.0.0.1:0\nidentity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
        write(&folder, upstream.address, gateway, &[("shop", policy)]);
        Fresh {
            server: Server::start(folder.path(), true),
            _upstream: upstream,
            _folder: folder,
        }
    }

    fn page(&self, screen: &str) -> String {
        format!("http://{}/#{screen}", self.server.admin.unwrap())
    }
}

/// Ends the steady client, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn send(client: &mut Client, ip: &str) -> u16 {
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {ip}\r\n\r\n"
    ));
    client.answer().status()
}

fn policy(limits: &str) -> String {
    format!("match: /**\nupstream: up\nlimits:\n{limits}")
}

fn banner_kind(browser: &Browser) -> String {
    let kind = browser.script("return document.querySelector('#banner').className");
    kind.as_str().unwrap().to_owned()
}

/// The rows of a chart's table, the latest first.
fn rows(browser: &Browser, chart: &str) -> Vec<String> {
    browser.click(&format!("{chart} .astable"));
    let script = format!(
        "return [...document.querySelectorAll('{chart} tbody tr')].map(row => row.innerText)"
    );
    let rows = browser.script(&script);
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row.as_str().unwrap().to_owned()).collect()
}

#[test]
fn steady_refusals_are_not_calm_with_or_without_history() {
    let fresh = Fresh::start(&policy("  per-ip: { key: ip, rate: 1/h }\n"));
    let is_over = AtomicBool::new(false);
    let address = fresh.server.address;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(address);
            while !is_over.load(Relaxed) {
                send(&mut client, "203.0.113.9");
                thread::park_timeout(PAUSE);
            }
        });
        let _end = EndOnDrop(&is_over);
        let browser = Browser::open(1_440, 1_500);
        browser.go(&fresh.page("now"));
        wait_until("there is no history", || {
            browser
                .text("#banner")
                .contains("100 % refused, no history to compare with")
        });
        assert_eq!(banner_kind(&browser), "unsure");
        assert_eq!(browser.text("#live"), "Live");
        look(&browser, "now");
        browser.press("l");
        wait_until("it is paused", || browser.text("#live") == "Paused");
        browser.press("l");
        wait_until("it is live again", || browser.text("#live") == "Live");
        // What was before the start is a gap and not zero.
        for (screen, chart) in [
            ("now", "#chart-requests"),
            ("keys?of=asked", "#chart-distinct"),
            ("keys?key=ip%3D203.0.113.9", "#chart-key"),
        ] {
            browser.go(&fresh.page(screen));
            let legend = format!("{chart} .legend b");
            wait_until("the chart is drawn", || !browser.text(&legend).is_empty());
            let rows = rows(&browser, chart);
            let first_gap = rows.iter().position(|row| row.contains("gap"));
            assert!(
                first_gap.is_some_and(|at| (1..45).contains(&at)),
                "{screen}: {rows:?}"
            );
            let before = rows.iter().skip(first_gap.unwrap_or(0));
            let zeros: Vec<_> = before.filter(|row| !row.contains("gap")).collect();
            assert!(zeros.is_empty(), "{screen}: {zeros:?}");
        }
        browser.go(&fresh.page("now"));
        // More than the wait of one condition.
        for _ in 0..4 {
            if browser.text("#banner").contains("as usual") {
                break;
            }
            assert_ne!(banner_kind(&browser), "calm", "{}", browser.text("#banner"));
            thread::park_timeout(Duration::from_secs(10));
        }
        wait_until("there is history", || {
            browser
                .text("#banner")
                .contains("as usual in the last 15 minutes")
        });
        assert_eq!(banner_kind(&browser), "unsure");
        assert_eq!(browser.complaints(), [""; 0]);
    });
}

#[test]
fn limits_in_shadow_mode_show_what_they_would_refuse() {
    let fresh = Fresh::start(&policy(
        "  per-ip: { key: ip, rate: 5/m, mode: shadow }\n  all: { key: everyone, rate: 1000/m, mode: shadow }\n",
    ));
    let mut client = fresh.server.connect();
    for _ in 0..30 {
        assert_eq!(send(&mut client, "203.0.113.9"), 200);
    }
    let browser = Browser::open(1_440, 1_500);
    browser.go(&fresh.page("now"));
    wait_until("it is said that nothing is refused", || {
        browser
            .text("#banner")
            .contains("Nothing is really refused: all limits are in shadow mode.")
    });
    assert_eq!(banner_kind(&browser), "plain");
    for (panel, title, part) in [
        ("#limits", "Would be refused by limit", "per-ip"),
        ("#who", "Who would be refused", "ip=203.0.113.9"),
    ] {
        wait_until(title, || {
            let text = browser.text(panel);
            text.contains(title) && text.contains(part) && text.contains("25")
        });
    }
    assert_eq!(browser.text("#kpi-refused b"), "0");
    look(&browser, "now");
    browser.go(&fresh.page("throttles"));
    wait_until("the curves are those of the shadow", || {
        browser.text("#refused h2") == "Would be refused by limit"
            && browser.text("#chart-limits .legend").contains("per-ip")
    });
    look(&browser, "throttles");
}

#[test]
fn the_page_of_a_limit_says_how_much_keys_have_used() {
    let fresh = Fresh::start(&policy("  per-ip: { key: ip, rate: 20/m }\n"));
    let mut client = fresh.server.connect();
    for (ip, count) in [(1, 3), (2, 4), (3, 8), (4, 12), (5, 17), (6, 25)] {
        for _ in 0..count {
            send(&mut client, &format!("192.0.2.{ip}"));
        }
    }
    let browser = Browser::open(1_440, 1_500);
    browser.go(&fresh.page("throttles"));
    browser.click("#all-limits tbody a.row");
    wait_until("keys are counted by what they have used", || {
        let script = "return [...document.querySelectorAll('#near table')[0].rows].slice(1)\
            .map(row => row.cells[1].innerText)";
        !browser.text("#near table").is_empty()
            && browser.script(script) == json!(["2", "1", "1", "2"])
    });
    let text = browser.text("#near");
    assert!(text.contains("6 keys; 2 above 80 %"), "{text}");
    for part in ["192.0.2.5", "17/20", "192.0.2.6", "20/20"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    wait_until("the refused key is there", || {
        browser.text("#limit-who").contains("ip=192.0.2.6")
    });
    assert!(browser.text("#limit").contains("shop.yaml:4"));
    look(&browser, "limit");
    let near = fresh.server.ask("GET", "/v1/near?limit=per-ip", "");
    let near: serde_json::Value = serde_json::from_slice(&near.body).unwrap();
    assert_eq!(near["distribution"], json!([2, 1, 1, 2]));
}
