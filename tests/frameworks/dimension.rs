//! What a limit counts by, how a gateway is told so, and who a framework took a request for.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

use crate::apps::App;
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;
use crate::token;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Email,
    Bearer,
    Cookie,
    Query,
    Header,
    User,
    Host,
    Path,
    Method,
    Address,
    /// The same parts of a request as identities of one's own.
    OwnCookie,
    OwnQuery,
    OwnHeader,
    /// A part of the path as an identity of one's own.
    OwnPath,
    /// A field of the body, read without case folded or blanks kept.
    OwnBody,
    /// A nested claim of a verified token.
    OwnClaim,
    /// The name of the network that the client's address is in.
    OwnNetwork,
}

/// How many requests of one client pass.
pub const LIMIT: usize = 2;

impl Dimension {
    pub const ALL: [Dimension; 17] = [
        Dimension::Email,
        Dimension::Bearer,
        Dimension::Cookie,
        Dimension::Query,
        Dimension::Header,
        Dimension::User,
        Dimension::Host,
        Dimension::Path,
        Dimension::Method,
        Dimension::Address,
        Dimension::OwnCookie,
        Dimension::OwnQuery,
        Dimension::OwnHeader,
        Dimension::OwnPath,
        Dimension::OwnBody,
        Dimension::OwnClaim,
        Dimension::OwnNetwork,
    ];

    /// The dimension in which frameworks read the same.
    pub fn as_read(self) -> Dimension {
        match self {
            Dimension::OwnCookie => Dimension::Cookie,
            Dimension::OwnQuery => Dimension::Query,
            Dimension::OwnHeader => Dimension::Header,
            other => other,
        }
    }

    /// The gateway file's lines about it.
    pub fn identity(self) -> String {
        let text = match self {
            Dimension::Email => "identity: { email: { body: email } }\n",
            Dimension::Bearer => "identity: { token: { bearer: true } }\n",
            Dimension::Cookie => "identity: { token: { cookie: sid } }\n",
            Dimension::Query => "identity: { token: { query: key } }\n",
            Dimension::OwnCookie => "identity: { own: { cookie: sid } }\n",
            Dimension::OwnQuery => "identity: { own: { query: key } }\n",
            Dimension::OwnHeader => "identity: { own: { header: x-api-key } }\n",
            Dimension::OwnPath => "identity: { own: { path: id } }\n",
            Dimension::OwnBody => "identity: { own: { body: email } }\n",
            Dimension::OwnClaim => {
                "identity: { user: { jwt: sub, secret: secret }, own: { jwt: org.id } }\n"
            }
            Dimension::OwnNetwork => return networks(),
            Dimension::User => "identity: { user: { jwt: sub, secret: secret } }\n",
            Dimension::Address => "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n",
            Dimension::Header | Dimension::Host | Dimension::Path | Dimension::Method => {
                "identity: { token: { header: x-api-key } }\n"
            }
        };
        text.to_owned()
    }

    /// The policies: what is limited, and a broader route beside it where the limit is one route's.
    pub fn policies(self, app: &App) -> Vec<(&'static str, String)> {
        let limited = |begin: &str, key: &str| {
            format!(
                "{begin}\nupstream: up\nlimits: {{ few: {{ key: {key}, rate: {LIMIT}/h, throttle: hard }} }}\n"
            )
        };
        let login = format!("match: POST {}", app.login);
        let rest = ("rest", "match: /**\nupstream: up\n".to_owned());
        let key = match self {
            Dimension::Email => return vec![("login", limited(&login, "email")), rest],
            Dimension::Host => {
                let login = format!("host: a.test\n{login}");
                return vec![("login", limited(&login, "token")), rest];
            }
            Dimension::Path | Dimension::Method => {
                let report = format!("match: GET {}", app.report);
                return vec![
                    ("login", limited(&login, "token")),
                    (
                        "item",
                        limited("match: DELETE /items/{id}", "token").replace("few", "item"),
                    ),
                    ("report", limited(&report, "token").replace("few", "report")),
                    rest,
                ];
            }
            Dimension::OwnPath => {
                let item = limited("match: DELETE /items/{id}", "own");
                return vec![("item", item), rest];
            }
            Dimension::OwnBody => return vec![("login", limited(&login, "own")), rest],
            Dimension::User => "user",
            Dimension::OwnCookie
            | Dimension::OwnQuery
            | Dimension::OwnHeader
            | Dimension::OwnClaim
            | Dimension::OwnNetwork => "own",
            Dimension::Address => "ip",
            _ => "token",
        };
        vec![("all", limited("match: /**", key))]
    }

    /// Who a framework took the request for, by each of its readers.
    pub fn identities(self, read: &Value) -> Vec<(String, String)> {
        let readers = |dimension: &str| {
            let each = read[dimension].as_object().into_iter().flatten();
            each.flat_map(|(how, value)| {
                let one = value.as_str().map(str::to_owned).into_iter();
                let list = value.as_array().into_iter().flatten();
                let list = list.filter_map(|value| value.as_str().map(str::to_owned));
                one.chain(list).map(move |value| (how.clone(), value))
            })
            .collect::<Vec<_>>()
        };
        // Behind a route of one's own the client is known by its token, read without blanks.
        let token = read["header"].as_object().into_iter().flatten();
        let token = token.filter_map(|(_, value)| value.as_str()).next_back();
        let token = token.unwrap_or_default().trim();
        match self.as_read() {
            Dimension::Email => match read["path"].to_string().contains("POST login") {
                true => readers("email"),
                false => Vec::new(),
            },
            Dimension::Bearer => readers("bearer"),
            Dimension::Cookie => readers("cookie"),
            Dimension::Query => readers("query"),
            Dimension::User => readers("user"),
            Dimension::OwnPath => readers("part"),
            Dimension::OwnBody => match read["path"].to_string().contains("POST login") {
                true => readers("field"),
                false => Vec::new(),
            },
            Dimension::OwnClaim => readers("claim"),
            Dimension::OwnNetwork => {
                let addresses = readers("address").into_iter();
                let named = addresses.map(|(how, address)| (how, network(&canonical(&address))));
                named.collect()
            }
            Dimension::Header
            | Dimension::OwnCookie
            | Dimension::OwnQuery
            | Dimension::OwnHeader => readers("header"),
            Dimension::Host => {
                let at_login = read["path"].to_string().contains("POST login");
                let hosts = readers("host").into_iter();
                let hosts =
                    hosts.filter(|(_, host)| at_login && host.eq_ignore_ascii_case("a.test"));
                hosts.map(|(how, _)| (how, token.to_owned())).collect()
            }
            Dimension::Path | Dimension::Method => {
                let handlers = readers("path").into_iter();
                handlers
                    .map(|(how, handler)| (how, format!("{token} {handler}")))
                    .collect()
            }
            Dimension::Address => {
                let addresses = readers("address").into_iter();
                addresses
                    .map(|(how, address)| (how, canonical(&address)))
                    .collect()
            }
        }
    }
}

/// An address written in one way, an IPv4 address in IPv6 as itself.
fn canonical(text: &str) -> String {
    let Ok(address) = text.parse::<IpAddr>() else {
        return text.to_owned();
    };
    address.to_canonical().to_string()
}

/// Networks of which each has a client of a round.
const NETWORKS: u64 = 2_000;

/// The gateway file's lines about networks, in each of which all addresses are one client.
fn networks() -> String {
    let each = (0..NETWORKS).map(|number| {
        let (v4, v6) = (network_v4(number), network_v6(number));
        format!("n{number}: [{v4}.0.0/16, \"{v6}::/32\"]")
    });
    let each = each.collect::<Vec<_>>().join(", ");
    format!(
        "identity: {{ ip: {{ trusted_proxies: [127.0.0.0/8] }}, own: {{ networks: {{ {each} }} }} }}\n"
    )
}

fn network_v4(number: u64) -> String {
    format!("{}.{}", 11 + number / 256, number % 256)
}

fn network_v6(number: u64) -> String {
    format!("2a00:{:x}", number + 1)
}

/// The network of an address as [`canonical`] writes it; the address itself if it is in none.
fn network(address: &str) -> String {
    let found = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let [first, second, ..] = ip.octets().map(u64::from);
            first.checked_sub(11).map(|first| first * 256 + second)
        }
        Ok(IpAddr::V6(ip)) if ip.segments()[0] == 0x2a00 => {
            u64::from(ip.segments()[1]).checked_sub(1)
        }
        _ => None,
    };
    match found.filter(|number| *number < NETWORKS) {
        Some(number) => format!("n{number}"),
        None => address.to_owned(),
    }
}

/// A client whose limit is used up, under the name by which frameworks know it.
pub struct Victim {
    pub dimension: Dimension,
    pub name: String,
    pub login: &'static str,
    /// What stands in its plain request: method and path, where that is what is limited.
    pub target: (&'static str, String),
    pub handler: &'static str,
    pub jwt: String,
}

impl Victim {
    /// The client of a round, the `round`th of its dimension.
    pub fn new(app: &App, dimension: Dimension, round: u64, random: &mut Random) -> Victim {
        let dimension = dimension.as_read();
        let word = random.word();
        let name = match dimension {
            // Letters that other characters become in one way or another.
            Dimension::Email => format!("skif{word}@x.de"),
            Dimension::User => format!("u{word}"),
            Dimension::OwnNetwork => match random.once_in(3) {
                true => format!(
                    "{}::{:x}",
                    network_v6(round % NETWORKS),
                    1 + random.below(9_999)
                ),
                false => format!("{}.{}.7", network_v4(round % NETWORKS), random.below(256)),
            },
            // A number has more spellings than other text.
            Dimension::OwnPath | Dimension::OwnBody | Dimension::OwnClaim if random.once_in(2) => {
                (1 + random.next() % 1_000_000_000_000).to_string()
            }
            Dimension::OwnBody => format!("skif{word}"),
            Dimension::Address if random.once_in(3) => {
                let bits = 0x2a00_u128 << 112 | u128::from(random.next()) << 48 | 1;
                Ipv6Addr::from_bits(bits).to_string()
            }
            Dimension::Address => {
                let bytes = random.next().to_le_bytes();
                format!(
                    "{}.{}.{}.{}",
                    11 + bytes[0] % 80,
                    bytes[1],
                    bytes[2],
                    bytes[3]
                )
            }
            _ => format!("t0ken{word}"),
        };
        let (target, handler) = match dimension {
            Dimension::Path | Dimension::Method => match random.below(3) {
                0 => (("POST", app.login.to_owned()), "POST login"),
                1 => (
                    ("DELETE", format!("/items/{}", 1 + random.below(9))),
                    "DELETE item",
                ),
                _ => (("GET", app.report.to_owned()), "GET report"),
            },
            Dimension::OwnPath => (("DELETE", format!("/items/{name}")), ""),
            Dimension::Email | Dimension::OwnBody | Dimension::Host => {
                (("POST", app.login.to_owned()), "")
            }
            _ => (("GET", "/any".to_owned()), ""),
        };
        Victim {
            dimension,
            jwt: token::of(&name),
            login: app.login,
            target,
            handler,
            name,
        }
    }

    /// Whether this is its name, as [`Dimension::identities`] gives it.
    pub fn is(&self, identity: &str) -> bool {
        match self.dimension {
            Dimension::Path | Dimension::Method => {
                identity == format!("{} {}", self.name, self.handler)
            }
            Dimension::Address => identity == canonical(&self.name),
            Dimension::OwnNetwork => identity == network(&self.name),
            _ => identity == self.name,
        }
    }

    /// A request as most clients send it.
    pub fn plain(&self, random: &mut Random) -> Draft {
        let (method, path) = &self.target;
        let draft = Draft::new(method, path);
        match self.dimension {
            Dimension::Email | Dimension::OwnBody => Draft {
                media: random.of(&[Media::Form, Media::Json]),
                pairs: vec![Pair::of("email", &*self.name), Pair::of("password", "x")],
                ..draft
            },
            Dimension::Bearer => draft.with_field("authorization", format!("Bearer {}", self.name)),
            Dimension::User | Dimension::OwnClaim => {
                draft.with_field("authorization", format!("Bearer {}", self.jwt))
            }
            Dimension::Cookie => draft.with_field("cookie", format!("a=b; sid={}", self.name)),
            Dimension::Query => Draft {
                query: Some(format!("a=b&key={}", self.name).into()),
                ..draft
            },
            Dimension::Address | Dimension::OwnNetwork => {
                draft.with_field("x-forwarded-for", &*self.name)
            }
            _ => draft.with_field("x-api-key", &*self.name),
        }
    }
}
