//! Rewrites a path to its normal form, which is the same for all spellings that servers treat alike.
//!
//! The normal form is a copy for matching: the forwarded path stays as the client wrote it. So harmless differences
//! between servers are allowed, and a path is refused if a difference decides which policy applies.
//!
//! - Escapes of characters that need none (letters, digits, `-._~`, `!$&'()*+,=:@`) are decoded, as servers do before
//!   they match.
//! - Other escapes stay and get upper-case digits. Bytes that need an escape (spaces, quotes, braces, anything beyond
//!   ASCII) get one.
//! - `%2F`, `\` and `%5C` are slashes, and several slashes are one.
//! - Dot segments are resolved, however their dots are spelled; `/..` stays at the root.
//! - A segment's `;parameters` are dropped, because servlet containers ignore them when they choose a handler.
//! - A last slash stays, but [`crate::route::RouteTable`] ignores it.
//!
//! A path is decoded once: `%252F` is the text `%2F` and stays `%252F`.

use std::borrow::Cow;

/// Why a path has no normal form. A request with such a path gets 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    /// A NUL, line end or other control byte, raw or escaped.
    #[error("the path has a control character")]
    ControlCharacter,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("the path has a `%` without two hexadecimal digits")]
    InvalidEscape,
    /// A segment such as `..;`, which some servers take for a step up and others for a name.
    #[error("the path has a dot segment with parameters")]
    AmbiguousDots,
}

/// Maximum bytes of a path that is read in several ways. There may be dozens of readings, and each is a pass over the path.
const MAX_AMBIGUOUS_BYTES: usize = 2048;

/// The role of a byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// The byte needs no escape.
    Plain,
    /// The byte ends a segment.
    Slash,
    /// The byte begins parameters.
    Semicolon,
    /// The byte begins an escape.
    Percent,
    /// No path may have the byte.
    Control,
    /// The byte is escaped in the normal form.
    Escaped,
}

/// The class of each byte, when it is not escaped or after its escape is decoded.
const CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Escaped; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => ByteClass::Plain,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' => {
                ByteClass::Plain
            }
            b':' | b'@' => ByteClass::Plain,
            b'/' | b'\\' => ByteClass::Slash,
            b';' => ByteClass::Semicolon,
            b'%' => ByteClass::Percent,
            0..=0x1f | 0x7f => ByteClass::Control,
            _ => ByteClass::Escaped,
        };
        byte += 1;
    }
    classes
};

/// The normal form of `path`, a request target's path without its query. The normal form of a normal path is itself. It
/// allocates unless a quick scan shows that the path is normal.
///
/// # Errors
///
/// [`PathError`] for a path without a normal form.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    if is_plainly_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let normal = rewrite(path.as_bytes(), KeptSpellings::default())?;
    Ok(if normal == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(normal)
    })
}

/// Whether a quick scan can tell that the path is normal. For a normal path with escapes, or with a dot after a slash,
/// only the rewriter can tell.
fn is_plainly_normal(path: &[u8]) -> bool {
    if path.first() != Some(&b'/') {
        return false;
    }
    let mut after_slash = false;
    for &byte in path {
        match CLASSES[usize::from(byte)] {
            ByteClass::Plain if after_slash && byte == b'.' => return false,
            ByteClass::Plain => after_slash = false,
            ByteClass::Slash if after_slash || byte == b'\\' => return false,
            ByteClass::Slash => after_slash = true,
            _ => return false,
        }
    }
    true
}

/// The readings of a path by frameworks that keep more of its spelling than the normal form does:
///
/// - All but those of the last line leave `;` and `\` in segments.
/// - Some take `%2F` for a part of a segment (Express). With `keeps_slashes` there are no readings in which it is a slash.
/// - Some take a dot segment for a name (Express, Django, Rack) or drop it (CodeIgniter).
/// - Some take a second slash for an empty segment (Express, Django, Rack).
/// - Some do not decode `%61` when they look for literals (Express).
/// - Some end the path at the first `;` (Fastify).
///
/// `path` must have a normal form. `None` if the path has several readings and more than [`MAX_AMBIGUOUS_BYTES`].
pub fn literal_readings(path: &str, keeps_slashes: bool) -> Option<Vec<String>> {
    let ambiguous_parts = AmbiguousParts::find(path);
    if ambiguous_parts.has_any() && path.len() > MAX_AMBIGUOUS_BYTES {
        return None;
    }
    let mut readings = Vec::new();
    let mut add_reading = |path: &str, kept: KeptSpellings| {
        if let Ok(reading) = rewrite(path.as_bytes(), kept)
            && !readings.contains(&reading)
        {
            readings.push(reading);
        }
    };
    ambiguous_parts.for_each_reading(keeps_slashes, |kept| add_reading(path, kept));
    if let Some((before_semicolon, _)) = path.split_once(';') {
        let normal = KeptSpellings {
            encoded_slashes: keeps_slashes,
            ..KeptSpellings::default()
        };
        add_reading(before_semicolon, normal);
        let literal = KeptSpellings {
            plain_escapes: false,
            ..KeptSpellings::ALL
        };
        add_reading(before_semicolon, literal);
    }
    Some(readings)
}

/// The kinds of parts in a path that frameworks read in different ways.
struct AmbiguousParts {
    /// Whether the path has `%2F`.
    has_encoded_slashes: bool,
    /// Whether the path has dots, which may be dot segments.
    has_dots: bool,
    /// Whether slashes follow each other, or may do so because one is escaped.
    has_empty_segments: bool,
    /// Whether characters are escaped that need no escape.
    has_plain_escapes: bool,
    /// Whether the path has `;` or `\`, as they are or escaped.
    has_delimiters: bool,
}

impl AmbiguousParts {
    fn find(path: &str) -> AmbiguousParts {
        let has_three_bytes =
            |is_match: &dyn Fn(&[u8]) -> bool| path.as_bytes().windows(3).any(is_match);
        let has_escape =
            |escape: &str| has_three_bytes(&|bytes| bytes.eq_ignore_ascii_case(escape.as_bytes()));
        let has_encoded_slashes = has_escape("%2f");
        AmbiguousParts {
            has_encoded_slashes,
            has_dots: path.contains('.') || has_escape("%2e"),
            has_empty_segments: path.contains("//") || has_encoded_slashes,
            has_plain_escapes: has_three_bytes(&|bytes| match *bytes {
                [b'%', high, low] => decode_escape(high, low).is_ok_and(is_plain),
                _ => false,
            }),
            has_delimiters: path.contains([';', '\\']) || has_escape("%3b") || has_escape("%5c"),
        }
    }

    fn has_any(&self) -> bool {
        self.has_encoded_slashes
            || self.has_dots
            || self.has_empty_segments
            || self.has_plain_escapes
            || self.has_delimiters
    }

    /// Calls `on_reading` with each combination of spellings that frameworks may keep, the most literal one first.
    fn for_each_reading(&self, keeps_slashes: bool, mut on_reading: impl FnMut(KeptSpellings)) {
        let dots = match self.has_dots {
            true => &[
                DotSegments::Kept,
                DotSegments::Dropped,
                DotSegments::Resolved,
            ][..],
            false => &[DotSegments::Resolved],
        };
        let choices = |has_part: bool| {
            [true, false]
                .into_iter()
                .filter(move |is_kept| has_part || !is_kept)
        };
        let slashes = choices(self.has_encoded_slashes);
        for encoded_slashes in slashes.filter(|is_kept| *is_kept || !keeps_slashes) {
            for &dots in dots {
                for empty_segments in choices(self.has_empty_segments) {
                    for plain_escapes in choices(self.has_plain_escapes) {
                        on_reading(KeptSpellings {
                            delimiters: true,
                            encoded_slashes,
                            dots,
                            empty_segments,
                            plain_escapes,
                        });
                    }
                }
            }
        }
    }
}

/// The path after its first segment, if the path begins with two separators. `new URL(path, base)` and PHP's `parse_url`
/// take that segment for a host. `None` for any other path, and if nothing follows the segment.
pub fn path_after_authority(path: &str) -> Option<&str> {
    let separators = ['/', '\\'];
    let authority = path.strip_prefix('/')?.strip_prefix(separators)?;
    let authority = authority.trim_start_matches(separators);
    authority.find(separators).map(|end| &authority[end..])
}

/// The normal form of the path in which `%2F` stays part of its segment. `None` if the path has no `%2F` or no normal
/// form. `None` also if it has a backslash, as it is or escaped, or if a dot segment stands beside a `%2F`.
pub fn with_encoded_slashes(path: &str) -> Option<String> {
    let kept = KeptSpellings {
        encoded_slashes: true,
        ..KeptSpellings::default()
    };
    let normal = rewrite(path.as_bytes(), kept).ok()?;
    let has_steps = |segment: &str| segment.split("%2F").any(|part| matches!(part, "." | ".."));
    let has_backslash = path.contains('\\') || normal.contains("%5C");
    (!has_backslash && normal.contains("%2F") && !normal.split('/').any(has_steps))
        .then_some(normal)
}

/// The treatment of the segments `.` and `..`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum DotSegments {
    /// They are steps: RFC 3986 section 5.2.4.
    #[default]
    Resolved,
    /// They are names like any other.
    Kept,
    /// They are removed, and the segment before `..` stays.
    Dropped,
}

/// The parts of a path that keep their spelling. By default none does, which gives the normal form.
#[derive(Clone, Copy, Default)]
struct KeptSpellings {
    /// `;` with its parameters, and `\`.
    delimiters: bool,
    /// `%2F`.
    encoded_slashes: bool,
    /// The segments `.` and `..`.
    dots: DotSegments,
    /// The empty segments between several slashes.
    empty_segments: bool,
    /// Escapes of characters that need none.
    plain_escapes: bool,
}

impl KeptSpellings {
    /// Every part keeps its spelling.
    const ALL: KeptSpellings = KeptSpellings {
        delimiters: true,
        encoded_slashes: true,
        dots: DotSegments::Kept,
        empty_segments: true,
        plain_escapes: true,
    };
}

/// Bytes that the output reserves beyond the path's length, enough for four bytes that get an escape.
const ESCAPE_RESERVE: usize = 8;

/// Rewrites a path byte by byte to its normal form, except for the parts whose spelling is `kept`. Fails if the path
/// has no normal form.
fn rewrite(path: &[u8], kept: KeptSpellings) -> Result<String, PathError> {
    let Some((b'/', mut remaining)) = path.split_first() else {
        return Err(PathError::NotAbsolute);
    };
    let mut rewriter = Rewriter {
        kept,
        output: Vec::with_capacity(path.len() + ESCAPE_RESERVE),
        segment_start: 1,
        in_parameters: false,
    };
    rewriter.output.push(b'/');
    while let Some((&first, after_first)) = remaining.split_first() {
        let (byte, after_byte) = if CLASSES[usize::from(first)] == ByteClass::Percent {
            let (&[high, low], after_escape) = after_first
                .split_first_chunk()
                .ok_or(PathError::InvalidEscape)?;
            (decode_escape(high, low)?, after_escape)
        } else {
            (first, after_first)
        };
        remaining = after_byte;
        match CLASSES[usize::from(byte)] {
            ByteClass::Control => return Err(PathError::ControlCharacter),
            ByteClass::Slash if rewriter.is_kept_slash(first, byte) => rewriter.escape(byte),
            ByteClass::Slash => rewriter.end_segment(true)?,
            ByteClass::Semicolon if kept.delimiters => rewriter.escape(byte),
            ByteClass::Semicolon => rewriter.in_parameters = true,
            _ if rewriter.in_parameters => {}
            // The `%` is escaped too. Otherwise the escape would become the letter again when the segment is folded.
            ByteClass::Plain if kept.plain_escapes && first == b'%' => {
                rewriter.escape(first);
                rewriter.escape(byte);
            }
            ByteClass::Plain => rewriter.output.push(byte),
            ByteClass::Percent | ByteClass::Escaped => rewriter.escape(byte),
        }
    }
    rewriter.end_segment(false)?;
    String::from_utf8(rewriter.output).map_err(|_| PathError::InvalidEscape)
}

/// The output of [`rewrite`] for the bytes that it has read.
struct Rewriter {
    kept: KeptSpellings,
    output: Vec<u8>,
    /// Index in `output` at which the unfinished segment begins.
    segment_start: usize,
    /// Whether the next bytes are parameters of the unfinished segment.
    in_parameters: bool,
}

impl Rewriter {
    /// Whether a byte of [`ByteClass::Slash`] keeps its spelling; `first` is the first byte of that spelling.
    fn is_kept_slash(&self, first: u8, byte: u8) -> bool {
        (self.kept.delimiters && byte == b'\\') || (self.kept.encoded_slashes && first == b'%')
    }

    /// Appends the byte as an escape.
    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let digits = [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ];
        self.output.extend_from_slice(&[b'%', digits[0], digits[1]]);
    }

    /// Ends the unfinished segment: keeps it, drops it, or resolves it if it is a dot segment.
    fn end_segment(&mut self, slash_follows: bool) -> Result<(), PathError> {
        let dots = self.kept.dots;
        match &self.output[self.segment_start..] {
            b"." | b".." if dots == DotSegments::Kept && slash_follows => self.output.push(b'/'),
            b"." | b".." if dots == DotSegments::Kept => {}
            b"." | b".." if self.in_parameters => return Err(PathError::AmbiguousDots),
            b".." if dots == DotSegments::Dropped => self.output.truncate(self.segment_start),
            b"." => self.output.truncate(self.segment_start),
            b".." => {
                // `output` ends with the slash before this segment. The slash before that one begins the segment above,
                // which is dropped. At the root there is none.
                let above_slash = self.output[..self.segment_start - 1]
                    .iter()
                    .rposition(|&byte| byte == b'/');
                self.output
                    .truncate(above_slash.map_or(1, |slash| slash + 1));
            }
            // The route table ignores a last slash, so an empty segment at the end needs two.
            b"" if self.kept.empty_segments && (slash_follows || self.output.ends_with(b"//")) => {
                self.output.push(b'/');
            }
            b"" => {}
            _ if slash_follows => self.output.push(b'/'),
            _ => {}
        }
        self.segment_start = self.output.len();
        self.in_parameters = false;
        Ok(())
    }
}

/// The byte of an escape with these two hexadecimal digits. Fails if they are none.
fn decode_escape(high: u8, low: u8) -> Result<u8, PathError> {
    Ok(hex_value(high)? << 4 | hex_value(low)?)
}

fn is_plain(byte: u8) -> bool {
    CLASSES[usize::from(byte)] == ByteClass::Plain
}

fn hex_value(digit: u8) -> Result<u8, PathError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathError::InvalidEscape),
    }
}

#[cfg(test)]
mod tests;
