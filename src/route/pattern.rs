//! Parses the pattern of the requests that a route takes, as policies write it: `GET,POST /api/{id}/**`, and a host.
//!
//! A pattern is parsed once and cannot be built wrong. Finding the pattern of a request is the work of
//! [`crate::route::table`].

use std::fmt;
use std::str::FromStr;

use super::path::normalise;

mod error;
mod host_pattern;
mod method_set;
mod segment;

pub use error::{PatternError, PatternErrorKind};
pub use host_pattern::HostPattern;
pub(super) use method_set::MethodFit;
pub use method_set::{MethodSet, is_standard_method};
pub use segment::{MAX_SEGMENTS, Segment};

/// The requests that a route takes: `[METHOD[,METHOD]] PATH` and a host.
///
/// A path's segments are literals, `*` or `{name}` for any one segment, and at the end `**` for all segments from there
/// on: `/api/**` takes `/api`, `/api/` and everything below. Paths are compared in the form that [`normalise`] gives,
/// case-sensitively, and without a last slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    methods: MethodSet,
    host: HostPattern,
    segments: Vec<Segment>,
}

impl Pattern {
    /// Parses `[METHOD[,METHOD]] PATH` into a pattern for any host.
    ///
    /// # Errors
    ///
    /// One mistake, with its byte offset in `text`. Mistakes in the methods come before those in the path.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let (methods, path_offset) = parse_methods(text)?;
        let segments = parse_path(text[path_offset..].trim_end(), path_offset)?;
        Ok(Pattern {
            methods,
            host: HostPattern::Any,
            segments,
        })
    }

    /// The same pattern for these hosts.
    #[must_use]
    pub fn with_host(mut self, host: HostPattern) -> Pattern {
        self.host = host;
        self
    }

    /// The methods that the pattern takes.
    pub fn methods(&self) -> &MethodSet {
        &self.methods
    }

    /// The hosts that the pattern takes.
    pub fn host(&self) -> &HostPattern {
        &self.host
    }

    /// The segments of the path; empty for `/`.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The path as policies write it.
    pub fn path_text(&self) -> String {
        if self.segments.is_empty() {
            return "/".into();
        }
        let segment_text = |segment: &Segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::One(name) if name.is_empty() => "/*".into(),
            Segment::One(name) => format!("/{{{name}}}"),
            Segment::Rest => "/**".into(),
        };
        self.segments.iter().map(segment_text).collect()
    }

    /// The index of the segment that the pattern calls `name`, as in `{name}`; `None` if there is none.
    pub fn segment_index(&self, name: &str) -> Option<usize> {
        let is_named =
            |segment: &Segment| matches!(segment, Segment::One(own_name) if **own_name == *name);
        self.segments.iter().position(is_named)
    }

    /// Whether this pattern takes every path of `other`, and at least one of its segments is less specific. It must
    /// also take all hosts of `other` and some of its methods.
    pub fn is_broader_than(&self, other: &Pattern) -> bool {
        self.host.is_superset_of(&other.host)
            && self.methods.has_common_method_with(&other.methods)
            && is_path_broader(&self.segments, &other.segments)
    }

    /// Whether both patterns take some path on the same host, whatever the methods.
    pub fn may_share_path(&self, other: &Pattern) -> bool {
        let share_host =
            self.host.is_superset_of(&other.host) || other.host.is_superset_of(&self.host);
        share_host && have_common_path(&self.segments, &other.segments)
    }
}

/// Whether `segments` take every path that `other_segments` take, and at least one of `segments` is less specific.
fn is_path_broader(segments: &[Segment], other_segments: &[Segment]) -> bool {
    let mut is_broader = false;
    let (mut segments, mut other_segments) = (segments.iter(), other_segments.iter());
    loop {
        match (segments.next(), other_segments.next()) {
            (Some(Segment::Rest), Some(Segment::Rest)) | (None, None) => return is_broader,
            (Some(Segment::Rest), _) => return true,
            (Some(Segment::One(_)), Some(Segment::Literal(_))) => is_broader = true,
            (Some(Segment::One(_)), Some(Segment::One(_))) => {}
            (Some(segment), Some(other)) if segment == other => {}
            _ => return false,
        }
    }
}

/// Whether both `segments` and `other_segments` take some path.
pub fn have_common_path(segments: &[Segment], other_segments: &[Segment]) -> bool {
    let mut other_segments = other_segments.iter();
    for segment in segments {
        match (segment, other_segments.next()) {
            (Segment::Rest, _) | (_, Some(Segment::Rest)) => return true,
            (_, None) => return false,
            (Segment::Literal(text), Some(Segment::Literal(other))) if text != other => {
                return false;
            }
            _ => {}
        }
    }
    other_segments
        .next()
        .is_none_or(|other| matches!(other, Segment::Rest))
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        Pattern::parse(text)
    }
}

/// Parses the methods of a pattern, and returns them with the byte offset of its path.
fn parse_methods(text: &str) -> Result<(MethodSet, usize), PatternError> {
    let start = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(PatternErrorKind::Empty.at(0));
    }
    if trimmed.starts_with('/') {
        return Ok((MethodSet::any(), start));
    }
    let word = trimmed.split([' ', '\t']).next().unwrap_or_default();
    if let Some(slash) = word.find('/') {
        // `GET/users` lacks a space, `api/users` a slash in front.
        let is_method = |byte: u8| byte.is_ascii_uppercase() || byte == b',';
        let kind = match &word[..slash] {
            methods if !methods.is_empty() && methods.bytes().all(is_method) => {
                PatternErrorKind::NoPath(methods.into())
            }
            _ => PatternErrorKind::NoSlash,
        };
        return Err(kind.at(start));
    }
    let methods = MethodSet::parse(word).map_err(|error| error.kind.at(start + error.offset))?;
    let after_methods = &trimmed[word.len()..];
    let path = after_methods.trim_start();
    if path.is_empty() {
        return Err(PatternErrorKind::NoPath(word.into()).at(start + word.len()));
    }
    let path_offset = start + word.len() + after_methods.len() - path.len();
    Ok((methods, path_offset))
}

/// Parses the path of a pattern, which begins at the byte `path_offset` of the text.
fn parse_path(path: &str, path_offset: usize) -> Result<Vec<Segment>, PatternError> {
    use PatternErrorKind as Kind;

    let Some(after_slash) = path.strip_prefix('/') else {
        return Err(Kind::NoSlash.at(path_offset));
    };
    if let Some(space) = path.find([' ', '\t']) {
        return Err(Kind::Space.at(path_offset + space));
    }
    if let Some(mark) = path.find(['?', '#']) {
        return Err(Kind::Query.at(path_offset + mark));
    }
    let mut segments = Vec::new();
    // The path with a plain name for each wildcard, because the normal form would escape braces.
    let mut example_path = String::from("/");
    let mut offset = path_offset + 1;
    let mut segment_texts = after_slash.split('/').peekable();
    while let Some(segment_text) = segment_texts.next() {
        let is_last = segment_texts.peek().is_none();
        if segment_text.is_empty() && is_last {
            break;
        }
        if segments.len() == MAX_SEGMENTS {
            return Err(Kind::TooDeep.at(offset));
        }
        let segment = match segment_text {
            "**" if is_last => Segment::Rest,
            "**" => return Err(Kind::DoubleStarInside.at(offset)),
            "*" => Segment::One("".into()),
            _ => parse_segment(segment_text, offset)?,
        };
        example_path.push_str(match segment {
            Segment::Literal(_) => segment_text,
            Segment::One(_) | Segment::Rest => "x",
        });
        if !is_last {
            example_path.push('/');
        }
        segments.push(segment);
        offset += segment_text.len() + 1;
    }
    check_normal(path, &example_path, path_offset)?;
    Ok(segments)
}

/// Refuses a path that is not in the normal form in which requests are matched. The error shows that form. A path
/// without a normal form is refused too.
fn check_normal(path: &str, example_path: &str, path_offset: usize) -> Result<(), PatternError> {
    let normal_example =
        normalise(example_path).map_err(|error| PatternErrorKind::Path(error).at(path_offset))?;
    if normal_example == example_path {
        return Ok(());
    }
    let normal = normalise(path).unwrap_or(normal_example);
    let normal = normal.replace("%7B", "{").replace("%7D", "}");
    let common_bytes = normal
        .bytes()
        .zip(path.bytes())
        .take_while(|(normal_byte, byte)| normal_byte == byte)
        .count();
    let offset = path_offset + common_bytes.min(path.len().saturating_sub(1));
    Err(PatternErrorKind::NotNormal(normal).at(offset))
}

/// Parses one segment that is neither `*` nor `**`, at `offset` in the text.
fn parse_segment(segment_text: &str, offset: usize) -> Result<Segment, PatternError> {
    use PatternErrorKind as Kind;

    if let Some(star) = segment_text.find('*') {
        return Err(Kind::PartialStar.at(offset + star));
    }
    let Some(brace) = segment_text.find(['{', '}']) else {
        return Ok(Segment::Literal(segment_text.into()));
    };
    let name = segment_text
        .strip_prefix('{')
        .and_then(|after_brace| after_brace.strip_suffix('}'));
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match name {
        Some(name) if !name.is_empty() && name.bytes().all(is_name_byte) => {
            Ok(Segment::One(name.into()))
        }
        _ => Err(Kind::BadName.at(offset + brace)),
    }
}

/// Writes the pattern as policies do, without the host. The text parses to the same pattern for any host.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_any() {
            write!(f, "{} ", self.methods)?;
        }
        f.write_str(&self.path_text())
    }
}

#[cfg(test)]
mod tests;
