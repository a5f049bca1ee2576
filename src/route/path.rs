//! The normal form of a path, in which all spellings of it that servers treat alike are one.
//!
//! It is a copy for matching: the forwarded path stays as the client wrote it. So this is lenient where servers
//! differ harmlessly, and refuses where their reading decides which policy applies.
//!
//! - Escapes of characters that may stand in a path as they are (letters, digits, `-._~`,
//!   `!$&'()*+,=:@`) are decoded: servers decode them before they look.
//! - All other escapes stay and get upper-case digits; bytes that should have been escaped (spaces,
//!   quotes, braces, anything that is not ASCII) are.
//! - `%2F`, `\` and `%5C` are slashes; several slashes are one.
//! - Dot segments are removed, however their dots are spelled; `/..` stays at the root.
//! - A segment's `;parameters` are dropped: servlet containers do not see them when they choose a
//!   handler.
//! - A last slash stays, but [`crate::route::RouteTable`] does not look at it.
//!
//! Decoded once: `%252F` is the text `%2F` and stays `%252F`.

use std::borrow::Cow;

/// Why a path has no normal form. The answer to all of these is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    /// A NUL, line end or other control byte, raw or escaped.
    #[error("the path has a control character")]
    Control,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("the path has a `%` without two hexadecimal digits")]
    Escape,
    /// `..;` and the like: a step up to some servers, a name to others.
    #[error("the path has a dot segment with parameters")]
    Ambiguous,
}

/// Longest path that is read in several ways, in bytes: each way is a pass over it.
const MAX_AMBIGUOUS: usize = 2048;

/// The role of a byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// Stands for itself, escaped or not.
    Plain,
    /// Ends a segment.
    Slash,
    /// Begins parameters.
    Semicolon,
    /// Begins an escape.
    Percent,
    /// Has no place in a path.
    Control,
    /// Is escaped in the normal form.
    Escaped,
}

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

/// The normal form of `path`, a request target's path without its query. One scan and no allocation
/// when the path is normal already, one allocation otherwise; applying it twice changes nothing.
///
/// # Errors
///
/// See [`PathError`]; the request is to be refused with 400.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    if is_plainly_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let normal = rewrite(path.as_bytes(), Literal::default())?;
    Ok(if normal == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(normal)
    })
}

/// True for most normal paths and no other; the rest are told by rewriting them.
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

/// The path as frameworks see it that take more of it as it is spelled than the normal form does. All leave `;` and `\`
/// in segments; some see no slash in `%2F` (Express); some no step in a dot segment (Express, Django, Rack) or leave
/// the segment out (CodeIgniter); some no separator in a second slash (Express, Django, Rack); some no letter in
/// `%61` when they look for literals (Express). To some the path ends at the first `;` (Fastify). `slashes_kept`
/// leaves out the
/// readings in which `%2F` is a slash. Empty where `path` has a control character or a `%` without two digits; none where it
/// is longer than [`MAX_AMBIGUOUS`] and has something of this.
pub fn literal_readings(path: &str, slashes_kept: bool) -> Option<Vec<String>> {
    let has = |wanted: &dyn Fn(&[u8]) -> bool| path.as_bytes().windows(3).any(wanted);
    let escaped = |wanted: &str| has(&|bytes| bytes.eq_ignore_ascii_case(wanted.as_bytes()));
    let has_slashes = escaped("%2f");
    let has_dots = path.contains('.') || escaped("%2e");
    let dots = match has_dots {
        true => &[Dots::Kept, Dots::Dropped, Dots::Resolved][..],
        false => &[Dots::Resolved],
    };
    let has_doubles = path.contains("//") || has_slashes;
    let has_escapes = has(&|bytes| match *bytes {
        [b'%', high, low] => decoded(high, low).is_ok_and(is_plain),
        _ => false,
    });
    let has_names = path.contains([';', '\\']) || escaped("%3b") || escaped("%5c");
    let is_ambiguous = has_slashes || has_dots || has_doubles || has_escapes || has_names;
    if is_ambiguous && path.len() > MAX_AMBIGUOUS {
        return None;
    }
    let both = |has: bool| {
        [true, false]
            .into_iter()
            .filter(move |literal| has || !literal)
    };
    let mut readings = Vec::new();
    let mut add = |path: &str, literal: Literal| {
        if let Ok(reading) = rewrite(path.as_bytes(), literal)
            && !readings.contains(&reading)
        {
            readings.push(reading);
        }
    };
    for slashes in both(has_slashes).filter(|literal| *literal || !slashes_kept) {
        for &dots in dots {
            for doubles in both(has_doubles) {
                for escapes in both(has_escapes) {
                    let literal = Literal {
                        names: true,
                        slashes,
                        dots,
                        doubles,
                        escapes,
                    };
                    add(path, literal);
                }
            }
        }
    }
    if let Some((start, _)) = path.split_once(';') {
        let normal = Literal {
            slashes: slashes_kept,
            ..Literal::default()
        };
        add(start, normal);
        let literal = Literal {
            escapes: false,
            ..Literal::ALL
        };
        add(start, literal);
    }
    Some(readings)
}

/// What follows the first segment of a path that begins with two separators. `new URL(path, base)` and PHP's `parse_url`
/// take that segment for a host.
pub fn behind_authority(path: &str) -> Option<&str> {
    let separators = ['/', '\\'];
    let rest = path.strip_prefix('/')?.strip_prefix(separators)?;
    let rest = rest.trim_start_matches(separators);
    rest.find(separators).map(|end| &rest[end..])
}

/// The normal path in which `%2F` is part of its segment; none where there is no `%2F`. None either where other
/// characters beside it may be read as a slash or a step.
pub fn with_encoded_slashes(path: &str) -> Option<String> {
    let literal = Literal {
        slashes: true,
        ..Literal::default()
    };
    let kept = rewrite(path.as_bytes(), literal).ok()?;
    let steps = |segment: &str| segment.split("%2F").any(|part| matches!(part, "." | ".."));
    let one_reading = !path.contains('\\') && !kept.contains("%5C");
    (one_reading && kept.contains("%2F") && !kept.split('/').any(steps)).then_some(kept)
}

/// How dot segments are treated.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Dots {
    /// They are steps (RFC 3986, section 5.2.4).
    #[default]
    Resolved,
    /// They are names.
    Kept,
    /// They are left out, and what stands before them stays.
    Dropped,
}

/// Which parts of a path keep their spelling.
#[derive(Clone, Copy, Default)]
struct Literal {
    /// What begins with `;`, and `\`.
    names: bool,
    /// Escaped slashes.
    slashes: bool,
    dots: Dots,
    /// Segments without a name.
    doubles: bool,
    /// Escapes of characters that may stand as they are.
    escapes: bool,
}

impl Literal {
    const ALL: Literal = Literal {
        names: true,
        slashes: true,
        dots: Dots::Kept,
        doubles: true,
        escapes: true,
    };
}

/// The normal path as far as it is read.
struct Rewriter {
    literal: Literal,
    out: Vec<u8>,
    /// Where the unfinished segment begins in `out`.
    start: usize,
    /// The unfinished segment has parameters, and what comes now is part of them.
    parameters: bool,
}

fn rewrite(path: &[u8], literal: Literal) -> Result<String, PathError> {
    let Some((b'/', mut rest)) = path.split_first() else {
        return Err(PathError::NotAbsolute);
    };
    let mut to = Rewriter {
        literal,
        out: Vec::with_capacity(path.len() + 8),
        start: 1,
        parameters: false,
    };
    to.out.push(b'/');
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = if CLASSES[usize::from(first)] == ByteClass::Percent {
            let (&[high, low], after) = after.split_first_chunk().ok_or(PathError::Escape)?;
            (decoded(high, low)?, after)
        } else {
            (first, after)
        };
        rest = after;
        match CLASSES[usize::from(byte)] {
            ByteClass::Control => return Err(PathError::Control),
            ByteClass::Slash if to.keeps(first, byte) => to.escape(byte),
            ByteClass::Slash => to.end_segment(true)?,
            ByteClass::Semicolon if literal.names => to.escape(byte),
            ByteClass::Semicolon => to.parameters = true,
            _ if to.parameters => {}
            // With an escaped `%`, or else it would be the letter again when case is folded.
            ByteClass::Plain if literal.escapes && first == b'%' => {
                to.escape(first);
                to.escape(byte);
            }
            ByteClass::Plain => to.out.push(byte),
            ByteClass::Percent | ByteClass::Escaped => to.escape(byte),
        }
    }
    to.end_segment(false)?;
    String::from_utf8(to.out).map_err(|_| PathError::Escape)
}

impl Rewriter {
    /// Whether this is no slash; `first` is the first byte of its spelling.
    fn keeps(&self, first: u8, byte: u8) -> bool {
        let literal = self.literal;
        (literal.names && byte == b'\\') || (literal.slashes && first == b'%')
    }

    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let digits = [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ];
        self.out.extend_from_slice(&[b'%', digits[0], digits[1]]);
    }

    fn end_segment(&mut self, slash_follows: bool) -> Result<(), PathError> {
        let dots = self.literal.dots;
        match &self.out[self.start..] {
            b"." | b".." if dots == Dots::Kept && slash_follows => self.out.push(b'/'),
            b"." | b".." if dots == Dots::Kept => {}
            b"." | b".." if self.parameters => return Err(PathError::Ambiguous),
            b".." if dots == Dots::Dropped => self.out.truncate(self.start),
            b"." => self.out.truncate(self.start),
            b".." => {
                // `out[..start]` ends with the slash before this segment; the one before that slash
                // begins the segment to be taken back, and at the root there is none.
                let above = self.out[..self.start - 1]
                    .iter()
                    .rposition(|&byte| byte == b'/');
                self.out.truncate(above.map_or(1, |slash| slash + 1));
            }
            // The last slash of a path says nothing, so that a second one takes two.
            b"" if self.literal.doubles && (slash_follows || self.out.ends_with(b"//")) => {
                self.out.push(b'/');
            }
            b"" => {}
            _ if slash_follows => self.out.push(b'/'),
            _ => {}
        }
        self.start = self.out.len();
        self.parameters = false;
        Ok(())
    }
}

fn decoded(high: u8, low: u8) -> Result<u8, PathError> {
    Ok(hex(high)? << 4 | hex(low)?)
}

fn is_plain(byte: u8) -> bool {
    CLASSES[usize::from(byte)] == ByteClass::Plain
}

fn hex(digit: u8) -> Result<u8, PathError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathError::Escape),
    }
}

#[cfg(test)]
mod tests;
