//! [`CostMeter`]: reads the body of one response while it passes, and looks for costs in it.

use super::body_text::BodyText;
use super::json_path::JsonPath;
use super::unpacker::{self, OpenedBody, Unpacker};

/// A cost that a body states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredCost {
    /// The last number at the path, in units, rounded up.
    pub units: u32,
    /// Whether no later number can follow, because the body was read to its end. False if it ended within a document or
    /// became unreadable, and for content types whose bodies may repeat numbers of the request.
    pub is_exact: bool,
}

/// Reads the body of one response, and looks for costs in it.
#[derive(Debug)]
pub struct CostMeter {
    /// The paths, each once.
    paths: Vec<JsonPath>,
    input: MeterInput,
    /// Whether the body has ended and was not cut off.
    is_complete: bool,
}

/// The body, as far as it was read.
#[derive(Debug)]
enum MeterInput {
    /// A body without a content coding.
    Plain(BodyText),
    /// A compressed body.
    Packed(Box<Unpacker>),
    /// The coding is unknown, the bytes do not match it, or they exceed a bound. Holds the number of each path so far.
    Unreadable(Vec<Option<u32>>),
}

impl CostMeter {
    /// Makes a meter for the numbers at `paths` in a body with these `Content-Encoding` fields. `owner` is the keyed
    /// hash of the client: decompressors are shared out between owners.
    pub fn new<'a>(
        paths: impl Iterator<Item = &'a JsonPath>,
        codings: impl Iterator<Item = &'a [u8]>,
        content_type: Option<&[u8]>,
        owner: u128,
    ) -> CostMeter {
        let mut distinct_paths: Vec<JsonPath> = Vec::new();
        for path in paths {
            if !distinct_paths.contains(path) {
                distinct_paths.push(path.clone());
            }
        }
        let text = BodyText::new(&distinct_paths, content_type);
        CostMeter {
            input: match unpacker::open_body(codings, text, owner) {
                Ok(OpenedBody::Packed(unpacker)) => MeterInput::Packed(unpacker),
                Ok(OpenedBody::Plain(text)) => MeterInput::Plain(text),
                Err(_) => MeterInput::Unreadable(vec![None; distinct_paths.len()]),
            },
            paths: distinct_paths,
            is_complete: false,
        }
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, data: &[u8]) {
        match &mut self.input {
            MeterInput::Plain(text) => text.feed(data),
            MeterInput::Packed(unpacker) => {
                if unpacker.feed(data).is_err() {
                    let text = unpacker.text();
                    let numbers =
                        (0..self.paths.len()).map(|path_index| text?.last_number(path_index).0);
                    self.input = MeterInput::Unreadable(numbers.collect());
                }
            }
            MeterInput::Unreadable(_) => {}
        }
    }

    /// Ends the body. `is_complete` says that it was not cut off.
    pub fn finish(&mut self, is_complete: bool) {
        self.is_complete = is_complete;
        if let MeterInput::Packed(unpacker) = &mut self.input {
            self.is_complete &= unpacker.finish().is_ok();
        }
    }

    /// The last number at `path` so far; `None` without a number there, and for a path that the meter was not made for.
    pub fn measured(&self, path: &JsonPath) -> Option<MeasuredCost> {
        let index = self.paths.iter().position(|own| own == path)?;
        let read_text = |text: &BodyText| {
            let (units, is_between_documents) = text.last_number(index);
            (units, is_between_documents && text.is_stated())
        };
        let (units, is_certain) = match &self.input {
            MeterInput::Plain(text) => read_text(text),
            MeterInput::Packed(unpacker) => read_text(unpacker.text()?),
            MeterInput::Unreadable(numbers) => (numbers[index], false),
        };
        Some(MeasuredCost {
            units: units?,
            is_exact: self.is_complete && is_certain,
        })
    }
}
