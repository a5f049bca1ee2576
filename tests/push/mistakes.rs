//! What an operator will mend, on this side or the other: nothing is lost until then.

use std::fs;

use tollgate::base::clock::{Clock, Nanos};
use tollgate::record::push::cursor::Cursor;

use crate::common::{Gateway, Upstream, wait_until};
use crate::flaky::{Mood, Receiver, ask_for, folder};

const WHO: &str = "HTTP/1.1 401 Who\r\ncontent-length: 0\r\n\r\n";
const ELSEWHERE: &str = "HTTP/1.1 302 There\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n";

#[test]
fn a_token_that_is_wrong_and_a_path() {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder(&upstream, &at, ""), clock.clone());
    let mut asked = ask_for(&gateway, &clock, Nanos::from_secs(2));
    for (status, answer) in [("401", WHO), ("302", ELSEWHERE)] {
        receiver.0.lock().unwrap().moods = (0..100).map(|_| Mood::Answers(answer)).collect();
        wait_until("it is told", || {
            gateway.app.push_status()[0].last_error.contains(status)
        });
    }
    receiver.0.lock().unwrap().moods.clear();
    asked += ask_for(&gateway, &clock, Nanos::from_secs(1));
    wait_until("all is there", || {
        receiver.0.lock().unwrap().admitted() == asked as f64
    });
    let times = receiver.0.lock().unwrap().times();
    let gap = times.windows(2).find(|pair| pair[0] + 1 != pair[1]);
    assert!(gap.is_none(), "{times:?}");
    assert_eq!(gateway.app.push_status()[0].refused_samples, 0);
}

/// A receiver that takes a few samples at a time gets them a few at a time.
#[test]
fn requests_that_are_too_large() {
    let receiver = Receiver::default();
    receiver.0.lock().unwrap().most = Some(10);
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder(&upstream, &at, ""), clock.clone());
    let asked = ask_for(&gateway, &clock, Nanos::from_secs(2));
    wait_until("all is there", || {
        receiver.0.lock().unwrap().admitted() == asked as f64
    });
    assert_eq!(gateway.app.push_status()[0].refused_samples, 0);
}

/// What a cursor is found to be when a gateway starts, and whether something is sent to its destination.
fn begin(place: impl Fn(&std::path::Path), trouble: &str) -> (Gateway, Receiver, Upstream) {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let folder = folder(&upstream, &at, "dir: data/record,");
    let push = folder.path().join("data/record/push");
    fs::create_dir_all(&push).unwrap();
    place(&push);
    let gateway = Gateway::start_in(folder, Clock::system());
    if trouble.is_empty() {
        wait_until("it is sent to", || receiver.0.lock().unwrap().requests > 0);
    } else {
        wait_until("it is told", || {
            gateway.app.push_status()[0].last_error.contains(trouble)
        });
        assert_eq!(receiver.0.lock().unwrap().requests, 0);
    }
    (gateway, receiver, at)
}

#[test]
fn a_cursor_that_is_damaged_is_put_aside() {
    let damage = |push: &std::path::Path| fs::write(push.join("model"), "odd").unwrap();
    let (gateway, _receiver, _at) = begin(damage, "");
    let push = gateway.folder.path().join("data/record/push");
    assert_eq!(fs::read(push.join("model.damaged")).unwrap(), b"odd");
    assert!(Cursor::load(&push, "model").unwrap().is_some());
}

#[test]
fn a_cursor_that_cannot_be_read_is_waited_for() {
    let block = |push: &std::path::Path| fs::create_dir(push.join("model")).unwrap();
    let (gateway, receiver, _at) = begin(block, "its cursor cannot be read");
    let push = gateway.folder.path().join("data/record/push");
    fs::remove_dir(push.join("model")).unwrap();
    wait_until("it is sent to", || receiver.0.lock().unwrap().requests > 0);
}

#[test]
fn a_cursor_that_is_ahead_of_the_clock_is_told() {
    let ahead = |push: &std::path::Path| {
        let delivered_until = Clock::system().wall().as_secs() + 4_000;
        let cursor = Cursor {
            delivered_until,
            ..Cursor::default()
        };
        cursor.save(push, "model").unwrap();
    };
    begin(ahead, "the clock was once ahead");
}
