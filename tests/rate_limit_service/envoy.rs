//! Envoy with the files of examples/doors/envoy. Its clients get exactly what the limit admits, refusals with all fields, and
//! in each failure of tollgate what Envoy's configuration says.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;

use super::common::child::{self, Guard};
use super::common::redis::{Redis, free_port};
use super::common::{Client, Gateway, Message, Upstream, wait_until};
use tollgate::base::clock::{Clock, Nanos};

/// What the limit of the example admits in a minute.
const ADMITTED: usize = 40;
/// Clients that send requests at the same time, and how many each sends.
const CLIENTS: usize = 32;
const REQUESTS: usize = 10;

/// Envoy, and the server behind it.
struct Scene {
    _envoy: Guard,
    server: Upstream,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

fn example(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("examples/doors/envoy").join(name)
}

/// The file of Envoy with time for a machine that is slow.
fn patient(text: String) -> String {
    text.replace("timeout: 0.1s", "timeout: 10s")
}

/// A gateway with the files of the example, and `more` in the gateway file. `rate` replaces that of the policy.
fn start_gateway(more: &str, rate: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    let file = std::fs::read_to_string(example("tollgate.yaml")).unwrap();
    let file = file.replace("127.0.0.1:8081", "127.0.0.1:0");
    let file = format!("{file}admin: off\naccess_log: off\nworkers: 2\n{more}");
    std::fs::write(folder.path().join("tollgate.yaml"), file).unwrap();
    let policy = std::fs::read_to_string(example("policies/api.yaml")).unwrap();
    let policy = policy.replace("rate: 40/m", rate);
    std::fs::write(folder.path().join("policies/api.yaml"), policy).unwrap();
    Gateway::start_in(folder, Clock::system())
}

impl Scene {
    /// Starts Envoy with the file of the example, which asks at `door`. `change` changes the file.
    fn start(door: u16, change: impl FnOnce(String) -> String) -> Scene {
        let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/envoy/envoy/_bin/envoy");
        assert!(binary.exists(), "Envoy is missing: run `make tools`");
        let server = Upstream::plain();
        let folder = tempfile::tempdir().unwrap();
        let clients = free_port();
        let text = std::fs::read_to_string(example("envoy.yaml")).unwrap();
        let text = text
            .replace("port_value: 8081", &format!("port_value: {door}"))
            .replace("port_value: 8080", &format!("port_value: {clients}"))
            .replace(
                "port_value: 3000",
                &format!("port_value: {}", server.address.port()),
            );
        std::fs::write(folder.path().join("envoy.yaml"), change(text)).unwrap();
        let arguments = [
            "--config-path",
            "envoy.yaml",
            "--concurrency",
            "2",
            "--log-level",
            "error",
            "--use-dynamic-base-id",
        ];
        let mut command = child::program(binary.to_str().unwrap(), folder.path(), &arguments);
        let mut envoy = Guard(command.spawn().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], clients));
        let said = envoy.said();
        wait_until("Envoy listens", || {
            if let Ok(Some(status)) = envoy.0.try_wait() {
                let said: Vec<String> = said.try_iter().collect();
                panic!("Envoy: {status}\n{}", said.join("\n"));
            }
            TcpStream::connect(address).is_ok()
        });
        Scene {
            _envoy: envoy,
            server,
            address,
            _folder: folder,
        }
    }

    fn get(&self) -> Message {
        Client::connect(self.address).get("/")
    }

    /// The responses to the requests of all clients together.
    fn storm(&self) -> Vec<Message> {
        let clients = (0..CLIENTS).map(|_| {
            let address = self.address;
            thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..REQUESTS).map(|_| client.get("/")).collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    }
}

#[test]
fn envoy_serves_exactly_what_the_limit_admits() {
    let gateway = start_gateway("", "rate: 40/m");
    let scene = Scene::start(gateway.address.port(), patient);
    let responses = scene.storm();
    let admitted = responses.iter().filter(|response| response.status() == 200);
    assert_eq!(admitted.count(), ADMITTED);
    assert_eq!(scene.server.drain().len(), ADMITTED);
    let refused = responses.iter().filter(|response| response.status() == 429);
    assert_eq!(refused.clone().count(), CLIENTS * REQUESTS - ADMITTED);
    for response in refused {
        assert_eq!(
            response.field("ratelimit-policy"),
            Some("\"per-address\";q=40;w=60")
        );
        assert!(
            response
                .field("ratelimit")
                .unwrap()
                .starts_with("\"per-address\";r=0;t=")
        );
        let seconds: u64 = response.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds));
    }
    let admitted = responses.iter().find(|response| response.status() == 200);
    assert!(admitted.unwrap().field("ratelimit").is_some());
}

/// What the server behind Envoy learns of exceeded limits is from tollgate, never from a client.
#[test]
fn clients_cannot_forge_what_tollgate_adds_to_requests() {
    let gateway = start_gateway("", "rate: 1/m, throttle: soft 100%");
    let scene = Scene::start(gateway.address.port(), patient);
    let mut client = Client::connect(scene.address);
    let forged = "GET / HTTP/1.1\r\nhost: test\r\ntollgate-over: forged\r\ntollgate_over: forged\r\nTollgate-Over: forged\r\n\r\n";
    for expected in [&[][..], &[("tollgate-over", "per-address")]] {
        client.send(forged);
        assert_eq!(client.answer().status(), 200);
        let request = scene.server.next();
        let fields = request.fields.iter();
        let fields = fields.filter(|(name, _)| name.replace('_', "-") == "tollgate-over");
        let fields: Vec<(&str, &str)> = fields.map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fields, expected);
    }
    client.send(forged);
    assert_eq!(client.answer().status(), 429);
}

/// Envoy sends all calls that wait before it has read how many a connection may have.
#[test]
fn a_burst_of_clients_makes_no_call_fail() {
    const BURST: usize = 800;
    let redis = Redis::start();
    let store = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let gateway = start_gateway(&store, "rate: 100000/m, sharing: strict");
    wait_until("the store decides", || {
        let metrics = gateway.app.metrics();
        metrics.contains("tollgate_shared_store_up 1\n")
    });
    let scene = Scene::start(gateway.address.port(), patient);
    let mut clients: Vec<Client> = (0..BURST).map(|_| Client::connect(scene.address)).collect();
    // Each call waits for the store now.
    redis.signal(Signal::STOP);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    }
    let statuses: Vec<u16> = clients
        .iter_mut()
        .map(|client| client.answer().status())
        .collect();
    redis.signal(Signal::CONT);
    let failed = statuses.iter().filter(|status| **status != 200).count();
    assert_eq!(failed, 0, "{statuses:?}");
}

#[test]
fn without_tollgate_envoy_does_what_its_configuration_says() {
    let closed = Scene::start(free_port(), |text| text);
    assert_eq!(closed.get().status(), 500);
    let open = Scene::start(free_port(), |text| {
        text.replace("failure_mode_deny: true", "failure_mode_deny: false")
    });
    assert_eq!(open.get().status(), 200);
}

#[test]
fn a_silent_service_costs_a_request_its_timeout() {
    // Connections are accepted by the system, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let scene = Scene::start(silent.local_addr().unwrap().port(), |text| text);
    let clock = Clock::system();
    let begin = clock.now();
    assert_eq!(scene.get().status(), 500);
    assert!(clock.now().since(begin) < Nanos::from_secs(3));
}

#[test]
fn without_its_store_the_gateway_decides_as_the_limit_says() {
    let away = free_port();
    let store = format!("store: redis://127.0.0.1:{away}\n");
    let gateway = start_gateway(&store, "rate: 40/m");
    let scene = Scene::start(gateway.address.port(), patient);
    let responses = scene.storm();
    let admitted = responses
        .iter()
        .filter(|response| response.status() == 200)
        .count();
    assert!((1..=ADMITTED).contains(&admitted), "{admitted}");
    let closed = start_gateway(&store, "rate: 40/m, on_store_error: closed");
    let scene = Scene::start(closed.address.port(), patient);
    assert_eq!(scene.get().status(), 429);
}
