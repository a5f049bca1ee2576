//! Sections whose fields are declared once. The struct, its reader, its defaults and its rows in the reference and in
//! the schemas all come from that declaration.

use super::collect::Cx;
use super::table::ValueShape;
use super::tree::Node;

/// How the value of a field is written and read.
pub trait FieldReader {
    /// The type of the value that it reads.
    type Value;
    /// The values that the field takes.
    const SHAPE: ValueShape;

    /// Reads it. A mistake is on record.
    fn read(cx: &mut Cx, node: &Node) -> Option<Self::Value>;

    /// A value as files write it.
    fn written(value: &Self::Value) -> String;
}

/// Declares a section: its name and line in the reference, then each field as
/// `name: Reader = default, "what it is for", "example";`. A field without a default is an [`Option`].
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
                ..may(stringify!($field), <$reader>::SHAPE, $text, $example)
            }),*],
        };

        impl Default for $section {
            fn default() -> $section {
                $section { $($field: section!(@absent $($default)?),)* }
            }
        }

        impl $section {
            /// Reads the section. A field that is absent or wrong has its default.
            pub(in crate::policy) fn read(cx: &mut Cx, node: &Node) -> $section {
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
        Some((|| <$reader>::written(&$default)) as fn() -> String)
    };
    (@default $reader:ty) => { None };
    (@absent $default:expr) => { $default };
    (@absent) => { None };
}

pub(super) use section;
