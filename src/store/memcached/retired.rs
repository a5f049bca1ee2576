//! Connections that were given up. The server executes what it was sent as soon as it continues. The units that it
//! counts then are given back over the same connection: another one could lead to a restarted server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::link::Job;
use super::traffic::{LinkTraffic, answer};

/// How long a connection is read.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most connections of one link that are read. Further ones are closed, and their units stay counted.
const MOST: usize = 16;

/// Reads a connection to the end, on the runtime of the caller.
pub(super) fn settle(mut traffic: LinkTraffic, retired: &Arc<AtomicUsize>) {
    traffic.flight.iter_mut().for_each(Job::retire);
    let over = traffic.flight.is_empty() && traffic.backs.is_closed() && traffic.backs.is_empty();
    if over || retired.fetch_add(1, Relaxed) >= MOST {
        retired.fetch_sub(usize::from(!over), Relaxed);
        return;
    }
    let retired = retired.clone();
    tokio::spawn(async move {
        // Where the connection breaks, its units stay counted.
        let _ = timeout(PATIENCE, read(&mut traffic)).await;
        retired.fetch_sub(1, Relaxed);
    });
}

async fn read(traffic: &mut LinkTraffic) -> io::Result<()> {
    let mut awaited = true;
    while awaited || !traffic.flight.is_empty() {
        let (mut reader, mut writer) = traffic.stream.split();
        let (output, input) = (&mut traffic.output, &mut traffic.input);
        tokio::select! {
            job = traffic.backs.recv(), if awaited => match job {
                Some(mut job) => {
                    job.retire();
                    traffic.queue(job);
                }
                // All replies of this connection are dropped.
                None => awaited = false,
            },
            read = reader.read_buf(input) => {
                if read? == 0 {
                    return Ok(());
                }
                let mut backs = Vec::new();
                let done = answer(input, &mut traffic.flight, |job| backs.extend(job.taken_back()));
                backs.into_iter().for_each(|back| traffic.queue(back));
                done.map_err(io::Error::other)?;
            }
            written = writer.write_buf(output), if !output.is_empty() => {
                written?;
            }
        }
    }
    Ok(())
}
