//! Files of up to 1 MiB that are made to take long: an import of each ends soon, and what it writes stays small.

use std::fmt::Write;
use std::time::Duration;

use tollgate::base::clock::Clock;
use tollgate::import::{self, ImportError, Imported, InputFile, SourceFormat};

/// The longest time of an import in a build without optimisations, on a machine that does other work too.
const LONGEST: Duration = Duration::from_secs(120);

#[track_caller]
fn check(format: SourceFormat, name: &str, text: String) -> Result<Imported, ImportError> {
    assert!(text.len() < 1 << 20, "{name} has {} bytes", text.len());
    let path = "source".to_owned();
    let clock = Clock::system();
    let begin = clock.wall();
    let result = import::import(format, &[InputFile { path, text }]);
    let elapsed = clock.wall().saturating_sub(begin);
    let outcome = match &result {
        Ok(imported) => {
            let size: usize = imported.files.iter().map(|file| file.text.len()).sum();
            assert!(size < 8 << 20, "{name}: {size} bytes");
            format!("{size} bytes")
        }
        Err(error) => error.to_string(),
    };
    println!("{name}: {elapsed:?}, {outcome}");
    assert!(elapsed < LONGEST, "{name}: {elapsed:?}");
    result
}

const TRAEFIK_SERVICE: &str =
    "  services: { s: { loadBalancer: { servers: [{ url: \"http://127.0.0.1:3000\" }] } } }\n";

/// Routers with these middlewares, each with a path of its own.
fn traefik(routers: usize, middlewares: &str, rest: &str) -> String {
    let mut text = "http:\n  routers:\n".to_owned();
    for number in 0..routers {
        let _ = writeln!(
            text,
            "    r{number}: {{ rule: \"Path(`/{number}`)\", middlewares: [{middlewares}], service: s }}"
        );
    }
    text + rest + TRAEFIK_SERVICE
}

fn numbers(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect::<Vec<String>>().join(", ")
}

#[test]
fn rules_of_traefik() {
    let router = |rule: String| {
        format!("http:\n  routers: {{ a: {{ rule: \"{rule}\", service: s }} }}\n{TRAEFIK_SERVICE}")
    };
    let joined = ["PathPrefix(`/a`)"; 40_000].join(" && ");
    let _ = check(SourceFormat::Traefik, "conjunctions", router(joined));
    let joined = ["Path(`/a`)"; 60_000].join(" || ");
    let _ = check(SourceFormat::Traefik, "alternatives", router(joined));
    let few = format!("({})", ["PathPrefix(`/a`, `/b`)"; 60].join(" || "));
    let _ = check(
        SourceFormat::Traefik,
        "products",
        router(vec![few; 600].join(" && ")),
    );
    let hosts = numbers(250, |number| format!("`h{number}.example`"));
    let lists = vec![format!("Host({hosts})"); 200].join(" && ");
    let _ = check(SourceFormat::Traefik, "lists", router(lists));
    let methods = numbers(250, |number| format!("`M{number}`"));
    let lists = vec![format!("Method({methods})"); 400].join(" && ");
    let _ = check(SourceFormat::Traefik, "methods", router(lists));
    let mut text = "http:\n  routers:\n".to_owned();
    for number in 0..1_900 {
        let path = "/a".repeat(60);
        let _ = writeln!(
            text,
            "    r{number}: {{ rule: \"PathPrefix(`{path}/{number}`) && Header(`x`, `y`)\", middlewares: [m{number}], service: s }}"
        );
    }
    let _ = check(SourceFormat::Traefik, "long paths", text + TRAEFIK_SERVICE);
}

#[test]
fn middlewares_of_traefik() {
    let networks = numbers(250, |number| format!("127.{number}.0.0/16"));
    let lists =
        format!("  middlewares: {{ m: {{ ipAllowList: {{ sourceRange: [{networks}] }} }} }}\n");
    let result = check(
        SourceFormat::Traefik,
        "networks",
        traefik(1_900, "m", &lists),
    );
    assert!(result.is_err(), "each policy would have all networks");
    let headers = numbers(10_000, |number| format!("x-{number}: a"));
    let lists = format!(
        "  middlewares: {{ m: {{ headers: {{ customRequestHeaders: {{ {headers} }} }} }} }}\n"
    );
    let result = check(
        SourceFormat::Traefik,
        "headers",
        traefik(1_900, "m", &lists),
    );
    assert!(result.is_err(), "each router would read all headers");
    let chain = numbers(20_000, |_| "m".into());
    let lists = format!("  middlewares: {{ m: {{ chain: {{ middlewares: [{chain}] }} }} }}\n");
    let _ = check(SourceFormat::Traefik, "chains", traefik(1_900, "m", &lists));
    let limits = numbers(60, |number| {
        format!(
            "m{number}: {{ rateLimit: {{ average: 5, sourceCriterion: {{ requestHeaderName: x-{number} }} }} }}"
        )
    });
    let lists = format!(
        "  middlewares: {{ {limits}, m: {{ chain: {{ middlewares: [{}] }} }} }}\n",
        numbers(60, |number| format!("m{number}"))
    );
    let _ = check(SourceFormat::Traefik, "limits", traefik(1_900, "m", &lists));
}

#[test]
fn services_and_entry_points_of_traefik() {
    let servers = numbers(490, |number| {
        format!(
            "{{ url: \"http://127.0.{}.{}:80\" }}",
            number / 250,
            number % 250
        )
    });
    let mut text = "http:\n  routers:\n".to_owned();
    for number in 0..900 {
        let _ = writeln!(
            text,
            "    r{number}: {{ rule: \"Path(`/{number}`)\", service: w{number} }}"
        );
    }
    let _ = writeln!(
        text,
        "  services:\n    big: {{ loadBalancer: {{ servers: [{servers}] }} }}"
    );
    for number in 0..900 {
        let _ = writeln!(
            text,
            "    o{number}: {{ loadBalancer: {{ servers: [{{ url: \"http://127.1.0.1:{}\" }}] }} }}",
            number + 1
        );
        let _ = writeln!(
            text,
            "    w{number}: {{ weighted: {{ services: [{{ name: big }}, {{ name: o{number} }}] }} }}"
        );
    }
    let _ = check(SourceFormat::Traefik, "servers", text);
    let points = numbers(60, |number| {
        format!(
            "e{number}: {{ address: \":{}\", http: {{ middlewares: [m{number}] }} }}",
            8_000 + number
        )
    });
    let text = format!("entryPoints: {{ {points} }}\n{}", traefik(1_900, "m", ""));
    assert!(check(SourceFormat::Traefik, "entry points", text).is_err());
}

/// Routes of one service, each with a path of its own.
fn kong(routes: usize, rest: &str) -> String {
    let mut text = "_format_version: \"3.0\"\nservices:\n  - name: s\n    url: http://127.0.0.1:3000\n    routes:\n".to_owned();
    for number in 0..routes {
        let _ = writeln!(text, "      - {{ name: r{number}, paths: [/{number}] }}");
    }
    text + rest
}

#[test]
fn plugins_of_kong() {
    let twice = "  - { name: cors }\n".repeat(5_000);
    assert!(
        check(
            SourceFormat::Kong,
            "twice",
            kong(1_900, &format!("plugins:\n{twice}"))
        )
        .is_err()
    );
    let networks = numbers(250, |number| format!("127.{number}.0.0/16"));
    let plugins =
        format!("plugins:\n  - {{ name: ip-restriction, config: {{ deny: [{networks}] }} }}\n");
    assert!(check(SourceFormat::Kong, "networks", kong(1_900, &plugins)).is_err());
    let headers = numbers(20_000, |number| format!("x-{number}"));
    let plugins = format!(
        "plugins:\n  - {{ name: request-transformer, config: {{ remove: {{ headers: [{headers}] }} }} }}\n"
    );
    assert!(check(SourceFormat::Kong, "headers", kong(1_900, &plugins)).is_err());
    let mut text = kong(1_900, "plugins:\n");
    for number in 0..32 {
        let sizes = numbers(7, |size| (1 + number * 10 + size).to_string());
        let _ = writeln!(
            text,
            "  - {{ name: rate-limiting-advanced{}, config: {{ namespace: n, limit: [1, 2, 3, 4, 5, 6, 7], window_size: [{sizes}] }} }}",
            if number == 0 {
                String::new()
            } else {
                format!(", route: r{number}")
            }
        );
    }
    let _ = check(SourceFormat::Kong, "namespace", text);
    let body = "x".repeat(4_000);
    let plugins =
        format!("plugins:\n  - {{ name: request-termination, config: {{ body: {body} }} }}\n");
    assert!(check(SourceFormat::Kong, "bodies", kong(1_900, &plugins)).is_err());
}

#[test]
fn routes_and_targets_of_kong() {
    let hosts = numbers(250, |number| format!("h{number}.example"));
    let paths = numbers(250, |number| format!("/p{number}"));
    let route = format!(
        "  - {{ name: s, url: \"http://127.0.0.1:3000\", routes: [{{ hosts: [{hosts}], paths: [{paths}] }}] }}\n"
    );
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n{}",
        route.repeat(80).replace("name: s, ", "")
    );
    assert!(check(SourceFormat::Kong, "hosts and paths", text).is_err());
    let targets = numbers(490, |number| {
        format!(
            "{{ target: \"127.0.{}.{}:80\" }}",
            number / 250,
            number % 250
        )
    });
    let mut text = format!(
        "_format_version: \"3.0\"\nupstreams: [{{ name: u, targets: [{targets}] }}]\nservices:\n"
    );
    for number in 0..1_900 {
        let _ = writeln!(
            text,
            "  - {{ name: s{number}, host: u, retries: {number}, routes: [{{ name: r{number}, paths: [/{number}] }}] }}"
        );
    }
    assert!(check(SourceFormat::Kong, "targets", text).is_err());
}

#[test]
fn rules_of_haproxy() {
    let head = "defaults\n mode http\nbackend app\n server s 127.0.0.1:3000\nfrontend f\n bind :80\n default_backend app\n";
    let mut text = head.to_owned();
    for number in 0..12_000 {
        let _ = writeln!(text, " acl all path_beg /p{}/ /q{number}/", number % 400);
    }
    for number in 0..10_000 {
        let _ = writeln!(
            text,
            " http-request deny if all !METH_GET {{ src 127.0.{}.{} }}",
            number / 250,
            number % 250
        );
    }
    let _ = check(SourceFormat::Haproxy, "one list of many", text);
    let mut text = head.to_owned();
    for number in 0..250 {
        let _ = writeln!(
            text,
            " acl h{number} hdr(host) h{number}.example\n acl p{number} path_beg /p{number}/"
        );
    }
    for number in 0..6_000 {
        let _ = writeln!(
            text,
            " http-request deny unless h{} || p{} || h{} p{}",
            number % 250,
            number % 249,
            number % 247,
            number % 243
        );
    }
    let _ = check(SourceFormat::Haproxy, "many conditions", text);
    let mut text = head.to_owned();
    text.push_str(" stick-table type ip size 1m expire 1h store http_req_rate(10s)\n");
    for number in 0..3_000 {
        let _ = writeln!(
            text,
            " http-request track-sc{} src if {{ path_beg /p{}/ }}",
            number % 3,
            number % 500
        );
        let _ = writeln!(
            text,
            " http-request deny if {{ path_beg /p{}/ }} {{ sc_http_req_rate({}) gt {} }}",
            number % 500,
            number % 3,
            number + 1
        );
    }
    let _ = check(SourceFormat::Haproxy, "many limits", text);
}
