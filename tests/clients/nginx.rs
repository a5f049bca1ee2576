//! nginx as the server behind: files, uploads and trailers.

use std::net::{SocketAddr, TcpListener};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::child::Guard;
use crate::program::NGINX;

/// Who starts it may read the folder, so `root` is who serves where it may choose.
const CONFIGURATION: &str = r"
daemon off; worker_processes 1; user root; pid nginx.pid; error_log error.log warn;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000; client_max_body_size 64m;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  server {
    listen {listen};
    root files;
    location / { dav_methods PUT DELETE; }
    location /trailers { add_trailer x-checksum 42; }
    location ~ ^/(few|pair|thousand) { return 200 fine; }
  }
}
";

/// It serves `files/` of its folder.
pub struct Nginx {
    child: Guard,
    pub address: SocketAddr,
    pub folder: TempDir,
}

impl Nginx {
    /// Speaks HTTP/1.1.
    pub fn start() -> Nginx {
        Nginx::with("")
    }

    /// Speaks HTTP/2 without TLS.
    pub fn http2() -> Nginx {
        Nginx::with(" http2")
    }

    /// It cannot choose a free port, but takes a socket that listens.
    fn with(more: &str) -> Nginx {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = CONFIGURATION.replace("{listen}", &format!("{address}{more}"));
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        std::fs::create_dir(folder.path().join("files")).unwrap();
        let prefix = folder.path().to_str().unwrap();
        let arguments = ["-p", prefix, "-c", "nginx.conf", "-e", "error.log"];
        let mut command = NGINX.command(folder.path(), &arguments);
        command.env("NGINX", "3;");
        let socket = FdMapping {
            parent_fd: listener.into(),
            child_fd: 3,
        };
        command.fd_mappings(vec![socket]).unwrap();
        let nginx = Nginx {
            child: Guard(command.spawn().unwrap()),
            address,
            folder,
        };
        nginx.put("index.html", "fine");
        nginx.put("trailers", "with a checksum");
        nginx
    }

    /// Puts a file where it serves it.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.folder.path().join("files").join(name), bytes).unwrap();
    }

    /// What it has been sent.
    pub fn has(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join("files").join(name)).unwrap()
    }
}

impl Drop for Nginx {
    /// Killed, it would leave its worker.
    fn drop(&mut self) {
        self.child.signal(Signal::TERM);
        self.child.ended();
    }
}
