//! Tables of the fields that the configuration files may have, as [`section!`](super::section) makes them. Messages about
//! unknown and missing fields, the schemas for editors and the reference are all made from these tables. A table knows
//! names and shapes, but reads no values.

use super::context::LoadContext;
use super::former_names;
use super::tree::{MapKey, Node, SourceLocation, YamlValue, find_repeated_keys};
use crate::base::suggest::{list_words, nearest_word};

/// The key by which YAML 1.1 merges the fields of another map, which is not supported.
pub const MERGE_KEY: &str = "<<";

/// The fields of one kind of map.
#[derive(Debug)]
pub struct Table {
    /// The name of the map in messages: "a limit" with its article, or "`tls`" for a section that is named by its
    /// field.
    pub name: &'static str,
    /// One line for the reference.
    pub doc: &'static str,
    /// The fields, in the order of the reference.
    pub fields: &'static [TableField],
    /// The fields whose names the user chooses.
    pub others: Option<OtherFields>,
}

/// Fields whose names the user chooses, in a table that has fields of fixed names too.
#[derive(Debug)]
pub struct OtherFields {
    /// Whether a field may have this name. Another one is reported as an unknown field.
    pub accepts: fn(&str) -> bool,
    /// The names that are suggested for an unknown one.
    pub suggestions: fn() -> Vec<&'static str>,
    /// What these fields have in common. Its name stands for the names of all of them.
    pub field: TableField,
}

/// One field of a table.
#[derive(Debug)]
pub struct TableField {
    /// The key in YAML.
    pub name: &'static str,
    /// The values that the field accepts.
    pub shape: ValueShape,
    /// Whether the field must be present.
    pub need: FieldNeed,
    /// One line for the reference.
    pub doc: &'static str,
    /// Formats the default value as YAML; `None` if there is no default or `doc` contains it. An empty text and the
    /// default of a field that must be present are not shown.
    pub default: Option<fn() -> String>,
    /// A valid value, as YAML.
    pub example: &'static str,
}

impl TableField {
    /// The line for the reference, with the default value.
    pub fn description(&self) -> String {
        let default = self.default.filter(|_| self.need == FieldNeed::Optional);
        match default
            .map(|format| format())
            .filter(|default| !default.is_empty())
        {
            Some(default) => format!("{} Default: {default}.", self.doc),
            None => self.doc.to_owned(),
        }
    }
}

/// Whether a field must be present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNeed {
    /// The field must be present.
    Required,
    /// At least one of the fields of the table with this need must be present. A section that allows only one of them
    /// reports the others itself.
    Alternative,
    /// At least one of the fields of the table with this need must be present, and all may be.
    AtLeastOne,
    /// As [`FieldNeed::Alternative`], but one may also be inherited from the defaults of a folder. Readers see the
    /// inherited field. None is needed where [`LoadContext::is_served_by_others`]. A table has fields of this need or alternatives, not both.
    AlternativeOrInherited,
    /// The field must be present, unless the field of this name is. Alternatives of the table are not needed then either.
    RequiredUnless(&'static str),
    /// The field may be absent.
    Optional,
}

/// The values that a field accepts.
#[derive(Debug)]
pub enum ValueShape {
    /// Any text that is not empty.
    Text,
    /// One of `true` and `false`.
    Bool,
    /// A whole number from the first bound to the second, both included.
    WholeNumber(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A text in this format.
    Format(&'static TextFormat),
    /// No value, as `~` or nothing.
    Null,
    /// A list of values of this shape.
    List(&'static ValueShape),
    /// One value of this shape, or a list of them.
    OneOrList(&'static ValueShape),
    /// A map from names that the user chooses to values of this shape.
    NamedMap(&'static ValueShape),
    /// A map from any texts to values of this shape.
    TextMap(&'static ValueShape),
    /// A map with the fields of this table.
    Table(&'static Table),
    /// A value of any of these shapes.
    AnyOf(&'static [ValueShape]),
}

/// A format of texts, such as durations.
#[derive(Debug)]
pub struct TextFormat {
    /// The name in the schemas and the reference: "duration".
    pub name: &'static str,
    /// A regular expression that texts in this format match.
    pub pattern: &'static str,
    /// One line for the reference.
    pub doc: &'static str,
}

/// The fields of a map whose keys were checked against a table.
pub struct MapFields<'n> {
    table: &'static Table,
    /// All entries of the map, unknown and repeated ones included.
    entries: &'n [(MapKey, Node)],
    /// The location of the map, or of the name that the user gave it.
    pub location: SourceLocation,
}

impl Table {
    /// The fields that must be present, in order.
    pub fn required_fields(&self) -> impl Iterator<Item = &'static TableField> {
        let needs_it = |need| matches!(need, FieldNeed::Required | FieldNeed::RequiredUnless(_));
        self.fields.iter().filter(move |field| needs_it(field.need))
    }

    /// The fields of which at least one must be present where the table is read, in order.
    pub fn alternatives(&self) -> impl Iterator<Item = &'static TableField> {
        let needs = [
            FieldNeed::Alternative,
            FieldNeed::AtLeastOne,
            FieldNeed::AlternativeOrInherited,
        ];
        self.fields
            .iter()
            .filter(move |field| needs.contains(&field.need))
    }

    /// The fields with a need, in order.
    pub fn fields_with_need(&self, need: FieldNeed) -> impl Iterator<Item = &'static TableField> {
        self.fields.iter().filter(move |field| field.need == need)
    }

    /// Whether the table has a field of this fixed name.
    fn has_field(&self, name: &str) -> bool {
        self.names().any(|field| field == name)
    }

    /// Whether a field whose name the user chooses may have this name.
    fn accepts_other(&self, name: &str) -> bool {
        let others = self.others.as_ref();
        others.is_some_and(|others| (others.accepts)(name))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }

    /// Opens a map. Reports unknown, repeated and missing fields. `None` for a value that is no map, which is reported.
    pub fn open<'n>(&'static self, cx: &mut LoadContext, node: &'n Node) -> Option<MapFields<'n>> {
        self.open_at(cx, node, node.location)
    }

    /// Opens a map as [`Table::open`] does, under a name that the user chose. Missing fields are reported at that name.
    pub fn open_named<'n>(
        &'static self,
        cx: &mut LoadContext,
        node: &'n Node,
        key: &MapKey,
    ) -> Option<MapFields<'n>> {
        self.open_at(cx, node, key.location)
    }

    /// Opens a map, and reports missing fields at `location`.
    fn open_at<'n>(
        &'static self,
        cx: &mut LoadContext,
        node: &'n Node,
        location: SourceLocation,
    ) -> Option<MapFields<'n>> {
        let YamlValue::Map(entries) = &node.value else {
            let kind = node.kind();
            let message = format!("expected {}, a map of fields, found {kind}", self.name);
            cx.error(node.location, message, Some(self.example()));
            return None;
        };
        cx.report_repeated_keys(entries);
        let mut intended_names = Vec::new();
        for (key, _) in entries {
            if !self.has_field(&key.text) && !self.accepts_other(&key.text) {
                intended_names.extend(self.report_unknown_field(cx, key));
            }
        }
        let fields = MapFields {
            table: self,
            entries,
            location,
        };
        self.report_missing_fields(cx, &fields, &intended_names);
        Some(fields)
    }

    /// Reports missing fields, except `intended_names`, which unknown fields were probably meant to be.
    fn report_missing_fields(
        &self,
        cx: &mut LoadContext,
        fields: &MapFields<'_>,
        intended_names: &[&str],
    ) {
        // A merge key is reported as such, and may have been meant to provide the missing fields.
        let is_missing = |field: &TableField| {
            !fields.has(field.name)
                && !matches!(field.need, FieldNeed::RequiredUnless(other) if fields.has(other))
                && !intended_names.contains(&field.name)
                && !fields.has(MERGE_KEY)
        };
        let example_help =
            |field: &TableField| format!("for instance `{}: {}`", field.name, field.example);
        for field in self.required_fields() {
            if is_missing(field) {
                let message = format!("{} needs the field `{}`", self.name, field.name);
                cx.error(fields.location, message, Some(example_help(field)));
            }
        }
        let is_replaced = self.fields.iter().any(
            |field| matches!(field.need, FieldNeed::RequiredUnless(other) if fields.has(other)),
        );
        let is_needed = |field: &&TableField| {
            field.need != FieldNeed::AlternativeOrInherited
                || !(cx.is_served_by_others || is_replaced)
        };
        let alternatives: Vec<_> = self.alternatives().filter(is_needed).collect();
        if let Some(first) = alternatives.first()
            && alternatives.iter().all(|field| is_missing(field))
        {
            let names = alternatives.iter().map(|field| field.name);
            let message = format!("{} needs {}", self.name, list_words(names));
            cx.error(fields.location, message, Some(example_help(first)));
        }
    }

    /// The help for a value that is no map: an example with the required fields, or the names of all fields.
    fn example(&self) -> String {
        let alternative = self.alternatives().take(1);
        let fields: Vec<String> = self
            .required_fields()
            .chain(alternative)
            .map(|field| format!("{}: {}", field.name, field.example))
            .collect();
        match fields.as_slice() {
            [] => format!("its fields are {}", list_words(self.names())),
            fields => format!("for instance `{{ {} }}`", fields.join(", ")),
        }
    }

    /// Reports an unknown field, and returns the name that the user probably intended; `None` if no name is near, or if
    /// the help does not suggest one.
    fn report_unknown_field(&self, cx: &mut LoadContext, key: &MapKey) -> Option<&'static str> {
        if key.text == MERGE_KEY {
            let help = "repeat the fields, or use an alias (`*name`) for a whole value";
            cx.error(
                key.location,
                "merge keys (`<<`) are not supported",
                Some(help.into()),
            );
            return None;
        }
        let message = format!("{} has no field `{}`", self.name, key.text);
        if let Some(help) = former_names::help_for_field(self.name, &key.text) {
            cx.error(key.location, message, Some(help.into()));
            return None;
        }
        let others = self.others.as_ref().map(|others| (others.suggestions)());
        let names = self.names().chain(others.into_iter().flatten());
        let names: Vec<&'static str> = names.collect();
        let intended = nearest_word(&key.text, names.iter().copied());
        let help = match intended {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the fields here are {}", list_words(names.iter().copied())),
        };
        cx.error(key.location, message, Some(help));
        names.into_iter().find(|name| Some(*name) == intended)
    }
}

impl<'n> MapFields<'n> {
    /// Whether the map has no entries, not even unknown ones.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether no other field than this one is present.
    pub fn has_only(&self, name: &str) -> bool {
        self.entries.iter().all(|(key, _)| key.text == name)
    }

    /// Whether the field is present, with a valid or an invalid value.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| key.text == name)
    }

    /// The value of a field of the table, if it is present: the first value of a repeated field.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        debug_assert!(
            self.table.names().any(|field| field == name),
            "{name} is in the table"
        );
        self.entries
            .iter()
            .find(|(key, _)| key.text == name)
            .map(|(_, node)| node)
    }

    /// The fields whose names the user chose.
    pub fn others(&self) -> impl Iterator<Item = &'n (MapKey, Node)> {
        let table = self.table;
        self.entries
            .iter()
            .filter(|(key, _)| !table.has_field(&key.text) && table.accepts_other(&key.text))
    }

    /// The location of the field's name, or of the map if the field is absent.
    pub fn location_of(&self, name: &str) -> SourceLocation {
        let key = self.entries.iter().find(|(key, _)| key.text == name);
        key.map_or(self.location, |(key, _)| key.location)
    }

    /// The location of the field's value, or of the map if the field is absent.
    pub fn value_location(&self, name: &str) -> SourceLocation {
        self.get(name).map_or(self.location, |node| node.location)
    }

    /// Reports `field` if it is present without `owner`, because it has a meaning only together with `owner`. Further
    /// mistakes in its value are then dropped.
    pub fn check_belongs_to(&self, cx: &mut LoadContext, field: &str, owner: &str) {
        if self.has(field) && !self.has(owner) {
            let message = format!("`{field}` belongs to `{owner}`, which is not here");
            cx.error(self.location_of(field), message, Some("remove it".into()));
            cx.mute_location(self.value_location(field));
        }
    }

    /// Requires exactly one of these fields. Returns the first of `names` that is present. Reports the others, and
    /// drops further mistakes in their values. `None` if none is present, which is reported.
    pub fn require_one_of(
        &self,
        cx: &mut LoadContext,
        names: &[&'static str],
    ) -> Option<&'static str> {
        let mut present_names = names.iter().copied().filter(|name| self.has(name));
        let first = present_names.next();
        for other in present_names {
            let message = format!("`{other}` and `{}` exclude each other", first.unwrap_or(""));
            cx.error(
                self.location_of(other),
                message,
                Some("keep one of them".into()),
            );
            cx.mute_location(self.value_location(other));
        }
        if first.is_none() {
            let message = format!(
                "{} needs one of {}",
                self.table.name,
                list_words(names.iter().copied())
            );
            let field = self
                .table
                .fields
                .iter()
                .find(|field| names.contains(&field.name));
            let help =
                field.map(|field| format!("for instance `{}: {}`", field.name, field.example));
            cx.error(self.location, message, help);
        }
        first
    }
}

impl LoadContext {
    /// Reports keys that a map has more than once.
    pub fn report_repeated_keys(&mut self, entries: &[(MapKey, Node)]) {
        for (first_location, key) in find_repeated_keys(entries) {
            let message = format!("`{}` stands here twice", key.text);
            let help = format!(
                "it is already on line {}; remove one of them",
                first_location.line
            );
            self.error(key.location, message, Some(help));
        }
    }
}
