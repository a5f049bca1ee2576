//! The listeners that are not for clients: admin and probes. Each is served by a thread of its own, so that operators
//! get responses even if all workers are busy. `serve/admin/` makes the responses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use axum::Router;
use tokio::sync::oneshot;

use super::listen_error::cannot_listen;
use super::output;
use crate::app::{Error, Gateway};
use crate::policy::ProcessSettings;
use crate::serve::admin;
use crate::serve::worker::inherited_sockets::InheritedSockets;

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
        let mut stop_senders = Vec::new();
        let mut serve = |listener, router, name| {
            let (stop_sender, stop) = oneshot::channel();
            let address = serve_on_thread(listener, router, name, stop)?;
            stop_senders.push(stop_sender);
            output::print_stderr(format_args!("{name} on http://{address}"));
            io::Result::Ok(())
        };
        if let Some(listener) = self.admin {
            serve(listener, admin::router(gateway.clone()), "admin")?;
        }
        if let Some(listener) = self.probes {
            serve(listener, admin::probes(gateway.clone()), "probes")?;
        }
        Ok(ServingListeners {
            _stop_senders: stop_senders,
        })
    }
}

/// Listeners that are being served. When this value is dropped, they accept no more connections; open ones may finish.
pub struct ServingListeners {
    /// Dropping a sender lets the thread of one listener end.
    _stop_senders: Vec<oneshot::Sender<()>>,
}

/// Serves `router` on a new thread, until the sender of `stop` is dropped. Returns the address of the listener. An
/// error of the thread itself is only logged.
///
/// # Errors
///
/// The thread cannot be started, or its runtime cannot be built.
pub fn serve_on_thread(
    listener: TcpListener,
    router: Router,
    name: &'static str,
    stop: oneshot::Receiver<()>,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = runtime.block_on(admin::serve(listener, router, stop)) {
            tracing::error!(%error, name, "a listener failed");
        }
    })?;
    Ok(address)
}
