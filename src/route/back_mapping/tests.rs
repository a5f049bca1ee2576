//! Forms of URLs and cookies, and what becomes of them.

use super::*;

fn mapping(strip: &str, prefix: &str) -> BackMapping {
    let path_change = PathChange {
        strip: strip.into(),
        prefix: prefix.into(),
    };
    let server = |is_tls, name: &str, port| ServerOrigin {
        is_tls,
        name: name.into(),
        port,
    };
    let servers = [
        server(false, "127.0.0.1", 9001),
        server(false, "app.corp.test", 9002),
        server(false, "[::1]", 9003),
        server(true, "secure.corp.test", 443),
    ];
    BackMapping::new(&path_change, servers.into())
}

/// The place of a request to `shop.example` over TLS, where the upstream has a host of its own.
const OWN_HOST: ForwardedPlace<'_> = ForwardedPlace {
    host: "internal.corp.test",
    client_host: Some("shop.example"),
    is_tls: true,
};

/// The place of a request to `shop.example` without TLS, where the upstream gets the client's host.
const CLIENT_HOST: ForwardedPlace<'_> = ForwardedPlace {
    host: "shop.example",
    client_host: Some("shop.example"),
    is_tls: false,
};

/// Checks a table of values. An empty text stands for a value that stays.
#[track_caller]
fn check(map: impl Fn(&[u8]) -> Option<String>, cases: &[(&str, &str)]) {
    for (value, expected) in cases {
        let mapped = map(value.as_bytes());
        assert_eq!(mapped.as_deref().unwrap_or_default(), *expected, "{value}");
    }
}

#[test]
fn paths_behind_a_stripped_prefix() {
    let mapping = mapping("/data", "");
    check(
        |url| mapping.map_url(url, OWN_HOST),
        &[
            ("/foo", "/data/foo"),
            ("/", "/data/"),
            ("/foo/?a=/b#/c", "/data/foo/?a=/b#/c"),
            ("/?a", "/data/?a"),
            ("/é", "/data/é"),
            ("/foo//bar", "/data/foo//bar"),
            ("/data/foo", "/data/data/foo"),
            ("/a?b=/../c", "/data/a?b=/../c"),
            // Relative references lead to the right place by themselves.
            ("", ""),
            ("foo", ""),
            ("./foo", ""),
            ("../foo", ""),
            ("?a", ""),
            ("#a", ""),
            // Whoever reads these may not read them as we do.
            ("/../foo", ""),
            ("/a/%2e%2e/b", ""),
            ("/\\evil.example", ""),
            ("\\\\evil.example", ""),
            ("/\tfoo", ""),
            ("/a b", ""),
            ("/a\r\nx: y", ""),
            ("///evil.example", ""),
            ("mailto:a@b.example", ""),
            ("javascript:/foo", ""),
        ],
    );
    assert_eq!(mapping.map_url(b"/\xff", OWN_HOST), None);
}

#[test]
fn absolute_urls() {
    let mapping = mapping("/data", "");
    check(
        |url| mapping.map_url(url, OWN_HOST),
        &[
            ("http://internal.corp.test/foo", "/data/foo"),
            ("https://internal.corp.test/foo", "/data/foo"),
            ("HTTPS://Internal.Corp.Test./foo", "/data/foo"),
            ("https://internal.corp.test:443/foo", "/data/foo"),
            ("http://internal.corp.test:80", "/data/"),
            ("http://internal.corp.test?a=b", "/data/?a=b"),
            ("http://internal.corp.test#a", "/data/#a"),
            ("//internal.corp.test/foo", "/data/foo"),
            // Servers that know their port only.
            ("http://internal.corp.test:9001/foo", "/data/foo"),
            ("http://127.0.0.1:9001/foo", "/data/foo"),
            ("http://app.corp.test:9002/foo", "/data/foo"),
            ("http://[0:0::1]:9003/foo", "/data/foo"),
            // What X-Forwarded-Host says.
            ("https://shop.example/foo", "/data/foo"),
            ("http://shop.example/foo", "/data/foo"),
            // Other places.
            ("http://internal.corp.test:81/foo", ""),
            ("http://127.0.0.1/foo", ""),
            ("http://127.0.0.1:9002/foo", ""),
            ("http://127.0.0.2:9001/foo", ""),
            ("https://corp.test/foo", ""),
            ("https://a.internal.corp.test/foo", ""),
            ("https://internal.corp.test.evil.example/foo", ""),
            ("https://shop.example:8443/foo", ""),
            ("//evil.example/foo", ""),
            ("ftp://internal.corp.test/foo", ""),
            ("http:/foo", ""),
            ("http:///foo", ""),
            ("http:internal.corp.test/foo", ""),
            ("https://user@internal.corp.test/foo", ""),
            ("https://internal.corp.test@evil.example/foo", ""),
            ("https://evil.example/?u=://internal.corp.test/foo", ""),
            ("https://internal.corp.test\\@evil.example/foo", ""),
            ("https://internal.corp.test:/foo", "/data/foo"),
            ("https://internal.corp.test:x/foo", ""),
        ],
    );
}

#[test]
fn urls_with_the_clients_host() {
    check(
        |url| mapping("/data", "").map_url(url, CLIENT_HOST),
        &[
            ("http://shop.example/foo", "/data/foo"),
            ("http://shop.example:9001/foo", "/data/foo"),
            // The upstream sends the client to the other scheme.
            (
                "https://shop.example/foo?a",
                "https://shop.example/data/foo?a",
            ),
            ("https://shop.example:443/foo", ""),
            ("https://shop.example", "https://shop.example/data/"),
            ("http://shop.example:8080/foo", ""),
        ],
    );
    let with_port = ForwardedPlace {
        host: "shop.example:8080",
        client_host: Some("shop.example:8080"),
        is_tls: false,
    };
    check(
        |url| mapping("/data", "").map_url(url, with_port),
        &[
            ("http://shop.example:8080/foo", "/data/foo"),
            ("http://shop.example:9001/foo", "/data/foo"),
            ("http://shop.example/foo", ""),
            ("https://shop.example/foo", ""),
        ],
    );
}

#[test]
fn paths_behind_a_prefix() {
    check(
        |url| mapping("/data", "/x/y").map_url(url, OWN_HOST),
        &[
            ("/x/y/foo", "/data/foo"),
            ("/x/y", "/data"),
            ("/x/y/", "/data/"),
            ("https://internal.corp.test/x/y?a", "/data?a"),
            ("/x", ""),
            ("/x/yz", ""),
            ("/foo", ""),
            ("https://internal.corp.test/foo", ""),
            ("https://internal.corp.test", ""),
        ],
    );
    // Nothing takes the place of the prefix, so two slashes could become a host.
    check(
        |url| mapping("", "/x").map_url(url, OWN_HOST),
        &[
            ("/x/foo", "/foo"),
            ("/x", "/"),
            ("/x?a", "/?a"),
            ("/x//evil.example", ""),
            ("/x/%2fevil.example", ""),
            ("https://internal.corp.test/x//evil.example", ""),
        ],
    );
}

#[test]
fn hosts_alone() {
    check(
        |url| mapping("", "").map_url(url, OWN_HOST),
        &[
            ("https://internal.corp.test/foo", "/foo"),
            ("https://internal.corp.test", "/"),
            ("https://internal.corp.test//evil.example", ""),
            ("https://internal.corp.test/%2f/evil.example", ""),
            ("https://evil.example/foo", ""),
        ],
    );
}

#[test]
fn refreshes() {
    check(
        |value| mapping("/data", "").map_refresh(value, OWN_HOST),
        &[
            ("5; url=/foo", "5; url=/data/foo"),
            ("0;URL=/foo", "0;URL=/data/foo"),
            ("0.5 , Url = /foo", "0.5 , Url = /data/foo"),
            ("5;url='/foo' x", "5;url='/data/foo' x"),
            ("5;url=\"/foo", "5;url=\"/data/foo"),
            ("5; /foo", "5; /data/foo"),
            ("5 url=/foo", "5 url=/data/foo"),
            ("5; url=https://internal.corp.test/a;b", "5; url=/data/a;b"),
            ("5", ""),
            ("5;", ""),
            ("5; url=", ""),
            ("5; url=foo", ""),
            ("5; url=https://evil.example/", ""),
            ("5url=/foo", ""),
            ("5;\turl=/foo", ""),
            ("5; url='/foo'\n", ""),
            ("; url=/foo", ""),
            ("é; url=/foo", ""),
            ("5; üü=/foo", ""),
        ],
    );
    check(
        |value| mapping("/it's", "").map_refresh(value, OWN_HOST),
        &[
            ("5; url='/foo'", ""),
            ("5; url=\"/foo\"", "5; url=\"/it's/foo\""),
        ],
    );
}

#[test]
fn cookies() {
    check(
        |value| mapping("/data", "").map_cookie(value, OWN_HOST),
        &[
            ("a=b; Path=/", "a=b; Path=/data"),
            ("a=b; path=/foo; Secure", "a=b; path=/data/foo; Secure"),
            ("a=b;Path= /foo/ ;HttpOnly", "a=b;Path= /data/foo/;HttpOnly"),
            ("a=b; PATH=/x; Path=/y", "a=b; PATH=/data/x; Path=/data/y"),
            ("a=\"b=/c\"; Path=/;", "a=\"b=/c\"; Path=/data;"),
            ("__Secure-a=b; Path=/", "__Secure-a=b; Path=/data"),
            ("a=b; Path=/é", "a=b; Path=/data/é"),
            (
                "a=b; Domain=internal.corp.test; Path=/; Secure",
                "a=b; Path=/data; Secure",
            ),
            ("a=b; Domain=.Corp.Test", "a=b"),
            ("a=b; domain=app.corp.test;Secure", "a=b;Secure"),
            ("a=b; domain=evil.example; domain=corp.test", "a=b"),
            // The client's own, or another one.
            ("a=b; Domain=shop.example", ""),
            ("a=b; Domain=.example", ""),
            ("a=b; Domain=evil.example", ""),
            ("a=b; Domain=a.internal.corp.test", ""),
            ("a=b; Domain=orp.test", ""),
            ("a=b; Domain=corp.test; Domain=evil.example", ""),
            ("a=b; Domain=", ""),
            ("a=b; Domain", ""),
            ("a=b; Domain=0.0.1", ""),
            // What stays.
            ("__Host-a=b; Path=/; Secure", ""),
            ("__host-a=b; Path=/; Secure", ""),
            ("a=b", ""),
            ("a=b; Secure", ""),
            ("Path=/", ""),
            ("a=b; Path", ""),
            ("a=b; Path=", ""),
            ("a=b; Path=foo", ""),
            ("a=b; Path=/../x", ""),
            ("a=b; Path=/\\x", ""),
            ("a=b; Path=/x y", ""),
            ("a=b; Path=/x\u{7f}", ""),
            ("a=b; xPath=/foo", ""),
            ("", ""),
        ],
    );
    assert_eq!(
        mapping("/data", "").map_cookie(b"a=\xff; Path=/", OWN_HOST),
        None
    );
}

#[test]
fn cookies_behind_a_prefix() {
    check(
        |value| mapping("/data", "/x/y").map_cookie(value, OWN_HOST),
        &[
            // These hold for all that the upstream gets.
            ("a=b; Path=/", "a=b; Path=/data"),
            ("a=b; Path=/x", "a=b; Path=/data"),
            ("a=b; Path=/x/", "a=b; Path=/data"),
            ("a=b; Path=/x/y", "a=b; Path=/data"),
            ("a=b; Path=/x/y/", "a=b; Path=/data/"),
            ("a=b; Path=/x/y/z", "a=b; Path=/data/z"),
            ("a=b; Path=/x/yz", ""),
            ("a=b; Path=/z", ""),
            ("a=b; Path=//", ""),
        ],
    );
    check(
        |value| mapping("", "/x").map_cookie(value, CLIENT_HOST),
        &[
            ("a=b; Path=/", ""),
            ("a=b; Path=/x", "a=b; Path=/"),
            (
                "a=b; Path=/x/z; Domain=shop.example",
                "a=b; Path=/z; Domain=shop.example",
            ),
            ("a=b; Path=/z", ""),
        ],
    );
}
