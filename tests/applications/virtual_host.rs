//! A server that serves by the name in `Host`, and refuses all other names.

use std::net::TcpListener;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::Signal;

use crate::common::child::{Guard, program};
use crate::common::{Client, Gateway};

/// The name of the server's own site.
const NAME: &str = "internal.corp.test";

const CONFIGURATION: &str = r"
daemon off; worker_processes 1; user root; pid nginx.pid; error_log error.log warn;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  server { listen {listen} default_server; return 421 refused; }
  server {
    listen {listen};
    server_name internal.corp.test;
    root files;
    location /login {
      add_header set-cookie 'sid=1; Domain=internal.corp.test; Path=/; HttpOnly' always;
      return 302 /folder/page.html;
    }
    location /away { return 302 https://www.example/page.html; }
  }
}
";

/// It ends when this is dropped.
struct Nginx(Guard);

impl Drop for Nginx {
    /// Killed, it would leave its worker.
    fn drop(&mut self) {
        self.0.signal(Signal::TERM);
        self.0.ended();
    }
}

#[test]
fn nginx_by_the_name_that_it_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    put(
        "nginx.conf",
        &CONFIGURATION.replace("{listen}", &address.to_string()),
    );
    std::fs::create_dir_all(folder.path().join("files/folder")).unwrap();
    put("files/folder/page.html", "a page");
    let prefix = folder.path().to_str().unwrap();
    let arguments = ["-p", prefix, "-c", "nginx.conf", "-e", "error.log"];
    // It cannot choose a free port, but takes a socket that listens.
    let mut command = program("/usr/sbin/nginx", folder.path(), &arguments);
    command.env("NGINX", "3;");
    let socket = FdMapping {
        parent_fd: listener.into(),
        child_fd: 3,
    };
    command.fd_mappings(vec![socket]).unwrap();
    let _nginx = Nginx(Guard(command.spawn().expect("nginx: make tools")));

    let upstreams = format!(
        "upstreams: {{ intranet: {{ servers: [\"http://{{upstream}}\"], host: {NAME} }}, \
         unnamed: \"http://{{upstream}}\" }}\n"
    );
    let gateway = Gateway::start(
        address,
        &upstreams,
        &[
            (
                "intranet",
                "match: /intranet/**\nupstream: intranet\nstrip: /intranet\nmap_back: true\n",
            ),
            ("rest", "match: /**\nupstream: unnamed\n"),
        ],
    );
    let mut client = gateway.connect();
    let mut get = |path: &str| get(&mut client, path);
    // Without `host` the server refuses.
    assert_eq!(get("/folder/page.html").status(), 421);
    let page = get("/intranet/folder/page.html");
    assert_eq!((page.status(), page.text()), (200, "a page".to_owned()));
    // nginx redirects to its own name and port.
    let moved = get("/intranet/folder");
    assert_eq!(moved.status(), 301);
    assert_eq!(moved.field("location"), Some("/intranet/folder/"));
    let login = get("/intranet/login");
    assert_eq!(login.field("location"), Some("/intranet/folder/page.html"));
    assert_eq!(
        login.field("set-cookie"),
        Some("sid=1; Path=/intranet; HttpOnly")
    );
    assert_eq!(get("/intranet/folder/page.html").status(), 200);
    let away = get("/intranet/away");
    assert_eq!(
        away.field("location"),
        Some("https://www.example/page.html")
    );
}

fn get(client: &mut Client, path: &str) -> crate::common::Message {
    client.send(format!(
        "GET {path} HTTP/1.1\r\nhost: www.shop.test\r\n\r\n"
    ));
    client.answer()
}
