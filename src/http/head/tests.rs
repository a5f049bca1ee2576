//! Fields wherever they stand.

use super::*;

/// `a: 1` and `B: 2` in a head, `a: 3` added.
fn fields() -> Fields {
    let head = Bytes::from_static(b"a: 1\r\nB: 2\r\n");
    let mut fields = Fields::default();
    fields.add_span(b"a", 0, 3, 1);
    fields.add_span(b"B", 6, 9, 1);
    fields.attach_text(head);
    fields.add("a", b"3");
    fields
}

fn listed(fields: &Fields) -> String {
    let lines = fields
        .iter()
        .map(|(name, value)| [name, b"=", value].concat());
    String::from_utf8(lines.collect::<Vec<_>>().join(&b' ')).unwrap()
}

#[test]
fn lookups() {
    let fields = fields();
    assert_eq!(listed(&fields), "a=1 B=2 a=3");
    assert_eq!(fields.all("A").collect::<Vec<_>>(), [b"1", b"3"]);
    assert_eq!(fields.all("a").rev().collect::<Vec<_>>(), [b"3", b"1"]);
    assert_eq!(fields.text("b"), Some("2"));
    assert!(!fields.contains("c") && !fields.contains("") && !fields.contains("ab"));
}

#[test]
fn changes() {
    let mut fields = fields();
    fields.set("A", b"");
    assert_eq!(listed(&fields), "B=2 A=");
    fields.add("c", b"x, y");
    fields.remove("b");
    fields.add_copy("e", "b");
    fields.add_copy("f", "C");
    assert_eq!(listed(&fields), "A= c=x, y f=x, y");
    fields.remove("F");
    assert_eq!(listed(&fields), "A= c=x, y");
    fields.retain(|_| false);
    assert_eq!(listed(&fields), "");
    fields.add("d", b"4");
    assert_eq!(listed(&fields), "d=4");
    fields.set_with("x", |_| {});
    fields.set_with("D", |value| value.push(b'5'));
    assert_eq!(listed(&fields), "x= D=5");
}

#[test]
fn a_set_field_joins_shared_fields_or_replaces_them() {
    let written = |fields: &Fields| {
        let mut out = Vec::new();
        fields.write_lines(&mut out);
        String::from_utf8(out).unwrap()
    };
    let shared = fields().to_shared();
    for (set, all, left) in [
        ([("d", "4"), ("e", "")], "a=1 B=2 a=3 d=4 e=", "B=2 d=4 e="),
        ([("e", ""), ("b", "5")], "a=1 a=3 e= b=5", "e= b=5"),
        ([("A", "6"), ("a", "7")], "B=2 a=7", "B=2"),
    ] {
        let mut fields = shared.clone();
        for (name, value) in set {
            fields.set(name, value.as_bytes());
        }
        assert_eq!(listed(&fields), all);
        assert_eq!(written(&fields), lined(all));
        fields.remove("A");
        assert_eq!(listed(&fields), left);
        assert_eq!(written(&fields), lined(left));
        fields.add("g", b"7");
        assert_eq!(listed(&fields), format!("{left} g=7"));
    }
    assert_eq!(listed(&shared), "a=1 B=2 a=3");
}

/// What is listed, as lines.
fn lined(listed: &str) -> String {
    let lines = listed
        .split(' ')
        .map(|field| field.replace('=', ": ") + "\r\n");
    lines.collect()
}

#[test]
fn lines() {
    let head = Bytes::from_static(b"a: 1\r\nB:2\r\nc: \r\nd: 4\r\ne:  5 \r\n");
    let mut fields = Fields::default();
    for (name, at, value, length) in [
        (b"a", 0, 3, 1),
        (b"B", 6, 8, 1),
        (b"c", 11, 0, 0),
        (b"d", 16, 19, 1),
        (b"e", 22, 26, 1),
    ] {
        fields.add_span(name, at, value, length);
    }
    fields.attach_text(head);
    let written = |fields: &Fields| {
        let mut out = Vec::new();
        fields.write_lines(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(written(&fields), "a: 1\r\nB: 2\r\nc: \r\nd: 4\r\ne: 5\r\n");
    fields.remove("d");
    fields.add("f", b"6");
    fields.add_copy("g", "a");
    fields.add("h", b"");
    assert_eq!(
        written(&fields),
        "a: 1\r\nB: 2\r\nc: \r\ne: 5\r\nf: 6\r\ng: 1\r\nh: \r\n"
    );
    let mut added = Fields::default();
    added.add("a", b"1");
    added.add("b", b"2");
    assert_eq!(written(&added), "a: 1\r\nb: 2\r\n");
}

#[test]
fn maps() {
    let map = HeaderMap::from(fields());
    let values: Vec<_> = map.get_all("a").iter().collect();
    assert_eq!(values, ["1", "3"]);
    assert_eq!(map["b"], "2");
    assert_eq!(listed(&Fields::from(&map)), "a=1 a=3 b=2");
}

#[test]
fn what_is_present_is_known_of_shared_fields_too() {
    let mut fields = Fields::default();
    fields.add("content-lengths", b"1");
    fields.add("Date", b"now");
    let both = |fields: &Fields| [fields.present_fields(), fields.to_shared().present_fields()];
    let date = PresentFields {
        has_date: true,
        ..PresentFields::default()
    };
    assert_eq!(both(&fields), [date; 2]);
    let mut shared = fields.to_shared();
    shared.add("CONTENT-LENGTH", b"1");
    let has_length = true;
    assert_eq!(both(&shared), [PresentFields { has_length, ..date }; 2]);
    shared.remove("date");
    let left = PresentFields {
        has_length,
        ..PresentFields::default()
    };
    assert_eq!(both(&shared), [left; 2]);
}
