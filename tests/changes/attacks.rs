//! What clients and servers may try against changed fields, changed paths, redirects and mapped responses, in one table.
//! Each kind of attack has one rule that all of its kind are held to.

use serde_json::json;

use self::Attack::{Long, Prefix, Redirect, Says, Strip, Value};
use self::Source::{Claim, Header, Query, Segment};
use crate::common::{Client, Gateway, Message, Upstream};
use crate::{fields, gateway, mapping, paths, token};

/// What is tried.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// A target that servers may take for one of a policy that strips a prefix, or that leads out of it. It is refused.
    Strip(&'static str),
    /// A target that another policy has. The upstream gets it as it is.
    Prefix(&'static str),
    /// The value of an identity that a field is set from. It stays one plain value, or the request is refused.
    Value(Source, &'static str),
    /// The same for a value of so many bytes.
    Long(Source, usize),
    /// A target that is redirected. It leads to the host of the policy, or nowhere.
    Redirect(&'static str),
    /// A field of a response. It stays as it is, or leads below the policy's prefix at the client's host.
    Says(&'static str),
}

/// Where an identity comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Claim,
    Header,
    Query,
    Segment,
}

const ATTACKS: [Attack; 180] = [
    // Other spellings of what is stripped.
    Strip("/DATA/x"),
    Strip("/Data"),
    Strip("/%64ata/x"),
    Strip("/%44ata/x"),
    Strip("/dat%61"),
    Strip("//data/x"),
    Strip("///data"),
    Strip("/./data/x"),
    Strip("/%2e/data/x"),
    Strip("/x/../data/y"),
    Strip("/x/%2e%2e/data/y"),
    Strip("/x/..%2fdata/y"),
    Strip("/x\\..\\data/y"),
    Strip("/../data/x"),
    Strip("/data;a/x"),
    Strip("/data;/x"),
    Strip("/;/data/x"),
    Strip("/data%2fx"),
    Strip("/data%2Fx"),
    Strip("/data\\x"),
    Strip("/data%5cx"),
    Strip("/data%20/x"),
    Strip("/index.php/data/x"),
    Strip("http://shop.example//data/x"),
    Strip("http://shop.example/%64ata/x"),
    Strip("/a%2fb/x"),
    Strip("/a//b/x"),
    Strip("/a/B/x"),
    Strip("/a/./b/x"),
    Strip("/API/x"),
    Strip("/%61pi"),
    // Steps, in every spelling.
    Strip("/data/.."),
    Strip("/data/../x"),
    Strip("/data/../../x"),
    Strip("/data/../data/x"),
    Strip("/data/x/../y"),
    Strip("/data/./x"),
    Strip("/data/x/."),
    Strip("/data/%2e%2e/x"),
    Strip("/data/.%2e/x"),
    Strip("/data/%2E%2e"),
    Strip("/data/..%2fx"),
    Strip("/data/..%2F..%2fx"),
    Strip("/data/x%2f..%2fy"),
    Strip("/data/..\\x"),
    Strip("/data/..%5cx"),
    Strip("/data/..;/x"),
    Strip("/data/..;a=b/x"),
    Strip("/data/..%3bx/y"),
    Strip("/data/%252e%252e/x"),
    Strip("/data/..%252fx"),
    Strip("/data/x%252f..%252f..%252fy"),
    Strip("/data/.../x"),
    Strip("/data/..%20/x"),
    Strip("/data/..%23/x"),
    Strip("/data/..%3f/x"),
    Strip("/api/.."),
    Strip("/api/%2e%2e/%2e%2e/x"),
    Strip("/pre/../../x"),
    // A host, or a character that no path has.
    Strip("/data//evil.example/x"),
    Strip("/data/%2fevil.example/x"),
    Strip("/data/\\evil.example"),
    Strip("/data/%5cevil.example"),
    Strip("/data/%252fevil.example"),
    Strip("/data/..%00/x"),
    Strip("/data/%0d%0ax"),
    // Names that begin like a prefix, and prefixes elsewhere.
    Prefix("/database/x"),
    Prefix("/database"),
    Prefix("/data-x"),
    Prefix("/dat"),
    Prefix("/data%2520/x"),
    Prefix("/x/data/y"),
    Prefix("/apis/x"),
    Prefix("/ap/i"),
    Prefix("/a/bc"),
    Prefix("/other?/data/x"),
    Prefix("/"),
    Strip("/data%2e/x"),
    Prefix("/%2564ata/x"),
    // Names of users in tokens.
    Value(Claim, "a\r\nx-admin: 1"),
    Value(Claim, "a\nx-admin: 1"),
    Value(Claim, "a\rx-admin: 1"),
    Value(Claim, "\r\n\r\nGET /admin HTTP/1.1"),
    Value(Claim, "a\0b"),
    Value(Claim, "a\tb"),
    Value(Claim, "a\u{7f}"),
    Value(Claim, "a\u{85}x-admin: 1"),
    Value(Claim, "a\u{2028}x-admin: 1"),
    Value(Claim, "a\u{560d}\u{560a}x-admin: 1"),
    Value(Claim, "a, admin"),
    Value(Claim, "a; role=\"admin\\"),
    Value(Claim, "a%0d%0ax-admin: 1"),
    Value(Claim, " a "),
    Value(Claim, "   "),
    Value(Claim, ""),
    Value(Claim, "\u{202e}nimda"),
    Value(Claim, "${plan}"),
    Long(Claim, 300),
    Long(Claim, 20_000),
    // Fields, queries and segments that name identities.
    Value(Header, "a, b"),
    Value(Header, "a;b=\"c\""),
    Value(Header, "\u{e9}"),
    Value(Header, "a\tb"),
    Value(Header, "a\0b"),
    Value(Header, "a\rb"),
    Value(Header, "a\u{7f}"),
    Value(Header, "%0d%0ax-admin: 1"),
    Long(Header, 300),
    Long(Header, 20_000),
    Value(Query, "a%0d%0ax-admin:%201"),
    Value(Query, "a%0ax-admin:%201"),
    Value(Query, "a%00"),
    Value(Query, "%e9"),
    Value(Query, "a&kind=b"),
    Value(Query, "a%26kind=b"),
    Value(Query, "a%250d%250a"),
    Value(Query, "+a+"),
    Long(Query, 5_000),
    Value(Segment, "a%0d%0ax-admin:%201"),
    Value(Segment, "a%00"),
    Value(Segment, "%e9"),
    Value(Segment, "a%2fb"),
    Value(Segment, "a%252fb"),
    Value(Segment, "a;b"),
    Value(Segment, ".."),
    Value(Segment, "%20"),
    Long(Segment, 5_000),
    // Where a redirect to https://www.example.com leads.
    Redirect("//evil.example"),
    Redirect("///evil.example"),
    Redirect("/\\evil.example"),
    Redirect("/%5cevil.example"),
    Redirect("/%2f%2fevil.example"),
    Redirect("/@evil.example"),
    Redirect("/.evil.example"),
    Redirect("/:80@evil.example"),
    Redirect("/..//evil.example"),
    Redirect("/%0d%0alocation:%20https://evil.example"),
    Redirect("/%0d%0a%0d%0a<script>"),
    Redirect("/?//evil.example"),
    Redirect("/x?\r\nset-cookie: a=b"),
    Redirect("/https://evil.example"),
    Redirect("http://evil.example/x"),
    Redirect("http://www.example.com@evil.example/"),
    Redirect("http://evil.example\\@www.example.com/"),
    // What a server says of its place.
    Says("location: http://SELF//evil.example"),
    Says("location: HTTP://SELF//evil.example"),
    Says("location: http://SELF/\\evil.example"),
    Says("location: http://SELF/%2f/evil.example"),
    Says("location: http://SELF/..//evil.example"),
    Says("location: http://SELF/.//evil.example"),
    Says("location: http://SELF/%2e%2e//evil.example"),
    Says("location: http://SELF?//evil.example"),
    Says("location: http://SELF#//evil.example"),
    Says("location: http://SELF\\@evil.example"),
    Says("location: http://SELF@evil.example"),
    Says("location: http://shop.example@evil.example/"),
    Says("location: http://shop.example:80@evil.example/"),
    Says("location: http://shop.example.evil.example/"),
    Says("location: http://evil.example/shop.example"),
    Says("location: ///evil.example"),
    Says("location: ////evil.example"),
    Says("location: /\t/evil.example"),
    Says("location: http:evil.example"),
    Says("location: http:/evil.example"),
    Says("location: javascript:alert(1)"),
    Says("location: https://shop.example./x"),
    Says("location: https://SHOP.example:/x"),
    Says("content-location: http://SELF//evil.example/"),
    Says("refresh: 0;url=//evil.example"),
    Says("refresh: 0; url='http://SELF//evil.example'"),
    Says("refresh: 5;URL=\"/\\evil.example\""),
    Says("refresh: 0; url=http://SELF/' onload='x"),
    Says("refresh: 0, http://SELF/..//evil.example"),
    Says("set-cookie: a=1; Path=//evil.example"),
    Says("set-cookie: a=1; Domain=evil.example; Path=/"),
    Says("set-cookie: a=1; Path=/..; Domain=shop.example"),
    Says("set-cookie: a=1; Path=/%2e%2e/"),
    Says("set-cookie: a=b=c; Path=/; Path=/x"),
    Says("set-cookie: __Host-a=1; Path=/; Secure"),
    Says("set-cookie: __host-a=1; Path=/; Secure"),
];

/// The gateways that are attacked, each with its upstream.
struct Site {
    paths: (Gateway, Upstream),
    values: (Gateway, Upstream),
    redirects: Gateway,
    mapping: (Gateway, Upstream),
}

impl Site {
    fn start() -> Site {
        let [for_paths, for_values, unused] = [(); 3].map(|()| Upstream::plain());
        let says = mapping::echo();
        let redirect = [("all", "match: /**\nredirect: https://www.example.com\n")];
        Site {
            paths: (paths::start(&for_paths, ""), for_paths),
            values: (
                gateway(
                    for_values.address,
                    fields::IDENTITY,
                    &[("all", fields::SETS)],
                ),
                for_values,
            ),
            redirects: gateway(unused.address, "", &redirect),
            mapping: (mapping::start(&says), says),
        }
    }

    /// Tries an attack. Returns what is wrong.
    fn attack(&self, attack: Attack) -> Result<(), String> {
        match attack {
            Strip(target) => {
                let (gateway, upstream) = &self.paths;
                let seen = paths::forwarded(gateway, upstream, target);
                seen.map_or(Ok(()), |seen| Err(format!("{seen} is forwarded")))
            }
            Prefix(target) => {
                let (gateway, upstream) = &self.paths;
                let seen = paths::forwarded(gateway, upstream, target);
                let is_same = seen.as_deref() == Some(target);
                is_same
                    .then_some(())
                    .ok_or(format!("{seen:?} is forwarded"))
            }
            Value(source, value) => self.check_value(source, value),
            Long(source, length) => self.check_value(source, &"a".repeat(length)),
            Redirect(target) => self.check_redirect(target),
            Says(line) => self.check_said(line),
        }
    }

    fn check_value(&self, source: Source, value: &str) -> Result<(), String> {
        let (gateway, upstream) = &self.values;
        let (mut target, mut lines) = ("/accounts/a/x".to_owned(), String::new());
        match source {
            Claim => {
                lines = token(&json!({ "sub": value, "org": { "id": value }, "groups": [value] }));
            }
            Header => lines = format!("x-device: {value}\r\n"),
            Query => target = format!("/accounts/a/x?kind={value}"),
            Segment => target = format!("/accounts/{value}/x"),
        }
        let mut client = gateway.connect();
        let answer = ask(&mut client, &target, &lines);
        if answer.status() != 200 {
            let is_refused = (400..500).contains(&answer.status()) && upstream.drain().is_empty();
            return is_refused.then_some(()).ok_or(answer.start);
        }
        let request = upstream.next();
        for name in [
            "x-user",
            "x-tenant",
            "x-groups",
            "x-device",
            "x-kind",
            "x-account",
            "x-admin",
        ] {
            let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !b",;\"\\".contains(byte);
            let found = fields::values(&request, name);
            let is_own_blank = found
                .iter()
                .any(|value| value.trim() != *value || value.is_empty());
            let are_plain = found.iter().all(|value| value.as_bytes().iter().all(plain));
            if found.len() > 1
                || name == "x-admin" && !found.is_empty()
                || is_own_blank
                || !are_plain
            {
                return Err(format!("{name}: {found:?}"));
            }
        }
        Ok(())
    }

    fn check_redirect(&self, target: &str) -> Result<(), String> {
        let mut client = self.redirects.connect();
        let answer = ask(&mut client, target, "");
        let Some(location) = answer.field("location") else {
            let is_refused = (400..500).contains(&answer.status());
            return is_refused.then_some(()).ok_or(answer.start);
        };
        let is_safe = location.starts_with("https://www.example.com/")
            && location
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && answer.field("set-cookie").is_none();
        is_safe
            .then_some(())
            .ok_or(format!("it leads to {location}"))
    }

    fn check_said(&self, line: &str) -> Result<(), String> {
        let (gateway, upstream) = &self.mapping;
        let line = line.replace("SELF", &upstream.address.to_string());
        let mut client = gateway.connect();
        let answer = ask(&mut client, "/data/x", &format!("x-say: {line}\r\n"));
        let said = mapping::mapped(&answer);
        if said == [&*line] {
            return Ok(());
        }
        let [said] = &said[..] else {
            return Err(format!("{} with {said:?}", answer.start));
        };
        let (name, value) = said.split_once(": ").unwrap_or_default();
        let url = match name {
            "set-cookie" => value.split_once("Path=").unwrap_or_default().1,
            "refresh" => {
                value[value.find(['/', 'h']).unwrap_or_default()..].trim_end_matches(['\'', '"'])
            }
            _ => value,
        };
        let host_end = url.split_once("://").and_then(|(_, rest)| {
            let (host, path) = rest.split_once('/')?;
            let host = host.trim_end_matches(':').trim_end_matches('.');
            host.eq_ignore_ascii_case("shop.example").then_some(path)
        });
        let path = host_end.map_or(url, |path| &url[url.len() - path.len() - 1..]);
        let begin = path.strip_prefix("/data");
        let is_below =
            begin.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#', ';']));
        is_below.then_some(()).ok_or(format!("it becomes {said}"))
    }
}

/// The response to a GET with these lines.
fn ask(client: &mut Client, target: &str, lines: &str) -> Message {
    client.send(format!(
        "GET {target} HTTP/1.1\r\nhost: shop.example\r\n{lines}\r\n"
    ));
    client.answer()
}

#[test]
fn none_of_the_attacks_succeeds() {
    const { assert!(ATTACKS.len() >= 80) };
    let site = Site::start();
    let results = ATTACKS.map(|attack| (attack, site.attack(attack)));
    let failed = results
        .into_iter()
        .filter_map(|(attack, result)| Some((attack, result.err()?)));
    let failed: Vec<String> = failed
        .map(|(attack, why)| format!("{attack:?}: {why}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
