//! The dashboard in a real browser, in front of a real gateway.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use crate::common::browser::Browser;
use crate::common::wait_until;
use crate::storm::{HOSTILE, Kind, Site, next_minute};

const AXE: &str = include_str!("axe/axe.min.js");
const SCREENS: [&str; 7] = [
    "now",
    "throttles",
    "routes",
    "keys",
    "policies",
    "tail",
    "health",
];

impl Site {
    fn page(&self) -> String {
        format!("http://{}/", self.server.admin.unwrap())
    }
}

/// From the first refusal to the pixel.
const AT_MOST: Duration = Duration::from_secs(2);

/// The time after which the dashboard compares with what came before.
const HISTORY: Duration = Duration::from_secs(45);

/// Every storm, from its first request to its explanation.
#[test]
fn a_storm_is_seen_and_explained_by_one_click() {
    let sites = Kind::ALL.map(|kind| (kind, Site::start()));
    let browser = Browser::open(1_440, 900);
    // Without it the banner says that there is nothing to compare with.
    thread::park_timeout(HISTORY);
    next_minute();
    for (kind, site) in sites {
        browser.go(&site.page());
        wait_until("it is live", || {
            browser
                .text("#kpi-requests b")
                .chars()
                .any(|digit| digit.is_ascii_digit())
        });
        let number = if kind == Kind::Upstream {
            "#kpi-upstream429 b"
        } else {
            "#kpi-refused b"
        };
        let before = browser.text(number);
        let clock = Clock::system();
        let began = clock.now();
        let waited = thread::scope(|scope| {
            let raining = scope.spawn(move || {
                site.rain(kind);
                site
            });
            wait_until("the burst is there", || browser.text(number) != before);
            let waited: Duration = clock.now().since(began).into();
            (waited, raining.join().unwrap())
        });
        let (waited, _site) = waited;
        wait_until("it is told", || {
            browser.script("return document.querySelector('#banner').className") == json!("alarm")
        });
        if kind == Kind::FewKeys {
            // Without a mouse.
            browser.press("e");
        } else {
            browser.click("#banner a.explain");
        }
        let cause = "return document.querySelector('#explain-text')?.dataset.cause ?? ''";
        wait_until("it is explained", || {
            browser.script(cause) == json!(kind.cause())
        });
        println!(
            "{kind:?}: seen after {waited:?}; {}",
            browser.text("#explain-text")
        );
        // What comes before the first refusal is not waited for.
        let usual = matches!(kind, Kind::OneKey | Kind::FewKeys | Kind::Upstream);
        assert!(!usual || waited <= AT_MOST, "{kind:?} after {waited:?}");
        assert_eq!(browser.complaints(), [""; 0]);
        // Before its gateway is gone.
        browser.go("about:blank");
    }
}

/// Every screen: nothing of somebody else's, nothing that is not to be read, and not much of it.
#[test]
fn screens_are_safe_and_to_be_read_by_all() {
    let site = Site::start();
    let from = Clock::system().wall().as_secs();
    site.rain(Kind::OneKey);
    site.rain(Kind::FewKeys);
    wait_until("the storm is recorded", || {
        site.json("/v1/status")["record"]["end"].as_u64() > Some(from + 3)
    });
    let browser = Browser::open(1_440, 1_500);
    browser.go(&site.page());
    wait_until("it is live", || !browser.text("#kpi-requests b").is_empty());
    transferred(&browser, &site.page());
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    fs::create_dir_all(&pictures).unwrap();
    for theme in ["dark", "light"] {
        browser.script(&format!(
            "localStorage.setItem('tollgate-theme', '{theme}')"
        ));
        for screen in SCREENS.into_iter().chain(["explain"]) {
            browser.go("about:blank");
            browser.go(&format!("{}#{screen}", site.page()));
            if screen == "explain" {
                browser.go(&format!("{}#now", site.page()));
                browser.click("#banner a.explain");
                wait_until("it is explained", || {
                    !browser.text("#explain-text").is_empty()
                });
            }
            look(&browser, screen);
            let name = format!("{screen}-{theme}.png");
            fs::write(pictures.join(name), browser.picture()).unwrap();
        }
    }
}

pub fn look(browser: &Browser, screen: &str) {
    // Until all that was asked for is drawn.
    let settled = "return document.querySelector('#screen').innerText.length";
    let mut length = Value::Null;
    wait_until("the screen is drawn", || {
        thread::park_timeout(Duration::from_millis(400));
        let before = std::mem::replace(&mut length, browser.script(settled));
        length.as_u64() > Some(60) && before == length
    });
    let text = browser.text("#screen");
    assert!(
        !text.to_lowercase().contains("undefined") && !text.contains("NaN"),
        "{screen}: {text}"
    );
    if screen == "tail" {
        assert!(text.contains(HOSTILE), "{text}");
    }
    let foreign = "return document.querySelectorAll('main img, main script, main iframe').length";
    assert_eq!(browser.script(foreign), json!(0), "{screen}");
    browser.script(AXE);
    let found = browser.script_later(
        "const done = arguments[arguments.length - 1];\
         axe.run().then(found => done(found.violations), error => done([String(error)]))",
    );
    let serious = |fault: &&Value| !matches!(fault["impact"].as_str(), Some("minor" | "moderate"));
    let serious: Vec<_> = found.as_array().unwrap().iter().filter(serious).collect();
    assert!(serious.is_empty(), "{screen}: {serious:#?}");
    assert_eq!(browser.complaints(), [""; 0], "{screen}");
}

/// What came over the wire to show the page, without the numbers.
fn transferred(browser: &Browser, page: &str) {
    let entries = browser.script(
        "const all = performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'));\
         return all.map(entry => ({ name: entry.name, bytes: entry.transferSize }))",
    );
    let (mut bytes, mut requests) = (0, 0);
    for entry in entries.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        assert!(
            name.starts_with(page) || name.starts_with("data:"),
            "{name}"
        );
        if !name.contains("/v1/") {
            bytes += entry["bytes"].as_u64().unwrap();
            requests += 1;
        }
    }
    println!("{bytes} bytes in {requests} requests");
    assert!((20_000..=90_000).contains(&bytes), "{bytes}");
}
