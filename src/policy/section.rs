//! The macro [`section!`] declares the fields of a section of the gateway file once. The struct, its reader, its
//! defaults and its rows in the reference and the schemas all come from that declaration. It fits sections whose fields
//! are independent; checks between fields need a reader of their own.

use std::marker::PhantomData;

use super::context::LoadContext;
use super::table::{FieldNeed, ValueShape};
use super::tree::Node;

/// Reads and formats the value of a field.
pub trait FieldReader {
    /// The type of the value in the section's struct.
    type Value;
    /// The values that the field accepts.
    const SHAPE: ValueShape;
    /// Whether the field must be present.
    const NEED: FieldNeed = FieldNeed::Optional;

    /// Reads the value, or reports a mistake to `cx`.
    fn read(cx: &mut LoadContext, node: &Node) -> Option<Self::Value>;

    /// Formats a value as files write it, for the reference.
    fn format_value(value: &Self::Value) -> String;
}

/// A field that must be present. The section's struct has an [`Option`] all the same, for an invalid value.
pub struct RequiredField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for RequiredField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::Required;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }

    fn format_value(value: &R::Value) -> String {
        R::format_value(value)
    }
}

/// Declares a section: its struct, its table with a name and a line for the reference, then each field as
/// `name: Reader = default, "line for the reference", "example";`. A field without a default is an [`Option`].
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $section:ident, table $table:ident = $name:literal, $doc:literal;
        $($field:ident: $reader:ty $(= $default:expr)?, $text:literal, $example:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $(#[doc = $text] pub $field: section!(@type $reader $(, $default)?),)*
        }

        pub(in crate::policy) static $table: Table = Table {
            name: $name,
            doc: $doc,
            fields: &[$(TableField {
                default: section!(@default $reader $(, $default)?),
                need: <$reader as FieldReader>::NEED,
                ..optional(stringify!($field), <$reader>::SHAPE, $text, $example)
            }),*],
        };

        impl Default for $section {
            fn default() -> $section {
                $section { $($field: section!(@absent $($default)?),)* }
            }
        }

        impl $section {
            /// Reads the section. A field that is absent or invalid has its default.
            pub(in crate::policy) fn read(cx: &mut LoadContext, node: &Node) -> $section {
                let mut section = $section::default();
                if let Some(fields) = $table.open(cx, node) {
                    $(if let Some(node) = fields.get(stringify!($field))
                        && let Some(value) = <$reader>::read(cx, node)
                    {
                        section.$field = value.into();
                    })*
                }
                section
            }
        }
    };
    (@type $reader:ty, $default:expr) => { <$reader as FieldReader>::Value };
    (@type $reader:ty) => { Option<<$reader as FieldReader>::Value> };
    (@default $reader:ty, $default:expr) => {
        Some((|| <$reader>::format_value(&$default)) as fn() -> String)
    };
    (@default $reader:ty) => { None };
    (@absent $default:expr) => { $default };
    (@absent) => { None };
}

pub(super) use section;
