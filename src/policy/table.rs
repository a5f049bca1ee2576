//! Tables of the fields that files may have. The readers, the schemas for editors and the reference all use
//! them, so that these cannot differ.

use super::collect::Cx;
use super::former;
use super::tree::{MapKey, Node, SourcePlace, YamlValue, repeated};
use crate::base::suggest::{listed, nearest};

/// A map with fixed fields.
#[derive(Debug)]
pub struct Table {
    /// Its name in messages: "a limit".
    pub name: &'static str,
    /// What it is, in one line.
    pub doc: &'static str,
    /// Its fields.
    pub fields: &'static [TableField],
}

/// One field of a table.
#[derive(Debug)]
pub struct TableField {
    /// Its key in YAML.
    pub name: &'static str,
    /// The values that it takes.
    pub shape: ValueShape,
    /// Whether it must be there.
    pub need: Need,
    /// What it is for, in one line.
    pub doc: &'static str,
    /// The value that holds without it, as YAML; absent where there is none or `doc` says it.
    pub default: Option<fn() -> String>,
    /// A right value, as YAML.
    pub example: &'static str,
}

impl TableField {
    /// What it is for and what holds without it.
    pub fn description(&self) -> String {
        match self.default {
            Some(default) => format!("{} Default: {}.", self.doc, default()),
            None => self.doc.to_owned(),
        }
    }
}

/// Whether a field must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It must.
    Must,
    /// Exactly one of the fields of its table with this need must be there.
    Either,
    /// It may.
    May,
}

/// The values that a field takes.
#[derive(Debug)]
pub enum ValueShape {
    /// Any text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A text of a certain form.
    Form(&'static Form),
    /// Nothing: `~`.
    Nothing,
    /// A list.
    List(&'static ValueShape),
    /// One thing or a list of them.
    Many(&'static ValueShape),
    /// A map with names of the user's choice.
    Named(&'static ValueShape),
    /// A map with fixed fields.
    Table(&'static Table),
    /// One of several shapes.
    Either(&'static [ValueShape]),
}

/// The words of a list that pairs them with what they mean.
pub const fn words<T, const N: usize>(pairs: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = pairs[at].0;
        at += 1;
    }
    words
}

/// A form of text.
#[derive(Debug)]
pub struct Form {
    /// What it is, for schemas: "duration".
    pub name: &'static str,
    /// A regular expression that its texts match.
    pub pattern: &'static str,
    /// What it is, in one line.
    pub doc: &'static str,
}

/// A field, required.
pub const fn must(
    name: &'static str,
    shape: ValueShape,
    doc: &'static str,
    example: &'static str,
) -> TableField {
    TableField {
        need: Need::Must,
        ..may(name, shape, doc, example)
    }
}

/// One of the fields of which exactly one must be there.
pub const fn either(
    name: &'static str,
    shape: ValueShape,
    doc: &'static str,
    example: &'static str,
) -> TableField {
    TableField {
        need: Need::Either,
        ..may(name, shape, doc, example)
    }
}

/// A field that may be left out.
pub const fn may(
    name: &'static str,
    shape: ValueShape,
    doc: &'static str,
    example: &'static str,
) -> TableField {
    TableField {
        name,
        shape,
        need: Need::May,
        doc,
        default: None,
        example,
    }
}

/// The fields of a map that was checked against its table.
pub struct MapFields<'n> {
    table: &'static Table,
    entries: &'n [(MapKey, Node)],
    /// Where the map stands.
    pub place: SourcePlace,
}

impl Table {
    /// The fields with this need.
    pub fn needing(&self, need: Need) -> impl Iterator<Item = &'static TableField> {
        self.fields.iter().filter(move |field| field.need == need)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }

    /// The fields of `node`. Reports a value that is no map, and unknown, repeated and missing fields.
    pub fn open<'n>(&'static self, cx: &mut Cx, node: &'n Node) -> Option<MapFields<'n>> {
        self.open_at(cx, node, node.place)
    }

    /// The same for a map under a name that the user chose: missing fields are reported at that name.
    pub fn open_as<'n>(
        &'static self,
        cx: &mut Cx,
        node: &'n Node,
        key: &MapKey,
    ) -> Option<MapFields<'n>> {
        self.open_at(cx, node, key.place)
    }

    fn open_at<'n>(
        &'static self,
        cx: &mut Cx,
        node: &'n Node,
        place: SourcePlace,
    ) -> Option<MapFields<'n>> {
        let YamlValue::Map(entries) = &node.value else {
            let found = node.kind();
            let message = format!("expected {}, a map of fields, found {found}", self.name);
            cx.error(node.place, message, Some(self.example()));
            return None;
        };
        cx.repeated(entries);
        let mut meant = Vec::new();
        for (key, _) in entries {
            if !self.names().any(|name| name == key.text) {
                meant.extend(self.unknown(cx, key));
            }
        }
        let fields = MapFields {
            table: self,
            entries,
            place,
        };
        let lacks = |field: &TableField| {
            !fields.has(field.name) && !meant.contains(&field.name) && !fields.has("<<")
        };
        for field in self.needing(Need::Must) {
            if lacks(field) {
                let help = format!("for instance `{}: {}`", field.name, field.example);
                let message = format!("{} needs the field `{}`", self.name, field.name);
                cx.error(place, message, Some(help));
            }
        }
        if let Some(first) = self.needing(Need::Either).next()
            && self.needing(Need::Either).all(lacks)
        {
            let names: Vec<&str> = self.needing(Need::Either).map(|field| field.name).collect();
            let message = format!("{} needs `{}`", self.name, names.join("` or `"));
            let help = format!("for instance `{}: {}`", first.name, first.example);
            cx.error(place, message, Some(help));
        }
        Some(fields)
    }

    /// An example with the required fields.
    fn example(&self) -> String {
        let either = self.needing(Need::Either).take(1);
        let fields: Vec<String> = self
            .needing(Need::Must)
            .chain(either)
            .map(|field| format!("{}: {}", field.name, field.example))
            .collect();
        match fields.as_slice() {
            [] => format!("its fields are {}", listed(self.names())),
            fields => format!("for instance `{{ {} }}`", fields.join(", ")),
        }
    }

    /// Reports an unknown field. Returns the name that was probably meant.
    fn unknown(&self, cx: &mut Cx, key: &MapKey) -> Option<&'static str> {
        if key.text == "<<" {
            let help = "repeat the fields, or use an alias (`*name`) for a whole value";
            cx.error(
                key.place,
                "merge keys (`<<`) are not supported",
                Some(help.into()),
            );
            return None;
        }
        let message = format!("{} has no field `{}`", self.name, key.text);
        if let Some(help) = former::field(self.name, &key.text) {
            cx.error(key.place, message, Some(help.into()));
            return None;
        }
        let meant = nearest(&key.text, self.names());
        let help = match meant {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("the fields here are {}", listed(self.names())),
        };
        cx.error(key.place, message, Some(help));
        meant
    }
}

impl<'n> MapFields<'n> {
    /// Whether the field is there, with a right or a wrong value.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| key.text == name)
    }

    /// The field's value.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        debug_assert!(
            self.table.names().any(|known| known == name),
            "{name} is in the table"
        );
        self.entries
            .iter()
            .find(|(key, _)| key.text == name)
            .map(|(_, node)| node)
    }

    /// The place of the field's name, or of the whole map if the field is absent.
    pub fn place_of(&self, name: &str) -> SourcePlace {
        let key = self.entries.iter().find(|(key, _)| key.text == name);
        key.map_or(self.place, |(key, _)| key.place)
    }

    /// Reports `field` if `owner` is absent: it has a meaning only beside that.
    pub fn belongs_to(&self, cx: &mut Cx, field: &str, owner: &str) {
        if self.has(field) && !self.has(owner) {
            let message = format!("`{field}` belongs to `{owner}`, which is not here");
            cx.error(self.place_of(field), message, Some("remove it".into()));
        }
    }

    /// Requires exactly one of these fields. Returns the first that is there and reports the others.
    pub fn one_of(&self, cx: &mut Cx, names: &[&'static str]) -> Option<&'static str> {
        let mut there = names.iter().copied().filter(|name| self.has(name));
        let first = there.next();
        for other in there {
            let message = format!("`{other}` and `{}` exclude each other", first.unwrap_or(""));
            cx.error(
                self.place_of(other),
                message,
                Some("keep one of them".into()),
            );
        }
        if first.is_none() {
            let message = format!(
                "{} needs one of {}",
                self.table.name,
                listed(names.iter().copied())
            );
            let field = self
                .table
                .fields
                .iter()
                .find(|field| names.contains(&field.name));
            let help =
                field.map(|field| format!("for instance `{}: {}`", field.name, field.example));
            cx.error(self.place, message, help);
        }
        first
    }
}

impl Cx {
    /// Reports keys that a map has twice.
    pub fn repeated(&mut self, entries: &[(MapKey, Node)]) {
        for (first, key) in repeated(entries) {
            let message = format!("`{}` stands here twice", key.text);
            let help = format!("it is already on line {}; remove one of them", first.line);
            self.error(key.place, message, Some(help));
        }
    }
}
