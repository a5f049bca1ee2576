//! The story of `tollgate demo`, in its output and in the dashboard.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::common::browser::Browser;
use crate::common::child::{Guard, command, run};
use crate::common::{assert_contains, wait_until};

/// The longest time to the end of the story.
const MAX_STORY: Duration = Duration::from_secs(150);

/// The lines up to the one with this text.
fn lines_until(lines: &Receiver<String>, text: &str) -> String {
    let mut read = String::new();
    loop {
        let line = lines.recv_timeout(MAX_STORY);
        let line = line.unwrap_or_else(|error| panic!("no `{text}`: {error}\n{read}"));
        read = read + &line + "\n";
        if line.contains(text) {
            return read;
        }
    }
}

/// The whole number before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let (before, _) = text
        .split_once(word)
        .unwrap_or_else(|| panic!("`{word}` in {text}"));
    let number = before.trim_end().rsplit(' ').next().unwrap();
    number.parse().unwrap_or_else(|_| panic!("{word}: {text}"))
}

#[test]
fn the_demo_tells_its_story() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut demo = Guard(command(folder.path(), &arguments).spawn().unwrap());
    let lines = demo.said();
    let first = lines_until(&lines, "1. Usual traffic");
    let (_, after) = first.split_once("dashboard  ").unwrap();
    let page = after.split_whitespace().next().unwrap().to_owned();
    let browser = Browser::open(1_440, 1_500);
    browser.go(&page);
    let story = lines_until(&lines, "The clients go on");
    println!("{story}");
    assert_contains(
        &story,
        &[
            "HTTP/1.1 429 Too Many Requests",
            "\"violated-policies\":[\"per-ip\"]",
            "usual clients: ",
            "It got 401 401 401 401 401 429 429 429 429 429 429 429.",
            "with the right password, and gets 200.",
            "bob: 60 admitted, 30 refused. carol: 90 admitted, 0 refused.",
            "30 admitted, 0 refused. It would have refused ",
            "failed-logins 7, per-user 30,",
        ],
    );
    let (_, noisy) = story.split_once("2. A noisy client").unwrap();
    let (noisy, _) = noisy.split_once("3. A password").unwrap();
    assert!(number_before(noisy, "times 200") <= 80, "{noisy}");
    assert!(noisy.contains(" 0 refused."), "{noisy}");
    let (_, elastic) = story.split_once("6. An elastic limit").unwrap();
    let admitted = number_before(elastic, "admitted,");
    let lent = number_before(elastic, "of them lent");
    assert!((10..=20).contains(&(admitted - lent)), "{elastic}");
    assert!(lent > 0, "{elastic}");

    let sees = |what: &str, selector: &str, parts: &[&str]| {
        wait_until(what, || {
            let text = browser.text(selector);
            parts.iter().all(|part| text.contains(part))
        });
    };
    let limits = ["per-ip", "failed-logins", "per-user", "reports"];
    sees("the limits that refused", "#limits", &limits);
    browser.go(&format!("{page}#keys"));
    let keys = ["ip=203.0.113.9", "user=bob", "user=dave"];
    sees("the keys that were refused", "#all-keys", &keys);
    browser.go(&format!("{page}#throttles"));
    sees("the shadow limit", "#all-limits", &["search", "(shadow)"]);
    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(
        browser.script("return document.querySelectorAll('.trouble:not([hidden])').length"),
        json!(0)
    );

    // The commands that it prints can be run.
    let (_, admin) = page.trim_end_matches('/').split_once("//").unwrap();
    for (command, part) in [
        ("try search", "ip=192.0.2.30"),
        ("log explain --from -2m", "per-ip"),
        ("near per-user --above 0", "user=alice"),
    ] {
        let printed = command.split(" --above").next().unwrap();
        assert_contains(&story, &[printed]);
        let words = format!("{command} --admin {admin}");
        let words: Vec<&str> = words.split(' ').collect();
        let ended = run(folder.path(), &words);
        assert_eq!(ended.code, Some(0), "{command}: {}", ended.err);
        assert_contains(&ended.out, &[part]);
    }
    // It goes on until it is stopped.
    let later = lines_until(&lines, "usual clients:");
    assert!(later.contains("203.0.113.9: "), "{later}");
    demo.signal(Signal::INT);
    assert_eq!(demo.ended().code(), Some(0));
}
