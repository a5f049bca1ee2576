//! What the type of a body says about how upstreams read it.

use crate::identity::form;

/// What a body is read as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Form,
    Json,
    /// With its boundary.
    Multipart(Vec<u8>),
    /// Readers look at the body itself: it has no type, or one that says nothing.
    Plain,
    /// A format that has no fields here.
    Other,
    /// Readers disagree on the type.
    Unclear,
}

/// Encodings in which ASCII is ASCII and every other byte is text.
const ASCII_ALIKE: [&str; 8] = [
    "utf-8",
    "utf8",
    "us-ascii",
    "ascii",
    "iso-8859-1",
    "latin1",
    "windows-1252",
    "iso-8859-15",
];

impl Media {
    /// Of the values of `Content-Type` and the body.
    pub(super) fn of<'v>(mut types: impl Iterator<Item = &'v [u8]>, body: &[u8]) -> Media {
        let Some(first) = types.next() else {
            return Media::Plain;
        };
        if types.next().is_some() {
            return Media::Unclear;
        }
        let Ok(first) = std::str::from_utf8(first) else {
            return Media::Unclear;
        };
        // Some clients write `application/json, application/json`.
        let quoted = first.contains('"');
        let separator = |c| c == ',' && !quoted;
        let mut all = first.split(separator).map(|value| Media::one(value, body));
        let media = all.next().unwrap_or(Media::Plain);
        let listed = first.contains(',');
        let unclear =
            listed && matches!(media, Media::Multipart(_)) || all.any(|other| other != media);
        if unclear { Media::Unclear } else { media }
    }

    fn one(value: &str, body: &[u8]) -> Media {
        let Some(parameters) = HeaderParameters::of(value) else {
            return Media::Unclear;
        };
        let essence = parameters.first.to_ascii_lowercase();
        let has_fields = ["form", "json", "multipart"]
            .into_iter()
            .any(|kind| essence.contains(kind));
        // PHP and Rack end the type there.
        if has_fields && essence.contains([' ', '\t', ',']) {
            return Media::Unclear;
        }
        if !parameters.reads_as_utf8(body) {
            return Media::Unclear;
        }
        if essence.starts_with("multipart/") {
            let plain = |boundary: &&str| {
                let length = boundary.len();
                (1..=70).contains(&length) && boundary.bytes().all(is_boundary)
            };
            return match parameters.only("boundary").filter(plain) {
                Some(boundary) if !parameters.hides_boundary() => {
                    Media::Multipart(boundary.as_bytes().to_vec())
                }
                _ => Media::Unclear,
            };
        }
        match &*essence {
            "application/x-www-form-urlencoded" => Media::Form,
            "" | "text/plain" | "application/octet-stream" => Media::Plain,
            // Symfony takes any type that begins so for a form.
            _ if essence.contains("urlencoded") => Media::Unclear,
            _ if essence.contains("json") => Media::Json,
            _ => Media::Other,
        }
    }
}

/// Whether a text is read as UTF-8 beside these values of `Content-Type`: Django reads queries too in the charset that
/// stands there.
pub(in crate::identity) fn is_read_as_utf8<'v>(
    mut types: impl Iterator<Item = &'v [u8]>,
    text: &[u8],
) -> bool {
    types.all(|value| {
        let value = String::from_utf8_lossy(value);
        let mentioned = value.to_ascii_lowercase().contains("charset");
        !mentioned || HeaderParameters::of(&value).is_some_and(|all| all.reads_as_utf8(text))
    })
}

/// A byte of a boundary that no reader ends it at.
fn is_boundary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+:=?/".contains(&byte)
}

/// A field's value with parameters, `form-data; name="a"`, by the strict grammar.
pub(super) struct HeaderParameters<'v> {
    /// What stands before the parameters.
    pub(super) first: &'v str,
    all: Vec<(&'v str, &'v str)>,
}

impl<'v> HeaderParameters<'v> {
    /// None for what readers take apart differently: quotes in the middle, parameters behind an escaped quote, no
    /// `=`, or values without quotes that are no tokens (RFC 9110, section 5.6.2). Some readers end such a value at
    /// the first other character.
    pub(super) fn of(value: &'v str) -> Option<HeaderParameters<'v>> {
        let (first, mut rest) = value.split_once(';').unwrap_or((value, ""));
        let mut all = Vec::new();
        while !rest.trim_matches([' ', '\t', ';']).is_empty() {
            rest = rest.trim_start_matches([' ', '\t']);
            let (name, behind) = rest.split_once('=')?;
            let value;
            if let Some(quoted) = behind.strip_prefix('"') {
                (value, rest) = until_quote(quoted)?;
                rest = rest.trim_start_matches([' ', '\t']);
                if !(rest.is_empty() || rest.starts_with(';')) {
                    return None;
                }
                rest = rest.strip_prefix(';').unwrap_or(rest);
            } else {
                let (token, after) = behind.split_once(';').unwrap_or((behind, ""));
                (value, rest) = (token.trim_end_matches([' ', '\t']), after);
                if !value.bytes().all(is_token) {
                    return None;
                }
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_*".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                return None;
            }
            all.push((name, value));
        }
        let first = first.trim_matches([' ', '\t']);
        Some(HeaderParameters { first, all })
    }

    /// How many parameters are called so, encoded ones (`name*`, RFC 8187) and pieces (`name*0`) included.
    pub(super) fn count(&self, name: &str) -> usize {
        let is_it = |given: &&(&str, &str)| {
            let plain = given.0.split('*').next().unwrap_or_default();
            plain.eq_ignore_ascii_case(name)
        };
        self.all.iter().filter(is_it).count()
    }

    /// The value of the one parameter of this name, unless it is encoded.
    pub(super) fn only(&self, name: &str) -> Option<&'v str> {
        let mut all = self.all.iter();
        let found = all.find(|(given, _)| given.eq_ignore_ascii_case(name))?;
        (self.count(name) == 1).then_some(found.1)
    }

    /// Whether readers that search for `name=` find it in another parameter.
    pub(super) fn hides_name(&self) -> bool {
        self.all.iter().any(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let plain = name.split('*').next().unwrap_or_default();
            let odd = plain.contains("name") && !matches!(plain, "name" | "filename");
            odd || mentions(value, "name")
        })
    }

    /// Whether the `charset`, if there is one, makes no difference for this text.
    pub(super) fn reads_as_utf8(&self, text: &[u8]) -> bool {
        let is_one = |(name, value): &&(&str, &str)| {
            name.to_ascii_lowercase().contains("charset") || mentions(value, "charset")
        };
        let charsets = self.all.iter().filter(is_one).count();
        if charsets == 0 && !mentions(self.first, "charset") {
            return true;
        }
        let charset = self.only("charset").filter(|_| charsets == 1);
        let charset = charset.unwrap_or_default().to_ascii_lowercase();
        match ASCII_ALIKE.iter().position(|known| *known == charset) {
            Some(0 | 1) => true,
            Some(_) => form::decode(text).is_ascii(),
            None => false,
        }
    }

    /// Whether PHP, which takes the first `boundary`, or Rack, which takes the last, finds it elsewhere. Browsers have the
    /// word in the boundary itself.
    fn hides_boundary(&self) -> bool {
        let has_word = |text: &str| text.to_ascii_lowercase().contains("boundary");
        let elsewhere = |(name, value): &(&str, &str)| match name.eq_ignore_ascii_case("boundary") {
            true => mentions(value, "boundary"),
            false => has_word(name) || has_word(value),
        };
        has_word(self.first) || self.all.iter().any(elsewhere)
    }
}

/// What stands in quotes and what stands behind them. Of a value with escaped quotes (RFC 9110, section 5.6.4), some
/// readers take the first for its end: none if they could find another parameter, or lose one, in what follows.
fn until_quote(text: &str) -> Option<(&str, &str)> {
    let first = text.find('"')?;
    let mut end = first;
    while text[..end].ends_with('\\') {
        // Escaped itself to some.
        if text[..end].ends_with("\\\\") {
            return None;
        }
        end += 1 + text[end + 1..].find('"')?;
    }
    let behind = &text[end + 1..];
    let is_last = || behind.trim_matches([' ', '\t', ';']).is_empty();
    let is_plain = first == end || (is_last() && !text[first..end].contains([';', '=', ',']));
    is_plain.then_some((&text[..end], behind))
}

/// Whether a text looks like a parameter of this name to readers that search for one.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut rests = lower
        .match_indices(name)
        .map(|(at, name)| &lower[at + name.len()..]);
    rests.any(|rest| rest.trim_start_matches([' ', '\t', '*']).starts_with('='))
}

/// A byte of a token.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let check = |value: &str, expected: Media| {
            let got = Media::of(std::iter::once(value.as_bytes()), b"x");
            assert_eq!(got, expected, "{value}");
        };
        let multipart = |boundary: &str| Media::Multipart(boundary.as_bytes().to_vec());
        for form in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded ; charset=UTF-8",
            "application/x-www-form-urlencoded; charset=\"utf-8\";",
            "application/x-www-form-urlencoded; charset=iso-8859-1",
        ] {
            check(form, Media::Form);
        }
        for json in [
            "application/json",
            "text/json;charset=utf-8",
            "application/vnd.api+json",
            "application/json, application/json",
        ] {
            check(json, Media::Json);
        }
        for plain in [
            "",
            "text/plain",
            "text/plain; charset=utf-8",
            "application/octet-stream",
        ] {
            check(plain, Media::Plain);
        }
        for other in ["image/png", "text/plain x", "application/xml", "*/*"] {
            check(other, Media::Other);
        }
        check("multipart/form-data; boundary=x", multipart("x"));
        check("Multipart/Form-Data; Boundary=\"a=b\"", multipart("a=b"));
        check("multipart/mixed; boundary=x", multipart("x"));
        check(
            "multipart/form-data; boundary=x; charset=utf-8",
            multipart("x"),
        );
        let of_browsers = "----WebKitFormBoundaryx";
        check(
            &format!("multipart/form-data; boundary={of_browsers}"),
            multipart(of_browsers),
        );
        for unclear in [
            "application/x-www-form-urlencoded x",
            "application/x-www-form-urlencoded\tjson",
            "application/x-www-form-urlencoded,x; a=\"b\"",
            "application/json x; charset=utf-8",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=x; boundary=y",
            "multipart/form-data; boundary=x; boundary*=utf-8''y",
            "multipart/form-data; boundary*=utf-8''x",
            "multipart/form-data; boundary = x",
            "multipart/form-data; boundary='x'",
            "multipart/form-data; boundary=x,y",
            "multipart/form-data; boundary=\"x,y\"",
            "multipart/form-data; boundary=\"x\"y",
            "multipart/form-data boundary=x",
            "multipart/form-data; boundary=x, text/plain",
            "application/json, application/x-www-form-urlencoded",
            "application/json; charset=utf-16",
            "application/x-www-form-urlencoded; charset=ibm037",
            "application/x-www-form-urlencoded; charset=utf-8; charset=utf-7",
            "application/x-www-form-urlencoded; charset*=utf-8''utf-7",
            "application/x-www-form-urlencoded; charset",
            "text/plain; charset=utf-7",
            "text/plain charset=utf-7",
            "text/plain; xcharset=utf-7",
            "text/plain; x=\"charset=utf-7\"",
            "image/png; charset=utf-7",
            "multipart/form-data; boundary=x; charset=utf-7",
            "multipart/form-data; charset=utf-16; boundary=x",
            "multipart/form-data; xboundary=y; boundary=x",
            "multipart/form-data; boundary=x; x-Boundary=y",
            "multipart/form-data; a=\"boundary=y;\"; boundary=x",
            "multipart/form-data; a=boundary; boundary=x",
            "multipart/form-data; boundary=\"x-boundary=y\"",
            "multipart/x-boundary; boundary=x",
            "multipart/form-data; boundary=x:y",
            "multipart/form-data; boundary=x/y",
            "multipart/form-data; boundary=x?y",
            "multipart/form-data; boundary=x=y",
            "multipart/form-data; boundary=x; a=b,c",
            "application/x-www-form-urlencodedx",
            "application/x-www-form-urlencoded+xml",
        ] {
            check(unclear, Media::Unclear);
        }
        let latin = ["application/x-www-form-urlencoded; charset=latin1".as_bytes()];
        assert_eq!(Media::of(latin.into_iter(), b"a=%e9"), Media::Unclear);
        let twice = [b"text/plain".as_slice(), b"text/plain"];
        assert_eq!(Media::of(twice.into_iter(), b"x"), Media::Unclear);
        assert_eq!(Media::of(std::iter::empty(), b"x"), Media::Plain);
    }

    #[test]
    fn charsets_of_queries() {
        let check = |types: &[&str], query: &str, expected: bool| {
            let each = types.iter().map(|value| value.as_bytes());
            let got = is_read_as_utf8(each, query.as_bytes());
            assert_eq!(got, expected, "{types:?} {query}");
        };
        let (ascii, latin, utf8) = ("key=%2BAGs-ey", "key=%e9", "key=%c3%a9");
        for query in [ascii, latin, utf8] {
            check(&[], query, true);
            check(&["x y; ;z"], query, true);
            check(&["application/json; charset=UTF-8"], query, true);
            check(&["text/plain; charset=utf-7"], query, false);
            check(&["image/png; charset*=utf-8''utf-7"], query, false);
            check(&["text/plain; x; charset=utf-8"], query, false);
            check(&["text/plain", "text/plain; charset=utf-7"], query, false);
            check(&["text/plain, text/plain; charset=utf-7"], query, false);
        }
        check(&["text/plain; charset=iso-8859-1"], ascii, true);
        check(&["text/plain; charset=iso-8859-1"], utf8, false);
    }
}
