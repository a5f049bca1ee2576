//! The listeners that are not for clients: admin and probes. Each is served by a thread of its own, so that operators
//! get responses even if all workers are busy. `serve/admin/` makes the responses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::listen_error::cannot_listen;
use super::output;
use crate::app::{Error, Gateway};
use crate::policy::ProcessSettings;
use crate::serve::admin;
use crate::serve::worker::inherited_sockets::InheritedSockets;

/// Longest time for the last responses after the listeners were stopped.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The bound listeners, which are not served yet. A listener is `None` if the gateway file does not name it.
pub struct InternalListeners {
    admin: Option<TcpListener>,
    probes: Option<TcpListener>,
}

impl InternalListeners {
    /// Takes inherited sockets, and binds the addresses for which there is none.
    ///
    /// # Errors
    ///
    /// An address cannot be bound.
    pub fn bind(
        process: &ProcessSettings,
        inherited: &mut InheritedSockets,
    ) -> Result<InternalListeners, Error> {
        let mut bind_if_set = |address: Option<SocketAddr>, setting| {
            let Some(address) = address else {
                return Ok::<_, Error>(None);
            };
            let listener = match inherited.take_sockets(&address.into()).pop() {
                Some(inherited_socket) => Ok(inherited_socket.into()),
                None => TcpListener::bind(address),
            };
            let listener =
                listener.map_err(|cause| cannot_listen(&address.into(), setting, cause))?;
            Ok(Some(listener))
        };
        Ok(InternalListeners {
            admin: bind_if_set(process.admin, "admin")?,
            probes: bind_if_set(process.probes, "probes")?,
        })
    }

    /// Copies the sockets for a process that takes over.
    ///
    /// # Errors
    ///
    /// A socket cannot be copied, for instance because the process has no file descriptors left.
    pub fn sockets(&self) -> io::Result<Vec<TcpListener>> {
        let listeners = [&self.admin, &self.probes].into_iter().flatten();
        listeners.map(TcpListener::try_clone).collect()
    }

    /// Serves each listener on a thread of its own, until the returned value is dropped. Prints the addresses to
    /// standard error.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or its runtime cannot be built.
    pub fn serve(self, gateway: &Arc<Gateway>) -> io::Result<ServingListeners> {
        let mut serving = ServingListeners::default();
        let mut serve = |listener, router, name| {
            let (stop_sender, stop) = oneshot::channel();
            let (address, end) = serve_on_thread(listener, router, name, stop)?;
            serving.stop_senders.push(stop_sender);
            serving.ends.push(end);
            output::print_stderr(format_args!("{name} on http://{address}"));
            io::Result::Ok(())
        };
        if let Some(listener) = self.admin {
            serve(listener, admin::router(gateway.clone()), "admin")?;
        }
        if let Some(listener) = self.probes {
            serve(listener, admin::probes(gateway.clone()), "probes")?;
        }
        Ok(serving)
    }
}

/// Listeners that are being served, until this value is dropped.
#[derive(Default)]
pub struct ServingListeners {
    /// Dropping a sender lets the thread of one listener end.
    stop_senders: Vec<oneshot::Sender<()>>,
    /// Each ends with the thread of one listener.
    ends: Vec<oneshot::Receiver<()>>,
}

impl ServingListeners {
    /// Accepts no more connections; open ones may finish.
    pub fn stop(&mut self) {
        self.stop_senders.clear();
    }

    /// Stops, and waits at most [`END_TIMEOUT`] until open connections have their responses.
    pub async fn finish(mut self) {
        self.stop();
        let all_ended = async {
            for end in self.ends {
                // The sender is dropped, without a value, when the thread ends.
                let _ = end.await;
            }
        };
        let _ = timeout(END_TIMEOUT, all_ended).await;
    }
}

/// Serves `router` on a new thread, until the sender of `stop` is dropped. Returns the address of the listener, and a
/// receiver that ends with the thread. An error of the thread itself is only logged.
///
/// # Errors
///
/// The thread cannot be started, or its runtime cannot be built.
pub fn serve_on_thread(
    listener: TcpListener,
    router: Router,
    name: &'static str,
    stop: oneshot::Receiver<()>,
) -> io::Result<(SocketAddr, oneshot::Receiver<()>)> {
    let address = listener.local_addr()?;
    let (end_sender, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new().name(name.into()).spawn(move || {
        let _end_sender = end_sender;
        if let Err(error) = runtime.block_on(admin::serve(listener, router, stop)) {
            tracing::error!(%error, name, "a listener failed");
        }
    })?;
    Ok((address, end))
}
