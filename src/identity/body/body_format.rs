//! Decides by the values of `Content-Type` as which format upstreams read a body.
//!
//! Upstreams parse this header field in different ways. If two of them could read a body as different formats, the format
//! is ambiguous, and no field of the body is trusted.

use super::header_parameters::HeaderParameters;

/// Longest boundary of a multipart body, in bytes: RFC 2046, section 5.1.1. A longer one is ambiguous.
const MAX_BOUNDARY_BYTES: usize = 70;

/// The format that a body is read as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// Any type whose name contains `json`, except types of multipart bodies and forms.
    Json,
    /// Any type that begins with `multipart/`, with its boundary.
    Multipart(Vec<u8>),
    /// The body has no type, or one that fits any bytes (`text/plain`, `application/octet-stream`). So readers look at its
    /// bytes.
    Untyped,
    /// Any other type. Some readers look for a form or JSON in such a body all the same.
    Other,
    /// Readers disagree on the format.
    Ambiguous,
}

impl BodyFormat {
    /// Parses the values of `Content-Type`. `body` is read only if they name a charset, because a charset that agrees
    /// with UTF-8 on ASCII does not matter for ASCII text.
    pub(super) fn parse<'v>(
        mut content_types: impl Iterator<Item = &'v [u8]>,
        body: &[u8],
    ) -> BodyFormat {
        let Some(value) = content_types.next() else {
            return BodyFormat::Untyped;
        };
        if content_types.next().is_some() {
            return BodyFormat::Ambiguous;
        }
        let Ok(value) = std::str::from_utf8(value) else {
            return BodyFormat::Ambiguous;
        };
        // Some clients write `application/json, application/json`. A value with quotes may have a comma inside them, so it
        // is not split.
        let has_quotes = value.contains('"');
        let is_separator = |c| c == ',' && !has_quotes;
        let mut formats = value
            .split(is_separator)
            .map(|value| BodyFormat::parse_value(value, body));
        let format = formats.next().unwrap_or(BodyFormat::Untyped);
        let is_list = value.contains(',');
        let is_ambiguous = is_list && matches!(format, BodyFormat::Multipart(_))
            || formats.any(|next_format| next_format != format);
        if is_ambiguous {
            BodyFormat::Ambiguous
        } else {
            format
        }
    }

    /// Parses one element of `Content-Type`: a type and its parameters.
    fn parse_value(value: &str, body: &[u8]) -> BodyFormat {
        let Some(parameters) = HeaderParameters::parse(value) else {
            return BodyFormat::Ambiguous;
        };
        let essence = parameters.value.to_ascii_lowercase();
        let is_searched_type = ["form", "json", "multipart"]
            .into_iter()
            .any(|word| essence.contains(word));
        // PHP and Rack end the type at a blank or a comma.
        if is_searched_type && essence.contains([' ', '\t', ',']) {
            return BodyFormat::Ambiguous;
        }
        if !parameters.is_read_as_utf8(body) {
            return BodyFormat::Ambiguous;
        }
        match &*essence {
            _ if essence.starts_with("multipart/") => BodyFormat::multipart(&parameters),
            "application/x-www-form-urlencoded" => BodyFormat::Form,
            "" | "text/plain" | "application/octet-stream" => BodyFormat::Untyped,
            // Symfony takes any type that begins with `application/x-www-form-urlencoded` for a form.
            _ if essence.contains("urlencoded") => BodyFormat::Ambiguous,
            _ if essence.contains("json") => BodyFormat::Json,
            _ => BodyFormat::Other,
        }
    }

    /// The format of a multipart body; ambiguous if readers could disagree on its boundary.
    fn multipart(parameters: &HeaderParameters<'_>) -> BodyFormat {
        let is_plain = |boundary: &&str| {
            (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())
                && boundary.bytes().all(is_boundary_byte)
        };
        match parameters.unique_value("boundary").filter(is_plain) {
            Some(boundary) if !parameters.has_hidden_boundary() => {
                BodyFormat::Multipart(boundary.as_bytes().to_vec())
            }
            _ => BodyFormat::Ambiguous,
        }
    }
}

/// Whether readers take `text` for UTF-8 in a request with these values of `Content-Type`. `text` may be a query,
/// because Django reads queries too in the charset of that field.
pub(in crate::identity) fn is_read_as_utf8<'v>(
    mut content_types: impl Iterator<Item = &'v [u8]>,
    text: &[u8],
) -> bool {
    content_types.all(|value| {
        let value = String::from_utf8_lossy(value);
        let may_name_charset = value.to_ascii_lowercase().contains("charset");
        !may_name_charset
            || HeaderParameters::parse(&value)
                .is_some_and(|parameters| parameters.is_read_as_utf8(text))
    })
}

/// Whether no reader ends a boundary at this byte.
fn is_boundary_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+:=?/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let check = |value: &str, expected: BodyFormat| {
            let actual = BodyFormat::parse(std::iter::once(value.as_bytes()), b"x");
            assert_eq!(actual, expected, "{value}");
        };
        let multipart = |boundary: &str| BodyFormat::Multipart(boundary.as_bytes().to_vec());
        for form in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded ; charset=UTF-8",
            "application/x-www-form-urlencoded; charset=\"utf-8\";",
            "application/x-www-form-urlencoded; charset=iso-8859-1",
        ] {
            check(form, BodyFormat::Form);
        }
        for json in [
            "application/json",
            "text/json;charset=utf-8",
            "application/vnd.api+json",
            "application/json, application/json",
        ] {
            check(json, BodyFormat::Json);
        }
        for plain in [
            "",
            "text/plain",
            "text/plain; charset=utf-8",
            "application/octet-stream",
        ] {
            check(plain, BodyFormat::Untyped);
        }
        for other in ["image/png", "text/plain x", "application/xml", "*/*"] {
            check(other, BodyFormat::Other);
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
        for ambiguous in [
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
            check(ambiguous, BodyFormat::Ambiguous);
        }
        let latin = ["application/x-www-form-urlencoded; charset=latin1".as_bytes()];
        assert_eq!(
            BodyFormat::parse(latin.into_iter(), b"a=%e9"),
            BodyFormat::Ambiguous
        );
        let twice = [b"text/plain".as_slice(), b"text/plain"];
        assert_eq!(
            BodyFormat::parse(twice.into_iter(), b"x"),
            BodyFormat::Ambiguous
        );
        assert_eq!(
            BodyFormat::parse(std::iter::empty(), b"x"),
            BodyFormat::Untyped
        );
    }

    #[test]
    fn charsets_of_queries() {
        let check = |types: &[&str], query: &str, expected: bool| {
            let each = types.iter().map(|value| value.as_bytes());
            let actual = is_read_as_utf8(each, query.as_bytes());
            assert_eq!(actual, expected, "{types:?} {query}");
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
