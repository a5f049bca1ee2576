//! The cost that the body of a response states, found while the body passes: in JSON, event streams or JSON lines, plain
//! or compressed. Nothing of the body is kept.
//!
//! Bounds: for each path a number of [`json::MAX_NUMBER`] bytes; for decompressors see [`unpack`].

mod events;
mod json;
mod skip;
mod units;
mod unpack;

#[cfg(test)]
mod tests;

use http::HeaderName;

use crate::http::head::Lookup;

pub use json::Path;
pub use units::{units, units_from};

use events::BodyText;
use unpack::Unpacker;

/// A cost that a body states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The last number at the path, in units, rounded up.
    pub units: u32,
    /// Whether the body was read to its end, so that no later number can follow. Its content type must not repeat
    /// numbers of the request.
    pub exact: bool,
}

/// Reads the body of one response for costs.
#[derive(Debug)]
pub struct Meter {
    paths: Vec<Path>,
    input: Input,
    whole: bool,
}

#[derive(Debug)]
enum Input {
    Plain(BodyText),
    Packed(Box<Unpacker>),
    /// The coding is unknown, the bytes do not match it, or they exceed a bound. Holds the number of each path so far.
    Unreadable(Vec<Option<u32>>),
}

impl Meter {
    /// Reads for the numbers at `paths` in a body with these `Content-Encoding` fields. `owner` stands for the client:
    /// decompressors are shared out between owners.
    pub fn new<'a>(
        paths: impl Iterator<Item = &'a Path>,
        codings: impl Iterator<Item = &'a [u8]>,
        content_type: Option<&[u8]>,
        owner: u128,
    ) -> Meter {
        let mut distinct: Vec<Path> = Vec::new();
        for path in paths {
            if !distinct.contains(path) {
                distinct.push(path.clone());
            }
        }
        let text = BodyText::new(&distinct, content_type);
        Meter {
            input: match unpack::unpacker(codings, text, owner) {
                Ok(Ok(unpacker)) => Input::Packed(unpacker),
                Ok(Err(text)) => Input::Plain(text),
                Err(unpack::Undecodable) => Input::Unreadable(vec![None; distinct.len()]),
            },
            paths: distinct,
            whole: false,
        }
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, data: &[u8]) {
        match &mut self.input {
            Input::Plain(text) => text.feed(data),
            Input::Packed(unpacker) => {
                if unpacker.feed(data).is_err() {
                    let text = unpacker.text();
                    let each = (0..self.paths.len()).map(|path| text?.last_number(path).0);
                    self.input = Input::Unreadable(each.collect());
                }
            }
            Input::Unreadable(_) => {}
        }
    }

    /// Ends the body; `whole` if it was not cut off.
    pub fn finish(&mut self, whole: bool) {
        self.whole = whole;
        if let Input::Packed(unpacker) = &mut self.input {
            self.whole &= unpacker.finish().is_ok();
        }
    }

    /// The last number at `path` so far.
    pub fn measured(&self, path: &Path) -> Option<Measured> {
        let index = self.paths.iter().position(|own| own == path)?;
        let of = |text: &BodyText| {
            let (units, between) = text.last_number(index);
            (units, between && text.is_stated())
        };
        let (units, sure) = match &self.input {
            Input::Plain(text) => of(text),
            Input::Packed(unpacker) => of(unpacker.text()?),
            Input::Unreadable(found) => (found[index], false),
        };
        Some(Measured {
            units: units?,
            exact: self.whole && sure,
        })
    }
}

/// The largest number in the fields of this name, whose values may be lists.
pub fn largest(fields: &dyn Lookup, name: &HeaderName) -> Option<u32> {
    let mut largest = None;
    fields.visit(name.as_str(), &mut |value| {
        let each = value.split(|byte| *byte == b',').filter_map(units);
        largest = largest.max(each.max());
    });
    largest
}
