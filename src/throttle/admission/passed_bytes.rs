//! [`PassedBytes`]: how many bytes have passed so far of the bodies of a request and its response, for limits that count
//! them. The code that passes a body on adds its bytes; the ticket reads the sums when it settles.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::BodyDirection;

/// Bytes of the bodies of one request and its response, without what frames them. Each sum stands for itself, so its
/// accesses need no ordering.
#[derive(Debug, Default)]
pub struct PassedBytes {
    incoming: AtomicU64,
    outgoing: AtomicU64,
}

impl PassedBytes {
    /// Adds bytes of the request's body.
    pub fn add_incoming(&self, byte_count: usize) {
        self.incoming
            .fetch_add(byte_count as u64, Ordering::Relaxed);
    }

    /// Adds bytes of the response's body.
    pub fn add_outgoing(&self, byte_count: usize) {
        self.outgoing
            .fetch_add(byte_count as u64, Ordering::Relaxed);
    }

    /// The bytes of a direction in units; large numbers saturate.
    pub(crate) fn units(&self, direction: BodyDirection) -> u32 {
        let incoming = self.incoming.load(Ordering::Relaxed);
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        let byte_count = match direction {
            BodyDirection::In => incoming,
            BodyDirection::Out => outgoing,
            BodyDirection::Both => incoming.saturating_add(outgoing),
        };
        u32::try_from(byte_count).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_each_direction() {
        let bytes = PassedBytes::default();
        bytes.add_incoming(3);
        bytes.add_outgoing(40);
        bytes.add_outgoing(2);
        let units = [BodyDirection::In, BodyDirection::Out, BodyDirection::Both]
            .map(|direction| bytes.units(direction));
        assert_eq!(units, [3, 42, 45]);
        bytes.add_incoming(usize::MAX >> 1);
        assert_eq!(bytes.units(BodyDirection::Both), u32::MAX);
    }
}
