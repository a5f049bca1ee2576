//! How long calls take at most, and how much memory messages hold that are not decided yet.

use tollgate::serve::decide::grpc::frame_message;

use super::common::raw::{DATA, frame};
use super::common::{assert_contains, wait_until};
use super::streams::{Connection, RATE_LIMIT, policy, request};
use super::{DOOR, start};

const OK: u8 = 1;

/// Bytes of one frame of a message.
const PIECE_BYTES: usize = 15_000;

#[test]
fn the_deadline_of_the_caller_is_kept() {
    let door = format!("{DOOR}access_log: {{ file: access.log }}\n");
    let gateway = start(&door, &[("a", &policy("1/h"))]);
    let mut caller = Connection::open(gateway.address);
    let fields = [
        ("content-type", "application/grpc"),
        ("grpc-timeout", "50m"),
    ];
    let (head, id) = caller.head_with("POST", RATE_LIMIT, &fields);
    caller.raw.send(&head);
    let fields = caller.fields(id).join("\n");
    assert_contains(
        &fields,
        &["grpc-status: 4", "grpc-message: the deadline has passed"],
    );
    let log = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the call is logged", || read().lines().count() == 1);
    assert_contains(&read(), &["the deadline has passed"]);
    // The message comes too late to be counted.
    caller.raw.send(&frame(DATA, 0, id, b"late"));
    assert_eq!(caller.decide("x"), OK);
}

/// A caller begins large messages and ends none of them.
#[test]
fn unfinished_messages_have_a_bound_and_small_calls_pass() {
    const CALLS: usize = 200;
    let door = format!("{DOOR}access_log: {{ file: access.log }}\n");
    let gateway = start(&door, &[("a", &policy("100/h"))]);
    let mut caller = Connection::open(gateway.address);
    let large = frame_message(&request(&"x".repeat(65_000)));
    let mut ids = Vec::new();
    for _ in 0..CALLS {
        let id = caller.send_head(RATE_LIMIT);
        let pieces = large.chunks(PIECE_BYTES).take(4);
        for piece in pieces {
            caller.raw.send(&frame(DATA, 0, id, piece));
        }
        ids.push(id);
        // The answer proves that all before it was read, and that its window was returned but for a half.
        if ids.len() % 5 == 0 {
            assert_eq!(caller.decide("patient"), OK, "{}", ids.len());
        }
    }
    let log = gateway.folder.path().join("access.log");
    let refused = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches("fill the memory for messages").count()
    };
    // 4 MiB are 64 messages, and one more by their free bytes.
    wait_until("all others are refused", || refused() >= CALLS - 65);
    assert_eq!(refused(), CALLS - 65);
    // Those that were begun first may still end, and leave room for others.
    let rest = &large[4 * PIECE_BYTES..];
    caller.raw.send(&frame(DATA, 1, ids[0], rest));
    let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the first is decided", || {
        log_text().lines().count() == CALLS - 65 + CALLS / 5 + 1
    });
    let id = caller.send_head(RATE_LIMIT);
    assert_eq!(caller.finish(id, &request(&"y".repeat(15_000))), OK);
    assert_eq!(caller.decide("patient"), OK);
}
