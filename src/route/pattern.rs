//! Which requests a route takes, as policies write it: `GET,POST /api/{id}/**`, with a host beside
//! it. A pattern is parsed once and cannot be built wrong.

use std::fmt;
use std::str::FromStr;

use super::path::normalise;

mod error;
mod host;
mod method;
mod segment;

pub use error::{PatternError, PatternErrorKind};
pub use host::HostPattern;
pub(super) use method::MethodFit;
pub use method::MethodSet;
pub use segment::{MAX_SEGMENTS, Segment};

/// Which requests a route takes: `[METHOD[,METHOD]] PATH` and a host.
///
/// A path's segments are literal, `*` or `{name}` for any one segment, and at the end `**` for
/// everything from there on: `/api/**` takes `/api`, `/api/` and all below. Paths are compared in
/// the form that [`normalise`] gives, case-sensitively, and without a last slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    methods: MethodSet,
    host: HostPattern,
    segments: Vec<Segment>,
}

impl Pattern {
    /// Reads `[METHOD[,METHOD]] PATH`; the host is any.
    ///
    /// # Errors
    ///
    /// What is wrong, with the byte offset in `text`.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let start = text.len() - text.trim_start().len();
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(PatternErrorKind::Empty.at(0));
        }
        let (methods, path_at) = if trimmed.starts_with('/') {
            (MethodSet::any(), start)
        } else {
            // `api/users` is a path without its slash, `GET` a method without its path.
            let word = trimmed.split([' ', '\t']).next().unwrap_or_default();
            if word.contains('/') {
                let at = word.find('/').unwrap_or_default();
                let glued = word[..at]
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte == b',');
                let kind = if glued && at > 0 {
                    PatternErrorKind::NoPath(word[..at].into())
                } else {
                    PatternErrorKind::NoSlash
                };
                return Err(kind.at(start));
            }
            let methods = MethodSet::parse(word).map_err(|e| e.kind.at(start + e.offset))?;
            let after = &trimmed[word.len()..];
            let path = after.trim_start();
            if path.is_empty() {
                return Err(PatternErrorKind::NoPath(word.into()).at(start + word.len()));
            }
            (methods, start + word.len() + after.len() - path.len())
        };
        let segments = parse_path(text[path_at..].trim_end(), path_at)?;
        Ok(Pattern {
            methods,
            host: HostPattern::Any,
            segments,
        })
    }

    /// The same with this host.
    #[must_use]
    pub fn with_host(mut self, host: HostPattern) -> Pattern {
        self.host = host;
        self
    }

    /// The methods it takes.
    pub fn methods(&self) -> &MethodSet {
        &self.methods
    }

    /// The hosts it takes.
    pub fn host(&self) -> &HostPattern {
        &self.host
    }

    /// Whether it takes the path of `other` by a less specific segment, on all of its hosts and with some of its methods.
    pub fn is_broader_than(&self, other: &Pattern) -> bool {
        let path = || {
            let mut broader = false;
            let mut mine = self.segments.iter();
            let mut others = other.segments.iter();
            loop {
                match (mine.next(), others.next()) {
                    (Some(Segment::Rest), Some(Segment::Rest)) | (None, None) => return broader,
                    (Some(Segment::Rest), _) => return true,
                    (Some(Segment::One(_)), Some(Segment::Literal(_))) => broader = true,
                    (Some(Segment::One(_)), Some(Segment::One(_))) => {}
                    (Some(one), Some(other)) if one == other => {}
                    _ => return false,
                }
            }
        };
        self.host.covers(&other.host) && self.methods.overlaps(&other.methods) && path()
    }

    /// Whether some path on some host is one that both take, whatever the methods.
    pub fn may_share_path(&self, other: &Pattern) -> bool {
        let paths = || {
            let mut others = other.segments.iter();
            for mine in &self.segments {
                match (mine, others.next()) {
                    (Segment::Rest, _) | (_, Some(Segment::Rest)) => return true,
                    (_, None) => return false,
                    (Segment::Literal(one), Some(Segment::Literal(two))) if one != two => {
                        return false;
                    }
                    _ => {}
                }
            }
            others
                .next()
                .is_none_or(|other| matches!(other, Segment::Rest))
        };
        (self.host.covers(&other.host) || other.host.covers(&self.host)) && paths()
    }

    /// The parts of its path; none for `/`.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        Pattern::parse(text)
    }
}

fn parse_path(path: &str, path_at: usize) -> Result<Vec<Segment>, PatternError> {
    use PatternErrorKind as Kind;

    let Some(body) = path.strip_prefix('/') else {
        return Err(Kind::NoSlash.at(path_at));
    };
    if let Some(at) = path.find([' ', '\t']) {
        return Err(Kind::Space.at(path_at + at));
    }
    if let Some(at) = path.find(['?', '#']) {
        return Err(Kind::Query.at(path_at + at));
    }
    let mut segments = Vec::new();
    let mut literals = String::from("/");
    let mut at = path_at + 1;
    let mut parts = body.split('/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        if part.is_empty() && last {
            break;
        }
        if segments.len() == MAX_SEGMENTS {
            return Err(Kind::TooDeep.at(at));
        }
        segments.push(match part {
            "**" if last => Segment::Rest,
            "**" => return Err(Kind::RestInside.at(at)),
            "*" => Segment::One("".into()),
            _ => parse_segment(part, at)?,
        });
        literals.push_str(if matches!(segments.last(), Some(Segment::Literal(_))) {
            part
        } else {
            "x"
        });
        if !last {
            literals.push('/');
        }
        at += part.len() + 1;
    }
    let normal = normalise(&literals).map_err(|error| Kind::Path(error).at(path_at))?;
    if normal != literals {
        let shown = normalise(path).map_or_else(|_| normal.into_owned(), |path| path.into_owned());
        let shown = shown.replace("%7B", "{").replace("%7D", "}");
        let same = shown
            .bytes()
            .zip(path.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        return Err(Kind::NotNormal(shown).at(path_at + same.min(path.len().saturating_sub(1))));
    }
    Ok(segments)
}

fn parse_segment(part: &str, at: usize) -> Result<Segment, PatternError> {
    use PatternErrorKind as Kind;

    if let Some(star) = part.find('*') {
        return Err(Kind::PartialStar.at(at + star));
    }
    let Some(brace) = part.find(['{', '}']) else {
        return Ok(Segment::Literal(part.into()));
    };
    let name = part
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match name {
        Some(name) if plain(name) => Ok(Segment::One(name.into())),
        _ => Err(Kind::Name.at(at + brace)),
    }
}

/// As policies write it, without the host; reads back as an equal pattern.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_any() {
            write!(f, "{} ", self.methods)?;
        }
        if self.segments.is_empty() {
            f.write_str("/")?;
        }
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::One(name) if name.is_empty() => f.write_str("/*")?,
                Segment::One(name) => write!(f, "/{{{name}}}")?,
                Segment::Rest => f.write_str("/**")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
