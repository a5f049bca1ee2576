//! Why the gateway may read an answer differently than hyper's client: a closed list. But for two marks of
//! hyper's own, every reason is one to be stricter.

use tollgate::http::http1::MAX_HEAD_BYTES;

use super::{Asks, Case, End, Verdict};

/// A codec that refuses where hyper reads on.
struct Refusal {
    /// What the codec says.
    says: &'static str,
    /// Whether the case has what is refused.
    shows: fn(&Case, &Verdict) -> bool,
}

const REFUSALS: [Refusal; 9] = [
    // RFC 9112 section 6.3: a list of equal lengths may be taken for one, or refused.
    Refusal {
        says: "it says its length twice",
        shows: |case, _| values(case, "content-length").len() > 1,
    },
    // RFC 9110 section 8.6: digits. hyper takes `5, 5`, and looks at none where there can be no body.
    Refusal {
        says: "its length is not a number",
        shows: |case, _| {
            let wrong = |value: &Vec<u8>| {
                let digits = value.iter().all(u8::is_ascii_digit);
                let text = String::from_utf8_lossy(value);
                !digits || text.parse::<u64>().is_err()
            };
            values(case, "content-length").iter().any(wrong)
        },
    },
    // RFC 9112 section 6.1: what a coding that is not known leaves of a body cannot be passed on; to name
    // `chunked` twice is an error.
    Refusal {
        says: "its transfer coding is not `chunked`",
        shows: |case, _| {
            let codings = values(case, "transfer-encoding");
            codings.len() > 1 || codings.iter().any(|c| !c.eq_ignore_ascii_case(b"chunked"))
        },
    },
    // RFC 9112 section 6.3: both ought to be handled as an error, for it may be smuggling.
    Refusal {
        says: "it says its length in two ways",
        shows: |case, _| {
            let has = |name| !values(case, name).is_empty();
            has("transfer-encoding") && has("content-length")
        },
    },
    // RFC 9110 section 15.2.2: a server answers the upgrade of the request; hyper leaves it to its caller.
    Refusal {
        says: "it switches protocols unasked",
        shows: |case, theirs| theirs.status() == 101 && case.asks != Asks::Upgrade,
    },
    // RFC 9110 section 15.2 has no bound; the gateway puts one on everything. The 100s are among them.
    Refusal {
        says: "too many interim responses",
        shows: |case, _| count(&case.bytes(), b"HTTP/1.") > 16,
    },
    // RFC 9112 section 3 leaves the bound to the reader; hyper's is about 400 KiB.
    Refusal {
        says: "its head is too long",
        shows: |case, _| case.bytes().len() > MAX_HEAD_BYTES,
    },
    // RFC 9112 section 7.1: sizes may overflow, and an extension is of tokens and quoted strings, in which
    // there are no control characters. Section 7.1.1 wants a bound on extensions.
    Refusal {
        says: "a chunk's size cannot be read",
        shows: |case, _| {
            let bytes = case.bytes();
            bytes.split(|byte| *byte == b'\n').any(|line| {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                let control = |byte: &u8| *byte != b'\t' && byte.is_ascii_control();
                digits > 16 || line.iter().any(control) || line.len() > 4000
            })
        },
    },
    // RFC 9112 section 2.2: a lone LF may be taken for the end of a line, and need not be. The bound on the
    // number of trailers is lower than hyper's.
    Refusal {
        says: "the trailers cannot be read",
        shows: |case, _| {
            let bytes = case.bytes();
            count(&bytes, b"\n") != count(&bytes, b"\r\n") || count(&bytes, b"\r\n") > 64
        },
    },
];

/// Another reason to differ, by its name.
type Other = (&'static str, fn(&Case, &Verdict, &Verdict) -> bool);

const OTHERS: [Other; 4] = [
    // RFC 9110 section 8.6: a 204 may not say a length. What is behind it may be a body or an answer.
    ("a 204 that says its length", |case, ours, theirs| {
        let says = |name| values(case, name).iter().any(|value| value != b"0");
        let says = says("content-length") || says("transfer-encoding");
        theirs.status() == 204 && says && is_given_up(ours, theirs)
    }),
    // RFC 9110 section 7.6.1: a list of tokens. hyper passes over the whole field for one byte that is not
    // ASCII, `close` and all.
    ("`close` beside what is no token", |case, ours, theirs| {
        obscure(case, b"close") && is_given_up(ours, theirs)
    }),
    // The same with `keep-alive` in HTTP/1.0, the one thing that the gateway alone lets pass: who says so can
    // be believed.
    (
        "`keep-alive` beside what is no token",
        |case, ours, theirs| obscure(case, b"keep-alive") && is_given_up(theirs, ours),
    ),
    // RFC 9110 section 8.6 knows no largest length. The two largest are hyper's marks for bodies without one;
    // nobody can send them to the end.
    ("hyper's largest length", |case, ours, theirs| {
        let huge = |value: &Vec<u8>| {
            let length = String::from_utf8_lossy(value).parse::<u64>();
            length.is_ok_and(|length| length >= u64::MAX - 1)
        };
        values(case, "content-length").iter().any(huge)
            && [&ours.end, &theirs.end]
                .iter()
                .all(|end| matches!(end, End::Refused(_)))
            && theirs.begins(ours)
    }),
];

/// The names of all reasons.
pub fn all() -> impl Iterator<Item = &'static str> {
    let refusals = REFUSALS.iter().map(|refusal| refusal.says);
    refusals.chain(OTHERS.iter().map(|(name, _)| *name))
}

/// The reason why the two differ, if there is one.
pub fn find(case: &Case, ours: &Verdict, theirs: &Verdict) -> Option<&'static str> {
    let refuses = |refusal: &&Refusal| {
        matches!(&ours.end, End::Refused(why) if why == refusal.says)
            && ours.begins(theirs)
            && (refusal.shows)(case, theirs)
    };
    let others = || OTHERS.iter().find(|(_, holds)| holds(case, ours, theirs));
    let refusal = REFUSALS.iter().find(refuses).map(|refusal| refusal.says);
    refusal.or_else(|| others().map(|(name, _)| *name))
}

/// Whether they differ in this alone: the first gives up the connection that the second keeps.
fn is_given_up(first: &Verdict, second: &Verdict) -> bool {
    let kept = Verdict {
        end: End::Kept,
        ..first.clone()
    };
    matches!((&first.end, &second.end), (End::Spent, End::Kept)) && kept == *second
}

/// A connection field has this word and a byte that is not ASCII.
fn obscure(case: &Case, word: &[u8]) -> bool {
    values(case, "connection").iter().any(|value| {
        let value = value.to_ascii_lowercase();
        !value.is_ascii() && count(&value, word) > 0
    })
}

/// The values in all lines that look like fields of this name, wherever they are.
fn values(case: &Case, name: &str) -> Vec<Vec<u8>> {
    let bytes = case.bytes();
    let value = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (said, value) = line.split_at(colon);
        let is = said.eq_ignore_ascii_case(name.as_bytes());
        is.then(|| value[1..].trim_ascii().to_vec())
    };
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(value)
        .collect()
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes
        .windows(part.len())
        .filter(|found| *found == part)
        .count()
}
