//! A connection that is given up. What the server has been sent it executes, as soon as it goes on, and what it
//! counts then is taken back over the same connection: by another one, a server that was started anew could be asked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::link::Job;
use super::traffic::{LinkTraffic, answer};

/// How long a server is waited for.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most connections of one link that wait. Those beyond are closed, and what they count stays counted.
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
        // A connection that breaks has lost what it counted.
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
                // Nobody has replies of it any more.
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
