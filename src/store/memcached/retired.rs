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

/// Starts a task that reads the outstanding replies, on the runtime of the caller. `retired_connections` counts the
/// retired connections of the link. Closes the connection if there is nothing to read or give back, or if there are
/// [`MAX_RETIRED_CONNECTIONS`] already.
pub(super) fn retire(mut connection: LinkTraffic, retired_connections: &Arc<AtomicUsize>) {
    let in_flight = connection.in_flight.iter_mut();
    in_flight.for_each(PendingBatch::stop_waiting);
    // The channel is closed once all `Replies` of this connection are dropped.
    let expects_give_backs =
        !connection.give_backs.is_closed() || !connection.give_backs.is_empty();
    if connection.in_flight.is_empty() && !expects_give_backs {
        return;
    }
    if retired_connections.fetch_add(1, Relaxed) >= MAX_RETIRED_CONNECTIONS {
        retired_connections.fetch_sub(1, Relaxed);
        return;
    }
    let retired_connections = retired_connections.clone();
    tokio::spawn(async move {
        // If the connection fails or the time is over, the units that are not given back by then stay counted.
        let _ = timeout(MAX_READ_TIME, drain_replies(&mut connection)).await;
        retired_connections.fetch_sub(1, Relaxed);
    });
}

/// Reads until all replies have come and all of their units are given back, or until the server closes the connection.
/// Fails if the connection breaks or a reply is malformed.
async fn drain_replies(connection: &mut LinkTraffic) -> io::Result<()> {
    let mut expects_give_backs = true;
    while expects_give_backs || !connection.in_flight.is_empty() {
        let (mut reader, mut writer) = connection.stream.split();
        let (output, input) = (&mut connection.output, &mut connection.input);
        tokio::select! {
            give_back = connection.give_backs.recv(), if expects_give_backs => match give_back {
                Some(mut batch) => {
                    batch.stop_waiting();
                    connection.enqueue(batch);
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
                let delivered = deliver_replies(input, &mut connection.in_flight, |batch| {
                    give_backs.extend(batch.give_back_batch());
                });
                give_backs.into_iter().for_each(|batch| connection.enqueue(batch));
                delivered.map_err(io::Error::other)?;
            }
            written = writer.write_buf(output), if !output.is_empty() => {
                written?;
            }
        }
    }
    Ok(())
}
