//! The readers of fields that sections declare with [`section!`](super::super::section): timeouts, sizes and numbers.
//! Each wraps a reader of `scalar` with fixed bounds.

use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use super::super::context::LoadContext;
use super::super::section::FieldReader;
use super::super::table::ValueShape;
use super::super::tree::Node;
use super::scalar::{DURATION_FORMAT, MAX_TIMEOUT, SIZE_FORMAT, format_duration, format_size};

/// A field with a timeout, from 1 ms to a day.
pub struct TimeoutField;

/// A field with a delay, from 0 to a day.
pub struct DelayField;

impl FieldReader for TimeoutField {
    type Value = Duration;
    const SHAPE: ValueShape = ValueShape::Format(&DURATION_FORMAT);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Duration> {
        cx.read_timeout(node)
    }

    fn format_value(timeout: &Duration) -> String {
        // People write 60s, not 1m.
        match timeout.as_secs() {
            seconds @ ..120 if timeout.subsec_nanos() == 0 => format!("{seconds}s"),
            _ => format_duration(*timeout),
        }
    }
}

impl FieldReader for DelayField {
    type Value = Duration;
    const SHAPE: ValueShape = TimeoutField::SHAPE;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Duration> {
        let delay = cx.read_duration(node, Duration::ZERO, MAX_TIMEOUT)?;
        Some(delay.value)
    }

    fn format_value(delay: &Duration) -> String {
        TimeoutField::format_value(delay)
    }
}

/// A field with a whole number from `MIN` to `MAX`.
pub struct WholeNumberField<T, const MIN: u64, const MAX: u64>(PhantomData<T>);

impl<T, const MIN: u64, const MAX: u64> FieldReader for WholeNumberField<T, MIN, MAX>
where
    T: TryFrom<u64> + Display,
{
    type Value = T;
    const SHAPE: ValueShape = ValueShape::WholeNumber(MIN, MAX);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<T> {
        let number = cx.read_whole_number(node, MIN, MAX)?;
        T::try_from(number.value).ok()
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
        cx.read_size(node, MIN, MAX).map(|size| size.value)
    }

    fn format_value(size: &usize) -> String {
        format_size(u64::try_from(*size).unwrap_or(u64::MAX))
    }
}
