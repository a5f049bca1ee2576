//! Who a client says it is, by credential and by name: what a server would take for somebody's is counted
//! as that somebody's, or refused, or not passed on.

use crate::case::Site;
use crate::common::child;
use crate::limits::{FEW, admitted, over_connections};

const BY_USER: &str = "match: /**\nupstream: up\nlimits: { few: { key: user, rate: 5/h } }\n";

const KEYS: &str = "identity: { token: { header: x-api-key }, user: { api_keys: keys.yaml } }\n";

/// Whoever is known by a key the server knows too cannot hide it from the gateway.
#[test]
fn by_spellings_of_the_credential() {
    let shapes = [
        "x-api-key: {}",
        "X-API-KEY:{}",
        "x-api-key: \t {} \t",
        "x-api-key: {}\r\nx-api-key: {}",
        "x-api-key: {}\r\nX-Api-Key: other",
        "x-api-key: other\r\nx-api-key: {}",
        "x-api-key:\r\nx-api-key: {}",
        "x_api_key: {}",
        "x-api_key: {}",
        "x.api.key: {}",
        "x-api.key: {}",
        "x_api_key: {}\r\nx-api-key: other",
        "connection: x-api-key\r\nx-api-key: {}",
        "tollgate-user: bob\r\nx-api-key: {}",
        "x-user: bob\r\nx-api-key: {}",
    ];
    let site = keyed(KEYS, BY_USER);
    let requests = shapes.map(|shape| {
        format!(
            "GET /a HTTP/1.1\r\nhost: t\r\n{}\r\n\r\n",
            shape.replace("{}", "ann-key")
        )
    });
    for _ in 0..3 {
        over_connections(&site, requests.clone());
    }
    let trailer = "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ntrailer: x-api-key\r\n\r\n\
                   0\r\nx-api-key: ann-key\r\nx_api_key: ann-key\r\ntollgate-user: bob\r\n\r\n";
    over_connections(&site, [trailer.to_owned()]);
    let seen = site.recorder.take();
    assert_eq!(seen.unclean, Vec::<String>::new());
    let with_key = seen.requests.iter().filter(|request| {
        let mut fields = request.fields.iter().chain(&request.trailers);
        fields.any(|(_, value)| value.contains("ann-key"))
    });
    let with_key: Vec<_> = with_key.collect();
    assert_eq!(
        with_key.len(),
        FEW,
        "somebody lost the key on the way {with_key:?}"
    );
    let named = seen
        .requests
        .iter()
        .filter(|request| request.field("tollgate-user").is_some());
    assert_eq!(named.count(), FEW);
}

/// The same where it stands in other places.
#[test]
fn by_credentials_in_other_places() {
    let get =
        |target: &str, field: &str| format!("GET {target} HTTP/1.1\r\nhost: t\r\n{field}\r\n");
    let cases: [(&str, Vec<String>); 4] = [
        (
            "identity: { token: { bearer: true }, user: { api_keys: keys.yaml } }\n",
            [
                "Bearer ann-key",
                "bearer ann-key",
                "BEARER  ann-key",
                "Bearer\tann-key",
                "Bearer \t ann-key",
                "Bearer ann-key\r\nauthorization: Bearer ann-key",
                "Basic eA==\r\nauthorization: Bearer ann-key",
                "Bearer other\r\nAuthorization: Bearer ann-key",
                "Bearer ann-key\r\nauthorization: Basic eA==",
                // Express' `split(' ')[1]`, `slice(7)` and `replace('Bearer ', '')`, and Rails.
                "Bearer ann-key x",
                "Bearer ann-key , x",
                "Bearer ann-key,x",
                "Bearer\tann-key\tx",
                "X ann-key",
                "Basic xann-key",
                "ann-key",
                "Bearerann-key",
                "Token ann-key",
                "Bearer token=ann-key",
                "Bearer token=\"ann-key\", x=1",
            ]
            .iter()
            .map(|value| get("/a", &format!("authorization: {value}\r\n")))
            .collect(),
        ),
        (
            "identity: { token: { header: authorization }, user: { api_keys: keys.yaml } }\n",
            [
                "Token ann-key",
                "token   ann-key",
                "TOKEN\tann-key",
                "X ann-key",
                "ann-key",
                "Token ann-key x",
                "Token ann-key, x=1",
            ]
            .iter()
            .map(|value| get("/a", &format!("authorization: {value}\r\n")))
            .collect(),
        ),
        (
            "identity: { token: { query: key }, user: { api_keys: keys.yaml } }\n",
            [
                "/a?key=ann-key",
                "/a?key=ann%2dkey",
                "/a?%6bey=ann-key",
                "/a?key=ann-key&key=ann-key",
                "/a?key=x&key=ann-key",
                "/a?key=ann-key&key=x",
                "/a?key=&key=ann-key",
                "/a?x&key=ann-key#",
                "/a?key=ann-key&%6bey=x",
                // PHP, Rack, qs, ASP.NET, Perl.
                "/a?key=x&+key=ann-key",
                "/a?key=x&%20key=ann-key",
                "/a?key=x&key%00y=ann-key",
                "/a?key=x&key[]=ann-key",
                "/a?key=x&key[y]=ann-key",
                "/a?key=x&[key]=ann-key",
                "/a?key=x&KEY=ann-key",
                "/a?key=ann-key;x",
                "/a?y=1;key=ann-key",
                "/a?key=ann-key%20",
                "/a?key=ann-key%00x",
            ]
            .iter()
            .map(|target| get(target, ""))
            .collect(),
        ),
        (
            "identity: { token: { cookie: key }, user: { api_keys: keys.yaml } }\n",
            [
                "key=ann-key",
                "a=b; key=ann-key",
                "key=\"ann-key\"",
                "key=ann-key; key=ann-key",
                "key=x; key=ann-key",
                "key=ann-key; key=x",
                "key=ann-key\r\ncookie: key=x",
                "a=b\r\ncookie: key=ann-key",
                " key = ann-key ",
                // Express and PHP decode escapes, Python's http.cookies backslashes.
                "key=%61nn-key",
                "key=ann%2dkey",
                "key=\"%61nn-key\"",
                "key=\"\\141nn-key\"",
                "key=\"a\\nn-key\"",
                "key=x; key[]=ann-key",
                "key=x; key[y]=ann-key",
                "key[]=ann-key",
                "KEY=ann-key; key=x",
                "a=b, key=ann-key; key=x",
                "key=ann-key%20",
            ]
            .iter()
            .map(|value| get("/a", &format!("cookie: {value}\r\n")))
            .collect(),
        ),
    ];
    for (identity, requests) in cases {
        let site = keyed(identity, BY_USER);
        for _ in 0..3 {
            over_connections(&site, requests.clone());
        }
        let seen = site.recorder.take();
        assert_eq!(seen.unclean, Vec::<String>::new());
        assert_eq!(seen.requests.len(), FEW, "{identity}");
    }
}

const FORM: &str = "application/x-www-form-urlencoded";

fn post(target: &str, kind: &str, body: &str) -> String {
    let kind = match kind {
        "" => String::new(),
        kind => format!("content-type: {kind}\r\n"),
    };
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nhost: t\r\n{kind}content-length: {length}\r\n\r\n{body}")
}

/// Rack's `params`, Go's `FormValue` and PHP's `$_REQUEST` read the credential of the query from forms too, Laravel and
/// Rails from JSON.
#[test]
fn by_credentials_of_the_query_in_bodies() {
    let parts = "--x\r\ncontent-disposition: form-data; name=\"key\"\r\n\r\nann-key\r\n--x--\r\n";
    let long = format!("f={}&key=ann-key", "x".repeat(1_100_000));
    let requests = |target: &str| {
        let mut all: Vec<_> = [
            (FORM, "key=ann-key"),
            (FORM, "a=b&%6bey=ann%2Dkey"),
            (FORM, "KEY=ann-key"),
            (FORM, "key[]=ann-key"),
            (FORM, "key=ann-key&key=x"),
            (FORM, "a=b;key=ann-key"),
            (FORM, "key=ann-key%00x"),
            (FORM, "+key=+ann-key+"),
            (FORM, &long),
            ("", "key=ann-key"),
            ("application/x-www-form-urlencoded x", "key=ann-key"),
            (
                "application/x-www-form-urlencoded,x; a=\"b\"",
                "key=ann-key",
            ),
            ("application/json", "{\"key\":\"ann-key\"}"),
            ("application/json", "{\"a\":\"&key=ann-key&\"}"),
            ("text/x-json", "{\"key\":\"ann-key\"}"),
            ("application/octet-stream", "{\"key\":\"ann-key\"}"),
            ("text/plain", "key=ann-key"),
            ("multipart/form-data; boundary=x", parts),
            ("multipart/form-data; boundary=x", &parts[..parts.len() - 6]),
            ("multipart/form-data", parts),
        ]
        .iter()
        .map(|(kind, body)| post(target, kind, body))
        .collect();
        let gzip = format!("{FORM}\r\ncontent-encoding: gzip");
        all.push(post(target, &gzip, "key=ann-key"));
        all.push(post(target, FORM, "key=ann-key").replace("POST", "PUT"));
        all.push(format!(
            "POST {target} HTTP/1.1\r\nhost: t\r\ncontent-type: {FORM}\r\ntransfer-encoding: chunked\r\n\r\n\
             4\r\nkey=\r\n7\r\nann-key\r\n0\r\n\r\n"
        ));
        all
    };
    let by_token = "match: /**\nupstream: up\nlimits: { few: { key: token, rate: 5/h } }\n";
    let query = "identity: { token: { query: key } }\n";
    let keys = "identity: { token: { query: key }, user: { api_keys: keys.yaml } }\n";
    for (identity, policy) in [(query, by_token), (keys, by_token), (keys, BY_USER)] {
        let site = keyed(identity, policy);
        for _ in 0..3 {
            over_connections(&site, requests("/a"));
            over_connections(&site, requests("/a?key=ann-key"));
            over_connections(&site, requests("/a?key=other"));
        }
        admitted(&site, FEW);
        let field = format!("content-type: {FORM}");
        for (body, status) in [("key=ann-key", "200 "), ("key=ann-key&key=x", "400 ")] {
            let question = ["explain", "POST", "/a", "-H", &*field, "--body", body];
            let ended = child::run(site.gateway.folder.path(), &question);
            assert!(ended.out.starts_with(status), "{body}: {}", ended.out);
        }
    }
}

/// Bodies that nobody joins with the query are passed on unread, whatever is in them.
#[test]
fn what_has_no_fields_has_no_credential() {
    let by_token = "match: /**\nupstream: up\nlimits: { few: { key: token, rate: 5/h } }\n";
    let site = keyed("identity: { token: { query: key } }\n", by_token);
    let long = "x".repeat(1_100_000);
    for (kind, body) in [
        ("application/json", "{\"keys\":\"other\"}"),
        ("text/plain", "say key=other"),
        ("application/octet-stream", &long),
        (FORM, "a=b&keys=other"),
        (FORM, "key="),
    ] {
        over_connections(&site, [post("/a?key=ann-key", kind, body)]);
        let seen = site.recorder.take().requests.pop().unwrap();
        assert!(seen.body == body.as_bytes(), "{kind}");
    }
    over_connections(&site, [post("/a?key=ann-key", FORM, "a=b")]);
    admitted(&site, 0);
    let lines = "{\"a\":1}\n".repeat(150_000);
    let image = "\0".repeat(1_100_000);
    let streams = [
        ("application/x-ndjson", &*lines),
        ("image/png", &image),
        ("application/jsonl", &lines),
        ("application/octet-stream", &image),
        ("application/grpc-web", "{\"key\":\"other\"}"),
    ];
    over_connections(
        &site,
        streams.map(|(kind, body)| post("/a?key=bob-key", kind, body)),
    );
    admitted(&site, FEW);
}

fn keyed(identity: &str, policy: &str) -> Site {
    let keys = "ann-key: ann\n";
    Site::with_files(identity, &[("all", policy)], &[("keys.yaml", keys)])
}

/// A header by which only trusted peers name the user is nothing from a stranger.
#[test]
fn by_names_of_one_s_own() {
    let identity = "identity: { user: { header: x-user, from: [10.0.0.0/8] } }\n";
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: [ip, user], rate: 5/h } }\n";
    let site = Site::start(identity, &[("all", policy)]);
    let names = [
        "x-user",
        "X-User",
        "x_user",
        "tollgate-user",
        "tollgate_user",
        "x-forwarded-user",
        "remote-user",
    ];
    over_connections(
        &site,
        (0..40).map(|number| {
            let name = names[number % names.len()];
            format!(
                "GET /a HTTP/1.1\r\nhost: t\r\n{name}: user{number}\r\nconnection: {name}\r\n\r\n"
            )
        }),
    );
    admitted(&site, FEW);
}

/// An address in a body is one however it is spelled; a body that does not clearly name one is refused.
#[test]
fn by_spellings_of_an_email() {
    let login = "match: POST /login\nupstream: up\nrequire: email\nlimits: { few: { key: email, rate: 5/h } }\n";
    let site = Site::start(
        "identity: { email: { body: email } }\n",
        &[("login", login)],
    );
    let json = [
        r#"{"email":"ann@b.test"}"#,
        r#"{ "email" : " ANN@B.test " }"#,
        r#"{"EMAIL":"ann@b.test"}"#,
        r#"{"\u0065mail":"ann@b.test"}"#,
        r#"{"email":"\u0061nn@b.test"}"#,
        r#"{"email":"ann@b.test","email":"ann@b.test"}"#,
        r#"{"email":"x@b.test","Email":"ann@b.test"}"#,
        r#"{"a":{"email":"x@b.test"},"email":"ann@b.test"}"#,
        r#"{"email":["ann@b.test"]}"#,
        r#"{"email":"ann@b.test",}"#,
        r#"{"email":"ann@b.test"} {"email":"x@b.test"}"#,
        "\u{feff}{\"email\":\"ann@b.test\"}",
        r#"[{"email":"ann@b.test"}]"#,
    ];
    let forms = [
        "email=ann%40b.test",
        "email=ann@b.test&email=ann@b.test",
        "email=x@b.test&email=ann@b.test",
        "%65mail=ANN@b.test",
        "Email=ann@b.test",
        "x=1&email=+ann@b.test+",
    ];
    let with = |kind: &str, body: &str| {
        let length = body.len();
        let head = format!("POST /login HTTP/1.1\r\nhost: t\r\ncontent-type: {kind}\r\n");
        [
            format!("{head}content-length: {length}\r\n\r\n{body}"),
            format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
            format!("{head}content-encoding: gzip\r\ncontent-length: {length}\r\n\r\n{body}"),
        ]
    };
    for kind in [
        "application/json",
        "text/plain",
        "multipart/form-data; boundary=x",
        "",
    ] {
        over_connections(&site, json.iter().flat_map(|body| with(kind, body)));
    }
    let form = "application/x-www-form-urlencoded";
    over_connections(&site, forms.iter().flat_map(|body| with(form, body)));
    admitted(&site, FEW);
}

/// Node without a listener for it, Go and PHP serve a request that asks for another protocol as any other.
#[test]
fn by_an_email_beside_an_upgrade() {
    let login = "match: /login\nupstream: up\nlimits: { few: { key: email, rate: 5/h } }\n";
    let site = Site::start(
        "identity: { email: { body: email } }\n",
        &[("login", login)],
    );
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let get =
        |fields: &str| format!("GET /login?email=ann@b.test HTTP/1.1\r\nhost: t\r\n{fields}\r\n");
    let form = post("/login", FORM, "email=ann@b.test");
    let requests = [
        get(""),
        get(upgrade),
        form.replace("content-type", &format!("{upgrade}content-type")),
    ];
    for _ in 0..6 {
        over_connections(&site, requests.clone());
    }
    admitted(&site, FEW);
}

/// Bodies that at least one of PHP, Express, Rack, Django, Go, Spring, ASP.NET and lenient readers of JSON take
/// for ann's, and others for another's or for nobody's: counted as ann's, or refused.
#[test]
fn by_bodies_that_are_read_in_several_ways() {
    let login = "match: /login\nupstream: up\nlimits: { few: { key: email, rate: 5/h } }\n";
    let site = Site::start(
        "identity: { email: { body: user.email } }\n",
        &[("login", login)],
    );
    let forms = [
        "user[email]=x@b.test&+user[email]=ann@b.test",
        "user[email]=x@b.test&user%00[email]=ann@b.test&user[email]=ann@b.test",
        "user[email]=x@b.test&user[email][]=ann@b.test",
        "user[email]=x@b.test&user.email=ann@b.test",
        "user[email]=x@b.test&user_email=ann@b.test",
        "user[email]=x@b.test&USER[Email]=ann@b.test",
        "user[email]=x@b.test;user[email]=ann@b.test",
        "user[email]=ann@b.test;x",
        "user[email]=ann@b.test%00x",
        "user[email]=ann%zz@b.test&user[email]=ann@b.test",
        "{\"user\":{\"email\":\"ann@b.test\"},\"x\":\"&user[email]=x@b.test\"}",
        "user[email]=%22ann%22@b.test",
        "user[email]=Ann+<ann@b.test>",
        "user[email]=ann@b.test,x@b.test",
        "user[email]=mailto:ann@b.test",
    ];
    let json = [
        r#"{"user":{"email":"ann＠b.test"}}"#,
        r#"{"user":{"email":"ann@b.test."}}"#,
        r#"{"user":{"email":"ａｎｎ@b.test"}}"#,
        r#"{"user":{"email":"a\u00adnn@b。test"}}"#,
        r#"{"user":{"email":["ann@b.test"]}}"#,
        r#"{"user":{"email":["ann@b.test","x@b.test"]}}"#,
        r#"{"user":[{"email":"ann@b.test"}]}"#,
        r#"{"user":{"email":"x@b.test"},"USER":{"email":"ann@b.test"}}"#,
        r#"{"user":{"email":"x@b.test"},"user.email":"ann@b.test"}"#,
        r#"{"user":{"email":"x@b.test","email\u0000":"ann@b.test"}}"#,
        r#"{"user":{"email":"ann@b.test",}}"#,
        r#"{'user':{'email':'ann@b.test'}}"#,
        r#"/**/{"user":{"email":"ann@b.test"}}"#,
        r#"{"user":{"email":"ann@b.test"}}{}"#,
    ];
    let part = "--x\r\ncontent-disposition: form-data; ";
    let parts = [
        format!("{part}name=\"user[email]\"\r\n\r\nann@b.test\r\n--x--\r\n"),
        format!("{part}name='user[email]'\r\n\r\nann@b.test\r\n--x--\r\n"),
        format!("{part}name*=utf-8''user[email]\r\n\r\nann@b.test\r\n--x--\r\n"),
        format!("{part}name=\"user[email]\"; filename=\"\"\r\n\r\nann@b.test\r\n--x--\r\n"),
        format!("a\r\n{part}name=\"user[email]\"\r\n\r\nann@b.test\r\n--x--\r\n"),
        format!("{part}name=\"user[email]\"\r\n\r\nann@b.test"),
    ];
    let send = |method: &str, kind: &str, body: &str| {
        let kind = if kind.is_empty() {
            String::new()
        } else {
            format!("content-type: {kind}\r\n")
        };
        let length = body.len();
        format!(
            "{method} /login HTTP/1.1\r\nhost: t\r\n{kind}content-length: {length}\r\n\r\n{body}"
        )
    };
    let form = "application/x-www-form-urlencoded";
    for method in ["POST", "PUT", "GET"] {
        over_connections(&site, forms.iter().map(|body| send(method, form, body)));
        for kind in ["application/json", "", form, "text/plain"] {
            over_connections(&site, json.iter().map(|body| send(method, kind, body)));
        }
        let kind = "multipart/form-data; boundary=x";
        over_connections(&site, parts.iter().map(|body| send(method, kind, body)));
        let gzip = "application/json\r\ncontent-encoding: gzip";
        over_connections(&site, [send(method, gzip, json[0])]);
        // `$_REQUEST`, `FormValue`, `params` and `getParameter` read query and body as one.
        for (query, body) in [
            ("user[email]=ann@b.test", ""),
            ("user[email]=ann@b.test", "user[email]=x@b.test"),
            ("user[email]=x@b.test", "user[email]=ann@b.test"),
            ("+user[email]=ann@b.test", "a=b"),
        ] {
            let request = send(method, form, body).replace("/login", &format!("/login?{query}"));
            over_connections(&site, [request]);
        }
        let wide = "application/json; charset=utf-16";
        over_connections(&site, [send(method, wide, json[0])]);
    }
    admitted(&site, FEW);
}
