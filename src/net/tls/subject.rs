//! Whom a verified certificate of a client is for, as text. Nothing is verified here.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, pem};
use x509_parser::asn1_rs::{BmpString, Tag, ToDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

/// What a certificate says of whom it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The distinguished name by RFC 4514: `CN=alice,O=Example`; empty when it has none.
    pub name: Arc<str>,
    /// Of the subject's alternative names the first URI; else the first DNS name, in lower case; else the
    /// first email address.
    pub alternative: Option<Arc<str>>,
}

impl Subject {
    /// That of a certificate; one that cannot be read is for nobody.
    pub fn of(certificate: &CertificateDer<'_>) -> Subject {
        let Ok((_, read)) = X509Certificate::from_der(certificate) else {
            return Subject::default();
        };
        Subject {
            name: distinguished(read.subject()).into(),
            alternative: alternative(&read).map(Arc::from),
        }
    }

    /// That of the first certificate of a PEM file's contents.
    pub fn from_pem(text: &[u8]) -> Result<Subject, pem::Error> {
        CertificateDer::from_pem_slice(text).map(|certificate| Subject::of(&certificate))
    }
}

fn alternative(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    let names = &names.value.general_names;
    let uri = |name: &GeneralName| match name {
        GeneralName::URI(text) => Some((*text).to_owned()),
        _ => None,
    };
    let host = |name: &GeneralName| match name {
        GeneralName::DNSName(text) => Some(text.to_ascii_lowercase()),
        _ => None,
    };
    let email = |name: &GeneralName| match name {
        GeneralName::RFC822Name(text) => Some((*text).to_owned()),
        _ => None,
    };
    let mut found = names.iter().find_map(uri);
    found = found.or_else(|| names.iter().find_map(host));
    found.or_else(|| names.iter().find_map(email))
}

/// RFC 4514: the last part first.
fn distinguished(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = name.iter().map(relative).collect();
    parts.reverse();
    parts.join(",")
}

fn relative(part: &RelativeDistinguishedName<'_>) -> String {
    let values: Vec<String> = part.iter().map(attribute).collect();
    values.join("+")
}

/// Types that are called by a name: those of RFC 4514, and two that certificates of people and devices
/// have. Others are called by their number.
const TYPES: [(&str, &str); 11] = [
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

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let number = attribute.attr_type().to_id_string();
    let known = TYPES.iter().find(|(other, _)| *other == number);
    match (known, text(attribute)) {
        (Some((_, name)), Some(text)) => format!("{name}={}", escaped(&text)),
        (Some((_, name)), None) => format!("{name}=#{}", encoded(attribute)),
        (None, _) => format!("{number}=#{}", encoded(attribute)),
    }
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = attribute.attr_value();
    match value.tag() {
        Tag::BmpString => BmpString::try_from(value).ok().map(|text| text.string()),
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

fn encoded(attribute: &AttributeTypeAndValue<'_>) -> String {
    let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 4514 section 2.4. What controls a terminal or ends a line is written as its bytes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (place, char) in text.chars().enumerate() {
        match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', char]),
            '#' if place == 0 => out.push_str("\\#"),
            // Not `\ `, which would lose its space at the end of a field.
            ' ' if place == 0 || place == last => out.push_str("\\20"),
            char if char.is_control() => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\{byte:02X}"));
                }
            }
            char => out.push(char),
        }
    }
    out
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
            Subject::of(certificate.der())
        );
        Subject::of(certificate.der())
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
            assert_eq!(&*subject(parts, Vec::new()).name, expected);
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
            assert_eq!(subject(Vec::new(), names).alternative.as_deref(), expected);
        }
    }

    #[test]
    fn what_is_no_certificate_is_for_nobody() {
        assert_eq!(
            Subject::of(&CertificateDer::from(&[1, 2][..])),
            Subject::default()
        );
        assert!(Subject::from_pem(b"none").is_err());
    }
}
