//! Sample expressions: what HAProxy takes from a request, such as `req.hdr(host),field(1,:)`.

/// A fetch with its arguments, and the converters behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleExpression {
    /// The name of the fetch, in small letters.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The names of the converters, with their arguments.
    pub converters: Vec<(String, Vec<String>)>,
}

impl SampleExpression {
    /// The argument at `index`; empty if there is none.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    /// Whether every request has a value for it.
    pub fn is_always_there(&self) -> bool {
        let names = ["src", "path", "method", "str", "int", "always_true"];
        names.contains(&self.name.as_str())
            && self.converters.iter().all(|(name, _)| name == "ipmask")
    }

    /// Whether it is the name of a header, a cookie or a parameter, by this fetch, and without a number of its place.
    pub fn is_plain(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str()) && self.arguments.len() == 1
    }
}

/// Parses an expression; `None` if it is none.
pub fn parse_sample(text: &str) -> Option<SampleExpression> {
    let mut calls = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(['(', ',']).unwrap_or(rest.len());
        let name = rest.get(..end)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        rest = rest.get(end..)?;
        let mut arguments = Vec::new();
        if let Some(inner) = rest.strip_prefix('(') {
            let close = closing(inner)?;
            let list = inner.get(..close)?;
            if !list.is_empty() {
                arguments.extend(list.split(',').map(|argument| argument.trim().to_owned()));
            }
            rest = inner.get(close + 1..)?;
        }
        calls.push((name.to_owned(), arguments));
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => break,
            None => return None,
        }
    }
    let mut calls = calls.into_iter();
    let (name, arguments) = calls.next()?;
    Some(SampleExpression {
        name: name.to_ascii_lowercase(),
        arguments,
        converters: calls.collect(),
    })
}

/// The place of the parenthesis that closes the one before a text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_as_calls() {
        let sample = parse_sample("req.hdr(host),field(1,:),lower").expect("a sample");
        assert_eq!((&*sample.name, sample.argument(0)), ("req.hdr", "host"));
        let names: Vec<&str> = sample.converters.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["field", "lower"]);
        assert_eq!(parse_sample("src").expect("a sample").arguments.len(), 0);
        assert_eq!(
            parse_sample("base32+src").expect("a sample").name,
            "base32+src"
        );
        for text in ["", "a(", "a(b))", "a b", "a,,b", "%[x]"] {
            assert_eq!(parse_sample(text), None, "{text}");
        }
    }
}
