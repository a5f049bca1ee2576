//! The readers of fields that several sections declare with [`section!`](super::super::section), and two macros that
//! declare readers of words and of texts. `scalar` parses texts that have a grammar, such as durations.

use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use super::super::context::LoadContext;
use super::super::section::{FieldReader, LocatedField};
use super::super::table::ValueShape;
use super::super::tree::{Located, Node};
use super::scalar::{DURATION_FORMAT, PATH_FORMAT, SIZE_FORMAT, format_duration, format_size};

/// Maximum timeout and delay in milliseconds: a day.
const MAX_TIMEOUT_MILLIS: u64 = 86_400_000;

/// A field with a timeout, from 1 ms to a day.
pub type TimeoutField = DurationField<1, MAX_TIMEOUT_MILLIS>;

/// A field with a delay, from 0 to a day.
pub type DelayField = DurationField<0, MAX_TIMEOUT_MILLIS>;

/// A field with a duration from `MIN` to `MAX` milliseconds.
pub struct DurationField<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> FieldReader for DurationField<MIN, MAX> {
    type Value = Duration;
    const SHAPE: ValueShape = ValueShape::Format(&DURATION_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Duration> {
        cx.read_duration(node, Duration::from_millis(MIN), Duration::from_millis(MAX))
    }

    fn format_value(duration: &Duration) -> String {
        // People write 60s, not 1m, so whole seconds stay seconds below two minutes.
        match duration.as_secs() {
            seconds @ ..120 if duration.subsec_nanos() == 0 => format!("{seconds}s"),
            _ => format_duration(*duration),
        }
    }
}

/// A field with a whole number from `MIN` to `MAX`. Both must fit `T`, because a number that does not is dropped
/// without a message.
pub struct WholeNumberField<T, const MIN: u64, const MAX: u64>(PhantomData<T>);

impl<T, const MIN: u64, const MAX: u64> FieldReader for WholeNumberField<T, MIN, MAX>
where
    T: TryFrom<u64> + Display,
{
    type Value = T;
    const SHAPE: ValueShape = ValueShape::WholeNumber(MIN, MAX);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<T> {
        T::try_from(cx.read_whole_number(node, MIN, MAX)?).ok()
    }

    fn format_value(number: &T) -> String {
        number.to_string()
    }
}

/// A field with a size in bytes, from `MIN` to `MAX`.
pub struct SizeField<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> FieldReader for SizeField<MIN, MAX> {
    type Value = usize;
    const SHAPE: ValueShape = ValueShape::Format(&SIZE_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<usize> {
        cx.read_size(node, MIN, MAX)
    }

    fn format_value(size: &usize) -> String {
        format_size(u64::try_from(*size).unwrap_or(u64::MAX))
    }
}

/// A field that is `true` or `false`.
pub struct BoolField;

impl FieldReader for BoolField {
    type Value = bool;
    const SHAPE: ValueShape = ValueShape::Bool;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<bool> {
        cx.read_bool(node)
    }

    fn format_value(value: &bool) -> String {
        value.to_string()
    }
}

/// A field with one value or a list of values. Values with a mistake, which is reported, are left out.
pub struct ListField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for ListField<R> {
    type Value = Vec<R::Value>;
    const SHAPE: ValueShape = ValueShape::OneOrList(&R::SHAPE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Vec<R::Value>> {
        Some(cx.read_list(node, R::read))
    }

    fn format_value(values: &Vec<R::Value>) -> String {
        let values: Vec<String> = values.iter().map(R::format_value).collect();
        match values.as_slice() {
            [] | [_] => values.concat(),
            _ => format!("[{}]", values.join(", ")),
        }
    }
}

/// A field with the name of a file that holds secrets.
pub struct SecretFileNameField;

impl FieldReader for SecretFileNameField {
    type Value = Located<String>;
    const SHAPE: ValueShape = ValueShape::Format(&PATH_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<String>> {
        cx.read_secret_file_name(node)
    }
}

/// Declares readers of words, each as `pub struct Field: Type = "word" => meaning, …;`.
macro_rules! word_fields {
    ($(
        $(#[$about:meta])*
        pub struct $field:ident: $value:ty = $($word:literal => $meaning:expr),+;
    )*) => {$(
        $(#[$about])*
        pub struct $field;

        impl $crate::policy::section::FieldReader for $field {
            type Value = $value;
            const SHAPE: $crate::policy::table::ValueShape = $crate::policy::table::ValueShape::Words(&[$($word),+]);

            fn read(
                cx: &mut $crate::policy::context::LoadContext,
                node: &$crate::policy::tree::Node,
            ) -> Option<$value> {
                cx.read_word(node, &[$(($word, $meaning)),+])
            }

            fn format_value(value: &$value) -> String {
                let mut words = [$(($word, $meaning)),+].into_iter();
                let word = words.find(|(_, meaning)| meaning == value);
                word.map_or_else(String::new, |(word, _)| word.into())
            }
        }
    )*};
}

/// Declares readers of texts, each as `pub struct Field: Type = shape, "the expected value", parse;`. Without `parse`
/// the value is the text, which must not be blank or have control characters.
macro_rules! scalar_fields {
    ($(
        $(#[$about:meta])*
        pub struct $field:ident: $value:ty = $shape:expr, $expected:literal $(, $parse:expr)?;
    )*) => {$(
        $(#[$about])*
        pub struct $field;

        impl $crate::policy::section::FieldReader for $field {
            type Value = $value;
            const SHAPE: $crate::policy::table::ValueShape = $shape;

            fn read(
                cx: &mut $crate::policy::context::LoadContext,
                node: &$crate::policy::tree::Node,
            ) -> Option<$value> {
                cx.read_scalar(node, $expected, scalar_fields!(@parse $expected $(, $parse)?))
            }
        }
    )*};
    (@parse $expected:literal, $parse:expr) => { $parse };
    (@parse $expected:literal) => { |text: &str| $crate::policy::decode::parse_text(text, $expected) };
}

pub(in crate::policy) use {scalar_fields, word_fields};

/// A field with the name of a file that holds no secret.
pub type FileNameField = LocatedField<FileName>;

/// A field with the name of a folder.
pub type FolderNameField = LocatedField<FolderName>;

scalar_fields! {
    /// A field with the name of a file, without its location.
    pub struct FileName: String = ValueShape::Format(&PATH_FORMAT), "the name of a file";
    /// A field with the name of a folder, without its location.
    pub struct FolderName: String = ValueShape::Format(&PATH_FORMAT), "the name of a folder";
}
