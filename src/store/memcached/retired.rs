//! Reads the outstanding replies on connections that were given up. A server that hung executes the commands that it has
//! received as soon as it continues. No call waits for these replies, so the units that the server then counts are given
//! back. They are given back over the same connection, because another connection could lead to a restarted server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::link::PendingBatch;
use super::traffic::{LinkTraffic, deliver_replies};

/// The longest time for which a retired connection is read. Units that the server counts later stay counted.
const MAX_READ_TIME: Duration = Duration::from_secs(600);
/// The most retired connections of one link. Further ones are closed, and their units stay counted.
const MAX_RETIRED_CONNECTIONS: usize = 16;

/// Starts to read a connection to its end, on the runtime of the caller. `retired_connections` counts the
/// retired connections of the link.
pub(super) fn retire(mut traffic: LinkTraffic, retired_connections: &Arc<AtomicUsize>) {
    let in_flight = traffic.in_flight.iter_mut();
    in_flight.for_each(PendingBatch::stop_waiting);
    let no_give_backs = traffic.give_backs.is_closed() && traffic.give_backs.is_empty();
    if traffic.in_flight.is_empty() && no_give_backs {
        return;
    }
    if retired_connections.fetch_add(1, Relaxed) >= MAX_RETIRED_CONNECTIONS {
        retired_connections.fetch_sub(1, Relaxed);
        return;
    }
    let retired_connections = retired_connections.clone();
    tokio::spawn(async move {
        // If the connection breaks, its units stay counted.
        let _ = timeout(MAX_READ_TIME, drain_replies(&mut traffic)).await;
        retired_connections.fetch_sub(1, Relaxed);
    });
}

/// Reads until all replies have come and all of their units are given back.
async fn drain_replies(traffic: &mut LinkTraffic) -> io::Result<()> {
    let mut expects_give_backs = true;
    while expects_give_backs || !traffic.in_flight.is_empty() {
        let (mut reader, mut writer) = traffic.stream.split();
        let (output, input) = (&mut traffic.output, &mut traffic.input);
        tokio::select! {
            give_back = traffic.give_backs.recv(), if expects_give_backs => match give_back {
                Some(mut batch) => {
                    batch.stop_waiting();
                    traffic.enqueue(batch);
                }
                // All `Replies` of this connection are dropped, and only they send give-backs.
                None => expects_give_backs = false,
            },
            read = reader.read_buf(input) => {
                if read? == 0 {
                    return Ok(());
                }
                // Enqueued only afterwards, because `deliver_replies` borrows the queue.
                let mut give_backs = Vec::new();
                let delivered = deliver_replies(input, &mut traffic.in_flight, |batch| {
                    give_backs.extend(batch.give_back_batch());
                });
                give_backs.into_iter().for_each(|batch| traffic.enqueue(batch));
                delivered.map_err(io::Error::other)?;
            }
            written = writer.write_buf(output), if !output.is_empty() => {
                written?;
            }
        }
    }
    Ok(())
}
