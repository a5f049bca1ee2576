//! The subject of a client's certificate as text, by which the gateway identifies clients. Nothing is verified here.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, pem};
use x509_parser::asn1_rs::{BmpString, Tag, ToDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The distinguished name in the form of RFC 4514, such as `CN=alice,O=Example`; empty if there is none.
    pub distinguished_name: Arc<str>,
    /// The first URI among the alternative names. Without one, the first DNS name in lower case, or else the first
    /// email address. `None` if there is none of these, or if the names cannot be parsed.
    pub alternative_name: Option<Arc<str>>,
}

impl Subject {
    /// Reads the subject of a certificate in DER. The subject is empty if the certificate cannot be parsed.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Subject {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Subject::default();
        };
        Subject {
            distinguished_name: format_name(certificate.subject()).into(),
            alternative_name: find_alternative_name(&certificate).map(Arc::from),
        }
    }

    /// Reads the subject of the first certificate of a PEM file.
    ///
    /// # Errors
    ///
    /// Fails if the file has no certificate.
    pub fn from_pem(text: &[u8]) -> Result<Subject, pem::Error> {
        let certificate = CertificateDer::from_pem_slice(text)?;
        Ok(Subject::from_certificate(&certificate))
    }
}

fn find_alternative_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    let names = &names.value.general_names;
    let uri_of = |name: &GeneralName| match name {
        GeneralName::URI(text) => Some((*text).to_owned()),
        _ => None,
    };
    let host_of = |name: &GeneralName| match name {
        GeneralName::DNSName(text) => Some(text.to_ascii_lowercase()),
        _ => None,
    };
    let email_of = |name: &GeneralName| match name {
        GeneralName::RFC822Name(text) => Some((*text).to_owned()),
        _ => None,
    };
    let mut uris = names.iter().filter_map(uri_of);
    let mut hosts = names.iter().filter_map(host_of);
    let mut emails = names.iter().filter_map(email_of);
    uris.next()
        .or_else(|| hosts.next())
        .or_else(|| emails.next())
}

/// Formats a name as RFC 4514 section 2.1 does: the last relative name comes first.
fn format_name(name: &X509Name<'_>) -> String {
    let mut relative_names: Vec<String> = name.iter().map(format_relative_name).collect();
    relative_names.reverse();
    relative_names.join(",")
}

/// Formats a relative name: its attributes with `+` between them.
fn format_relative_name(relative_name: &RelativeDistinguishedName<'_>) -> String {
    let attributes: Vec<String> = relative_name.iter().map(format_attribute).collect();
    attributes.join("+")
}

/// The object identifiers of attribute types that are written by name: those of RFC 4514 section 3, and two that are common
/// in certificates of people and devices. Other types are written by number.
const NAMED_TYPES: [(&str, &str); 11] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("2.5.4.5", "serialNumber"),
];

/// Formats an attribute as `type=value`. A value that is not text, or of a type without a name, is written in
/// hexadecimal.
fn format_attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let type_number = attribute.attr_type().to_id_string();
    let named_type = NAMED_TYPES
        .iter()
        .find(|(number, _)| *number == type_number);
    match (named_type, value_text(attribute)) {
        (Some((_, name)), Some(text)) => format!("{name}={}", escape(&text)),
        (Some((_, name)), None) => format!("{name}=#{}", value_hex(attribute)),
        (None, _) => format!("{type_number}=#{}", value_hex(attribute)),
    }
}

/// The value of an attribute as text; `None` if it is not text.
fn value_text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = attribute.attr_value();
    match value.tag() {
        Tag::BmpString => BmpString::try_from(value).ok().map(|text| text.string()),
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

/// The DER encoding of an attribute's value, in hexadecimal digits.
fn value_hex(attribute: &AttributeTypeAndValue<'_>) -> String {
    let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Escapes a value: RFC 4514 section 2.4. Control characters are written as their bytes in hexadecimal digits, because
/// logs and header fields contain the text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last_index = text.chars().count().saturating_sub(1);
    for (index, char) in text.chars().enumerate() {
        match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', char]),
            '#' if index == 0 => escaped.push_str("\\#"),
            // `\ ` is allowed too, but would lose its space at the end of a header field.
            ' ' if index == 0 || index == last_index => escaped.push_str("\\20"),
            char if char.is_control() => {
                let mut utf8_buffer = [0; 4];
                for byte in char.encode_utf8(&mut utf8_buffer).bytes() {
                    escaped.push_str(&format!("\\{byte:02X}"));
                }
            }
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    fn subject(parts: Vec<(DnType, DnValue)>, names: Vec<SanType>) -> Subject {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind, value);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(
            Subject::from_pem(certificate.pem().as_bytes()).unwrap(),
            Subject::from_certificate(certificate.der())
        );
        Subject::from_certificate(certificate.der())
    }

    #[test]
    fn names_read_as_rfc_4514_writes_them() {
        let utf8 = |text: &str| DnValue::Utf8String(text.into());
        let bmp = rcgen::string::BmpString::try_from("čaj").unwrap();
        let cases = [
            (vec![], ""),
            (
                vec![
                    (DnType::OrganizationName, utf8("Sue, Grabbit and Runn")),
                    (DnType::CommonName, utf8("L. Eagle")),
                ],
                "CN=L. Eagle,O=Sue\\, Grabbit and Runn",
            ),
            (
                vec![(DnType::CommonName, utf8(" #a+b\"c\\d<e>f;g=h "))],
                "CN=\\20#a\\+b\\\"c\\\\d\\<e\\>f\\;g=h\\20",
            ),
            (vec![(DnType::CommonName, utf8("#1"))], "CN=\\#1"),
            (vec![(DnType::CommonName, utf8(" "))], "CN=\\20"),
            (
                vec![(DnType::CommonName, utf8("a\r\nx: y\0\u{85}"))],
                "CN=a\\0D\\0Ax: y\\00\\C2\\85",
            ),
            (vec![(DnType::CommonName, utf8("Lučić"))], "CN=Lučić"),
            (
                vec![(DnType::CommonName, DnValue::BmpString(bmp))],
                "CN=čaj",
            ),
            (
                vec![(
                    DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 1466, 0]),
                    utf8("Hi"),
                )],
                "1.3.6.1.4.1.1466.0=#0c024869",
            ),
            (
                vec![(
                    DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]),
                    utf8("a@b.example"),
                )],
                "emailAddress=a@b.example",
            ),
        ];
        for (parts, expected) in cases {
            assert_eq!(&*subject(parts, Vec::new()).distinguished_name, expected);
        }
    }

    #[test]
    fn uri_before_dns_name_before_email() {
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let host = |text: &str| SanType::DnsName(text.try_into().unwrap());
        let email = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
        let address = SanType::IpAddress([192, 0, 2, 1].into());
        let cases = [
            (vec![], None),
            (vec![address], None),
            (
                vec![email("a@b.example"), email("c@d.example")],
                Some("a@b.example"),
            ),
            (
                vec![email("a@b.example"), host("C.example"), host("d")],
                Some("c.example"),
            ),
            (
                vec![
                    email("a@b.example"),
                    host("c"),
                    uri("spiffe://d/E"),
                    uri("f:g"),
                ],
                Some("spiffe://d/E"),
            ),
        ];
        for (names, expected) in cases {
            assert_eq!(
                subject(Vec::new(), names).alternative_name.as_deref(),
                expected
            );
        }
    }

    #[test]
    fn what_is_no_certificate_is_for_nobody() {
        assert_eq!(
            Subject::from_certificate(&CertificateDer::from(&[1, 2][..])),
            Subject::default()
        );
        assert!(Subject::from_pem(b"none").is_err());
    }
}
