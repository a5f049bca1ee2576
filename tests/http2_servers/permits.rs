//! Permits count the work of a server of HTTP/2, though the client has left or the gateway waits no longer.

use tokio::sync::watch;
use tollgate::base::clock::{Clock, Nanos};

use crate::common::{Gateway, wait_until, write};
use crate::server::Server;

struct Site {
    server: Server,
    gateway: Gateway,
    clock: Clock,
    /// The server ends its work.
    done: watch::Sender<bool>,
}

impl Site {
    fn start(timeouts: &str) -> Site {
        let (done, ends) = watch::channel(false);
        let server = Server::start(move |asked| {
            let mut ends = ends.clone();
            async move {
                asked.tell(asked.path());
                if ends.wait_for(|over| *over).await.is_ok() {
                    asked.ok("fine");
                }
            }
        });
        let upstream = "servers: [\"http://{upstream}\"], protocol: h2";
        let settings = format!(
            "workers: 1\nupstreams: {{ up: {{ {upstream}, timeouts: {{ {timeouts} }} }} }}\n"
        );
        let policy = "match: /**\nupstream: up\nlimits: { parallel: { key: ip, concurrent: 3 } }\n";
        let folder = tempfile::tempdir().unwrap();
        write(&folder, server.address, &settings, &[("all", policy)]);
        let clock = Clock::manual(Nanos::from_secs(1_000));
        Site {
            gateway: Gateway::start_in(folder, clock.clone()),
            server,
            clock,
            done,
        }
    }

    fn out(&self) -> u64 {
        let permits = self
            .gateway
            .app
            .running()
            .admission
            .permits()
            .counts_by_scope();
        permits.values().sum()
    }

    #[track_caller]
    fn all_out(&self, what: &str) {
        for _ in 0..20 {
            let answer = self.gateway.connect().get("/");
            assert_eq!((answer.status(), self.out()), (429, 3), "{what}");
        }
    }

    /// Clients send this and leave.
    fn leave(&self, request: &str) {
        for _ in 0..3 {
            let mut client = self.gateway.connect();
            client.send(request);
            self.server.next();
        }
    }
}

#[test]
fn clients_leave() {
    let site = Site::start("first_byte: 30s");
    let request = "GET /a HTTP/1.1\r\nhost: t\r\n\r\n";
    site.leave(request);
    site.all_out(request);
    site.done.send_replace(true);
    wait_until(request, || site.out() == 0);
}

/// The request is taken back, and nothing shows when the server has ended.
#[test]
fn clients_leave_with_their_request_unsent() {
    let site = Site::start("first_byte: 30s");
    let request = "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\nabc";
    site.leave(request);
    site.all_out(request);
    site.clock.advance(Nanos::from_millis(10_100));
    wait_until(request, || site.out() == 0);
}

#[test]
fn the_gateway_waits_no_longer() {
    let site = Site::start("total: 300ms");
    for _ in 0..3 {
        assert_eq!(site.gateway.connect().get("/a").status(), 504);
    }
    site.all_out("504");
    site.done.send_replace(true);
    wait_until("504", || site.out() == 0);
}
