//! Reads the fields `token` and `email` of the section `identity`: where a request has its credential and its email
//! address. The address is searched in the body, and under the same name in the query and in cookies.

use http::HeaderName;

use super::super::super::context::LoadContext;
use super::super::super::section::{FieldReader, RequiredField, Section, section};
use super::super::super::table::ValueShape;
use super::super::super::tree::Node;
use super::super::ValueError;
use super::super::field::{BoolField, SizeField, scalar_fields, word_fields};
use super::super::scalar::HeaderNameField;
use crate::identity::mailbox::Fold;
use crate::identity::{email, token::TokenSource};

/// Minimum of `max`, in bytes, so that a short form with an address fits.
const MIN_BUFFERED_BYTES: u64 = 256;
/// Maximum of `max`, in bytes, because so much of each body is buffered in memory.
const MAX_BUFFERED_BYTES: u64 = 1 << 20;
/// Default of `max`, in bytes.
const DEFAULT_BUFFERED_BYTES: usize = 64 * 1024;

section! {
    /// The part of a request that holds its credential. Exactly one part must be named; `scheme` only adds to `header`.
    pub struct TokenFields, table TOKEN_TABLE = "`token`", "Where a request's credential is found.";
    header: HeaderNameField, "In this header.", "x-api-key";
    scheme: SchemeField,
        "With header: the scheme before the credential. Without it, a credential in Authorization may follow any scheme.", "Token";
    bearer: BoolField, "In Authorization: Bearer.", "true";
    query: QueryNameField, "In this query parameter.", "key";
    cookie: CookieNameField, "In this cookie.", "session";
}

section! {
    /// Where a request has its email address, and which differences between addresses are ignored.
    pub struct EmailFields, table EMAIL_TABLE = "`email`",
        "Where an email address is found; it is hashed before it is stored.";
    body: RequiredField<BodyFieldNameField>,
        "The field of a JSON, form or multipart body; dots reach into nested objects.", "email";
    max: SizeField<MIN_BUFFERED_BYTES, MAX_BUFFERED_BYTES> = DEFAULT_BUFFERED_BYTES,
        "Maximum bytes of a body that are buffered to find the address. A route that counts by it refuses longer bodies.", "64KiB";
    accents: FoldField = false,
        "Whether accents are ignored, as by databases that find accounts without regard to them.", "fold";
    tags: FoldField = false,
        "Whether an address counts without what stands behind a `+` before the `@`.", "fold";
    dots: FoldField = false,
        "Whether an address counts without dots before the `@`, and googlemail.com as gmail.com.", "fold";
}

word_fields! {
    /// A field that says whether a difference between addresses is ignored.
    pub struct FoldField: bool = "keep" => false, "fold" => true;
}

scalar_fields! {
    /// A field with the scheme of a credential, which is a `token` of RFC 9110.
    pub struct SchemeField: String = ValueShape::Text, "a scheme", parse_scheme;
    /// A field with the name of a query parameter.
    pub struct QueryNameField: String = ValueShape::Text, "the name of a query parameter";
    /// A field with the name of a cookie.
    pub struct CookieNameField: String = ValueShape::Text, "the name of a cookie";
    /// A field with the path of a field in a body, whose name is searched in the query and in cookies too.
    pub struct BodyFieldNameField: String = ValueShape::Text, "the name of a field";
}

/// A field that says which part of a request holds its credential.
pub struct TokenField;

impl FieldReader for TokenField {
    type Value = TokenSource;
    const SHAPE: ValueShape = ValueShape::Table(&TOKEN_TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<TokenSource> {
        let fields = TOKEN_TABLE.open(cx, node)?;
        fields.check_belongs_to(cx, "scheme", "header");
        let source = fields.require_one_of(cx, &["header", "bearer", "query", "cookie"])?;
        let written = TokenFields::read_fields(cx, &fields);
        if written.bearer == Some(false) {
            cx.error(
                fields.value_location("bearer"),
                "`bearer: false` finds no token",
                Some("write `bearer: true`".into()),
            );
        }
        Some(match source {
            "header" if fields.has("scheme") => scheme_source(written.header?, &written.scheme?),
            "header" => TokenSource::Header(written.header?),
            // `false` is reported above. It is read like `true`, so that it causes no other errors.
            "bearer" => written.bearer.map(|_| TokenSource::Bearer)?,
            "query" => TokenSource::Query(written.query?.as_str().into()),
            "cookie" => TokenSource::Cookie(written.cookie?.as_str().into()),
            _ => return None,
        })
    }
}

/// The source of a credential behind a scheme. `Authorization` with the scheme `Bearer`, in any case, is
/// [`TokenSource::Bearer`].
fn scheme_source(header: HeaderName, scheme: &str) -> TokenSource {
    if header == http::header::AUTHORIZATION && scheme.eq_ignore_ascii_case("bearer") {
        return TokenSource::Bearer;
    }
    TokenSource::Scheme {
        header,
        scheme: scheme.into(),
    }
}

/// A field that says where a request has its email address.
pub struct EmailField;

impl FieldReader for EmailField {
    type Value = email::Settings;
    const SHAPE: ValueShape = ValueShape::Table(&EMAIL_TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<email::Settings> {
        let written = EmailFields::read(cx, node)?;
        Some(email::Settings {
            field: written.body?.as_str().into(),
            max_body_bytes: written.max,
            fold: Fold {
                accents: written.accents,
                tags: written.tags,
                dots: written.dots,
            },
        })
    }
}

/// Parses a scheme, which is a `token` of RFC 9110 section 5.6.2.
fn parse_scheme(text: &str) -> Result<String, ValueError> {
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if text.is_empty() || !text.chars().all(is_token_char) {
        let message = format!("`{text}` is not a scheme");
        return Err(ValueError::new(message, "write one word, like `Token`"));
    }
    Ok(text.to_owned())
}
