//! The macro [`section!`] declares each field of a section of the files once. The struct of the model, its reader, its
//! defaults and its rows in the reference and the schemas all come from that declaration.
//!
//! Checks between the fields of one section are functions, which run after all fields of the section were read.

use std::marker::PhantomData;
use std::ops::Deref;

use super::context::LoadContext;
use super::table::{FieldNeed, MapFields, Table, ValueShape};
use super::tree::{Located, MapKey, Node};

/// Reads and formats the value of a field.
pub trait FieldReader {
    /// The type of the value in the section's struct.
    type Value;
    /// The values that the field accepts.
    const SHAPE: ValueShape;
    /// Whether the field must be present.
    const NEED: FieldNeed = FieldNeed::Optional;

    /// Reads the value; `None` after a mistake, which is reported to `cx`.
    fn read(cx: &mut LoadContext, node: &Node) -> Option<Self::Value>;

    /// Formats a default as files write it, for the reference. An empty text is left out there.
    fn format_value(_: &Self::Value) -> String {
        String::new()
    }
}

/// A struct whose fields [`section!`] declares.
pub trait Section: Default {
    /// The table of the fields.
    const TABLE: &'static Table;

    /// Reads the fields and checks them together. A field that is absent or invalid has its default.
    fn read_fields(cx: &mut LoadContext, fields: &MapFields<'_>) -> Self;

    /// Reads a section that is a map; `None` for another value, which is reported.
    fn read(cx: &mut LoadContext, node: &Node) -> Option<Self> {
        let fields = Self::TABLE.open(cx, node)?;
        Some(Self::read_fields(cx, &fields))
    }
}

/// The fields of a section, with the name that the user chose for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<S, N = Located<String>> {
    /// The name, which is not a field.
    pub name: N,
    /// The fields of the section.
    pub fields: S,
}

impl<S, N> Deref for Named<S, N> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.fields
    }
}

impl MapFields<'_> {
    /// Reads the fields whose names the user chose. Those with a mistake, which is reported, are left out.
    pub fn read_others<R: FieldReader>(&self, cx: &mut LoadContext) -> Vec<Named<R::Value>> {
        let read_field = |(key, node): &(MapKey, Node)| {
            Some(Named {
                name: Located {
                    value: key.text.clone(),
                    location: key.location,
                },
                fields: R::read(cx, node)?,
            })
        };
        self.others().filter_map(read_field).collect()
    }
}

/// A field with a section.
pub struct SectionField<S>(PhantomData<S>);

impl<S: Section> FieldReader for SectionField<S> {
    type Value = S;
    const SHAPE: ValueShape = ValueShape::Table(S::TABLE);

    fn read(cx: &mut LoadContext, node: &Node) -> Option<S> {
        S::read(cx, node)
    }
}

/// A field that must be present. Its default only stands for a missing or invalid value, which is reported, so the
/// reference does not show it.
pub struct RequiredField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for RequiredField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::Required;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }
}

/// The field `match` of a policy, which must be present unless `domain` is.
pub struct UnlessDomainField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for UnlessDomainField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::RequiredUnless("domain");

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }
}

/// One of the fields of a section of which at least one must be present, or be inherited from the defaults of a folder:
/// [`FieldNeed::AlternativeOrInherited`].
pub struct InheritableField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for InheritableField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::AlternativeOrInherited;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }
}

/// One of the fields of a section of which at least one must be present: [`FieldNeed::Alternative`].
pub struct AlternativeField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for AlternativeField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::Alternative;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }
}

/// One of the fields of a section of which at least one must be present: [`FieldNeed::AtLeastOne`].
pub struct AtLeastOneField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for AtLeastOneField<R> {
    type Value = R::Value;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = FieldNeed::AtLeastOne;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<R::Value> {
        R::read(cx, node)
    }
}

/// A field whose location later diagnostics need.
pub struct LocatedField<R>(PhantomData<R>);

impl<R: FieldReader> FieldReader for LocatedField<R> {
    type Value = Located<R::Value>;
    const SHAPE: ValueShape = R::SHAPE;
    const NEED: FieldNeed = R::NEED;

    fn read(cx: &mut LoadContext, node: &Node) -> Option<Located<R::Value>> {
        R::read(cx, node).map(|value| Located {
            value,
            location: node.location,
        })
    }
}

/// Declares a section, in this order:
///
/// 1. its struct, and its table with the table's name and its line for the reference;
/// 2. `check function`, if its fields are checked together;
/// 3. `others name: Reader where accepts, suggest names, "line", "example"`, if the user chooses names of fields;
/// 4. each field as `name: Reader = default, "line for the reference", "example";`.
///
/// The function `accepts` says whether the user may choose a name; `names` returns names to suggest in place of an
/// unknown one.
///
/// A field without a default is an [`Option`]. A field whose name in the files differs is written `name("key"): …`.
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $section:ident, table $table:ident = $name:literal, $doc:literal $(, check $check:ident)?
            $(, others $others:ident: $other:ty where $accepts:path, suggest $suggestions:path, $other_text:literal, $other_example:literal)?;
        $($field:ident $(($key:literal))?: $reader:ty $(= $default:expr)?, $text:literal, $example:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $section {
            $(#[doc = $text] pub $field: section!(@type $reader $(, $default)?),)*
            $(
                #[doc = $other_text]
                pub $others: Vec<$crate::policy::section::Named<
                    <$other as $crate::policy::section::FieldReader>::Value,
                >>,
            )?
        }

        pub(in crate::policy) static $table: $crate::policy::table::Table = $crate::policy::table::Table {
            name: $name,
            doc: $doc,
            fields: &[$($crate::policy::table::TableField {
                name: section!(@key $field $(, $key)?),
                shape: <$reader as $crate::policy::section::FieldReader>::SHAPE,
                need: <$reader as $crate::policy::section::FieldReader>::NEED,
                doc: $text,
                default: section!(@default $reader $(, $default)?),
                example: $example,
            }),*],
            others: section!(@others $($other, $accepts, $suggestions, $other_text, $other_example)?),
        };

        impl Default for $section {
            fn default() -> $section {
                $section {
                    $($field: section!(@absent $($default)?),)*
                    $($others: Vec::new(),)?
                }
            }
        }

        impl $crate::policy::section::Section for $section {
            const TABLE: &'static $crate::policy::table::Table = &$table;

            fn read_fields(
                cx: &mut $crate::policy::context::LoadContext,
                fields: &$crate::policy::table::MapFields<'_>,
            ) -> $section {
                let mut section = $section::default();
                $(if let Some(node) = fields.get(section!(@key $field $(, $key)?))
                    && let Some(value) = <$reader as $crate::policy::section::FieldReader>::read(cx, node)
                {
                    section.$field = value.into();
                })*
                $(section.$others = fields.read_others::<$other>(cx);)?
                $($check(cx, fields, &mut section);)?
                section
            }
        }
    };
    (@others $other:ty, $accepts:path, $suggestions:path, $text:literal, $example:literal) => {
        Some($crate::policy::table::OtherFields {
            accepts: $accepts,
            suggestions: $suggestions,
            field: $crate::policy::table::TableField {
                name: "NAME",
                shape: <$other as $crate::policy::section::FieldReader>::SHAPE,
                need: $crate::policy::table::FieldNeed::Optional,
                doc: $text,
                default: None,
                example: $example,
            },
        })
    };
    (@others) => { None };
    (@key $field:ident, $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
    (@type $reader:ty, $default:expr) => { <$reader as $crate::policy::section::FieldReader>::Value };
    (@type $reader:ty) => { Option<<$reader as $crate::policy::section::FieldReader>::Value> };
    (@default $reader:ty, $default:expr) => {
        Some((|| <$reader as $crate::policy::section::FieldReader>::format_value(&$default)) as fn() -> String)
    };
    (@default $reader:ty) => { None };
    (@absent $default:expr) => { $default };
    (@absent) => { None };
}

pub(super) use section;
