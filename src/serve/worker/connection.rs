//! One client connection: the PROXY header, the TLS handshake, and the version of HTTP that is spoken over it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;

use super::client_socket::{ClientSocket, FAREWELL};
use super::guard::{Guard, Phase};
use super::listen::LocalConnection;
use super::state::{RefusedConnection, Worker};
use crate::net::proxy::{self, Ends};
use crate::net::tls::config::Offer;
use crate::net::{PeerNetwork, Socket, Stream};
use crate::serve::http1::exchanges;
use crate::serve::http1::wire::Wire;
use crate::serve::http2;
use crate::serve::stack::gateway::Stack;
use crate::serve::stack::peer::Peer;

/// Serves one connection to its end.
pub async fn serve(placed: LocalConnection, worker: Rc<Worker>, stack: Stack) {
    let timeouts = worker.generation().ruleset.timeouts.clone();
    let guard = worker.guards.watch(timeouts.idle, timeouts.header);
    let mut served = pin!(serve_whole(placed, guard.clone(), worker, stack));
    poll_fn(|cx| {
        if guard.must_close(cx) {
            return Poll::Ready(());
        }
        served.as_mut().poll(cx)
    })
    .await;
}

async fn serve_whole(placed: LocalConnection, guard: Rc<Guard>, worker: Rc<Worker>, stack: Stack) {
    let generation = worker.generation();
    let Some(entrance) = generation.entrances.get(placed.entrance) else {
        return;
    };
    let LocalConnection {
        mut stream,
        from,
        mut counted,
        ..
    } = placed;
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let mut ends = Ends {
        client: from,
        local,
    };
    let mut remote = stream.peer(from);
    let believed = entrance.proxies.iter().any(|net| net.contains(remote));
    if believed {
        match before_first_request(&worker, &guard, proxy::read(&mut stream)).await {
            Ok(Some(said)) => (ends, remote) = (said, said.client.ip().into()),
            Ok(None) => {}
            Err(_) => return worker.count_refused(RefusedConnection::ProxyHeader),
        }
    }
    let sources = &generation.ruleset.identity.ip;
    let trusted = |net: &PeerNetwork| net.contains(remote);
    if let Some(most) = generation.ruleset.connections.per_ip
        && !sources.trusted_proxies.iter().any(trusted)
        && !counted.count_for(sources.group(remote.ip()).network(), most)
    {
        return worker.count_refused(RefusedConnection::PerIp);
    }
    let stream = match &entrance.offer {
        // Boxed, so that it takes no room in the future once it is over.
        Some(offer) => Box::pin(shake_hands(stream, offer.clone(), &worker, &guard)).await,
        None => Some(Socket::plain(stream)),
    };
    let Some(stream) = stream else { return };
    if stream.is_proof() {
        return worker.count_proof();
    }
    let http2 = stream.speaks_http2();
    let over = (&stream, entrance.offer.as_ref());
    let peer = Peer::new((remote, ends), over, guard.clone(), &worker);
    let timeouts = &generation.ruleset.timeouts;
    let client = ClientSocket::new(stream, guard, timeouts.send, timeouts.half_close);
    drop(generation);
    if http2 {
        return http2::serve(client, BytesMut::new(), peer, stack).await;
    }
    let wire = Wire::new(client);
    if !exchanges::serve(&wire, &peer, stack.clone()).await {
        return;
    }
    if let Some((client, begun)) = Rc::into_inner(wire).map(Wire::into_parts) {
        http2::serve(client, begun, peer, stack).await;
    }
}

/// Runs `future` before the first request, within the deadline for the head of a request.
async fn before_first_request<F: Future>(worker: &Worker, guard: &Guard, future: F) -> F::Output {
    guard.received();
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        let output = future.as_mut().poll(cx);
        if output.is_pending() && worker.draining() {
            guard.hurry(FAREWELL);
        }
        output
    });
    let output = output.await;
    guard.enter(Phase::Idle, worker.generation().ruleset.timeouts.idle);
    output
}

/// Shakes hands under TLS; none if that fails. The connection's deadline ends it if the client is late.
async fn shake_hands(
    stream: Stream,
    offer: Offer,
    worker: &Worker,
    guard: &Guard,
) -> Option<Socket> {
    let mut count = HandshakeCount {
        worker,
        succeeded: false,
    };
    let accept = Socket::accept(stream, offer);
    let shaken = before_first_request(worker, guard, accept).await.ok();
    count.succeeded = shaken.is_some();
    shaken
}

/// Counts a handshake, however it ends.
struct HandshakeCount<'a> {
    worker: &'a Worker,
    succeeded: bool,
}

impl Drop for HandshakeCount<'_> {
    fn drop(&mut self) {
        self.worker.count_handshake(self.succeeded);
    }
}
