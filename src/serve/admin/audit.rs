//! Records what operators order, whether it is done or refused. Every order passes here, because `rights.rs` guards every
//! route. Handlers add what their orders are about by [`describe`].

use std::net::{IpAddr, Ipv4Addr};

use axum::response::Response;
use ipnet::IpNet;
use parking_lot::Mutex;

use super::control::Control;
use super::operator::AdminOperator;
use crate::base::clock::Nanos;
use crate::operator::OperatorEntry;
use crate::record::insight::AuditEntry;

/// What an order is about. A handler leaves it with its response.
#[derive(Clone)]
struct Described {
    by: String,
    action: &'static str,
    target: String,
    reason: String,
}

/// Adds to the response of an order what it is about: `by` has signed the `action` (a verb such as `ban`) on the `target`
/// for the `reason`. None of them may hold a secret: write keys as lists show them, or by [`shown_key`].
pub(super) fn describe(
    mut response: Response,
    by: &str,
    action: &'static str,
    target: &str,
    reason: &str,
) -> Response {
    response.extensions_mut().insert(Described {
        by: shorten(by),
        action,
        target: shorten(target),
        reason: shorten(reason),
    });
    response
}

/// A key as it may be shown, of an order that was refused because of its key. Networks are shown as they are, of other
/// identities only the names: their values may be secrets.
pub(super) fn shown_key(key: &str) -> String {
    let (name, value) = key.split_once('=').unwrap_or(("", key));
    let is_network = value.parse::<IpNet>().is_ok() || value.parse::<IpAddr>().is_ok();
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match (name, is_network) {
        ("" | "ip", true) => key.to_owned(),
        (name, _) if !name.is_empty() && name.len() <= 32 && name.bytes().all(is_name_byte) => {
            format!("{name}=…")
        }
        _ => String::from("…"),
    }
}

/// Records an order whose request was let in. `request` is its method and the pattern of its path, in case that the handler
/// has not described it.
pub(super) fn record_order(
    gateway: &dyn Control,
    operator: &AdminOperator,
    request: &str,
    response: &Response,
) {
    let status = response.status();
    let result = match status.is_success() {
        true => AuditEntry::DONE.to_owned(),
        false => status.to_string(),
    };
    let described = response.extensions().get::<Described>().cloned();
    let described = described.unwrap_or_else(|| Described {
        by: operator.signature(None),
        action: "",
        target: String::new(),
        reason: String::new(),
    });
    gateway.audit(AuditEntry {
        by: described.by,
        peer: operator.peer.to_string(),
        action: match described.action {
            "" => request.to_owned(),
            action => action.to_owned(),
        },
        target: described.target,
        reason: described.reason,
        result,
    });
}

/// Bounds the records of refused requests: [`Refusals::MAX_AT_ONCE`] at once, and then one in
/// [`Refusals::RECOVERY_INTERVAL`]. Further ones are only counted.
#[derive(Default)]
pub(super) struct Refusals(Mutex<RefusalCount>);

#[derive(Default)]
struct RefusalCount {
    /// The time at which all recorded refusals will be forgotten.
    forgotten_at: Nanos,
    /// Refusals since the last one that was recorded.
    unrecorded: u64,
}

impl Refusals {
    const MAX_AT_ONCE: u64 = 20;
    const RECOVERY_INTERVAL: Nanos = Nanos::from_secs(5);

    /// Records a request that was refused before its handler. `operator` is `None` if it has no valid token.
    pub(super) fn record(
        &self,
        gateway: &dyn Control,
        operator: Option<&AdminOperator>,
        peer: Option<IpAddr>,
        request: &str,
        result: &str,
    ) {
        let Some(unrecorded) = self.count(gateway.clock().now()) else {
            return;
        };
        let peer = operator.map(|operator| operator.peer).or(peer);
        let peer = peer.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        gateway.audit(AuditEntry {
            by: operator.map_or_else(String::new, |operator| operator.signature(None)),
            peer: peer.to_string(),
            action: request.to_owned(),
            target: String::new(),
            reason: String::new(),
            result: match unrecorded {
                0 => result.to_owned(),
                count => format!("{result}; {count} more were refused before"),
            },
        });
    }

    /// Counts a refusal. Returns the number of those before that were not recorded, if this one is to be recorded.
    fn count(&self, now: Nanos) -> Option<u64> {
        let mut count = self.0.lock();
        let interval = Refusals::RECOVERY_INTERVAL.0;
        if count.forgotten_at.since(now).0 + interval > Refusals::MAX_AT_ONCE * interval {
            count.unrecorded += 1;
            return None;
        }
        count.forgotten_at = count
            .forgotten_at
            .max(now)
            .after(Refusals::RECOVERY_INTERVAL);
        Some(std::mem::take(&mut count.unrecorded))
    }
}

/// A text of at most as many bytes as the longest key that lists show, cut at a character.
fn shorten(text: &str) -> String {
    let mut end = text.len().min(OperatorEntry::MAX_KEY_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_bounded_and_counted() {
        let refusals = Refusals::default();
        let now = Nanos::from_secs(100);
        let recorded = (0..70).filter(|_| refusals.count(now).is_some()).count();
        assert_eq!(recorded, 20);
        let later = now.after(Refusals::RECOVERY_INTERVAL);
        assert_eq!(refusals.count(later), Some(50));
        assert_eq!(refusals.count(later), None);
    }

    #[test]
    fn keys_are_shown_without_their_values() {
        for (key, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("ip=192.0.2.0/24", "ip=192.0.2.0/24"),
            ("ip=192.0.2", "ip=…"),
            ("token=192.0.2.7", "token=…"),
            ("token=secret,user=alice", "token=…"),
            ("secret", "…"),
            ("<script>=1", "…"),
            ("", "…"),
        ] {
            assert_eq!(shown_key(key), shown, "{key}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let long = "é".repeat(300);
        assert_eq!(shorten(&long).len(), 512);
        assert_eq!(shorten("a").as_str(), "a");
    }
}
