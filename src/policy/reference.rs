//! Generates the reference of the gateway file, of policy files and of `_defaults.yaml` in Markdown. It is made from
//! the tables of fields that also read the files. `docs/reference.md` is this text.

use std::fmt::Write;

use super::decode::{DEFAULTS_TABLE, GATEWAY_TABLE, POLICY_TABLE};
use super::table::{FieldNeed, Table, TableField, TextFormat, ValueShape};

/// All fields of all kinds of file. The sections are in the order in which fields first refer to them.
pub fn reference_markdown() -> String {
    let mut writer = ReferenceWriter {
        text: INTRODUCTION.to_owned(),
        tables: vec![&GATEWAY_TABLE, &POLICY_TABLE, &DEFAULTS_TABLE],
        formats: Vec::new(),
    };
    // Writing a section adds the tables that its fields refer to.
    let mut index = 0;
    while let Some(table) = writer.tables.get(index) {
        writer.write_section(table);
        index += 1;
    }
    writer.write_formats();
    writer.text
}

const INTRODUCTION: &str = "# Reference of the files

<!-- Made from the declarations in src/policy/decode: `UPDATE_GOLDEN=1 cargo test --test policies reference`. -->

What editors complete and check is in the schemas that `tollgate schema gateway`, `tollgate schema policy` and `tollgate schema defaults` print.
";

/// Writes the reference section by section.
struct ReferenceWriter {
    /// The Markdown so far.
    text: String,
    /// The three files and all tables that were referred to, each once. The first ones have a section already.
    tables: Vec<&'static Table>,
    /// All formats of texts that were referred to, each once.
    formats: Vec<&'static TextFormat>,
}

impl ReferenceWriter {
    fn write_section(&mut self, table: &'static Table) {
        let Table {
            name,
            doc,
            fields,
            others,
        } = table;
        let title = section_title(name);
        let _ = write!(
            self.text,
            "\n## {title}\n\n{doc}\n\n| field | value | what it does | example |\n|---|---|---|---|\n"
        );
        let has_alternatives = table.fields_with_need(FieldNeed::Alternative).count() > 1;
        for field in *fields {
            self.write_row(field, has_alternatives);
        }
        if let Some(others) = others {
            self.write_row(&others.field, false);
        }
    }

    /// Writes the row of one field. `has_alternatives` says that the table has several fields of which one is required.
    fn write_row(&mut self, field: &'static TableField, has_alternatives: bool) {
        let need = match field.need {
            FieldNeed::Required => ", required".into(),
            FieldNeed::RequiredUnless(other) => format!(", required without `{other}`"),
            FieldNeed::AlternativeOrInherited => {
                ", one of these is required, or `upstream` in `_defaults.yaml`, where the gateway has `listen`".into()
            }
            FieldNeed::AtLeastOne => ", at least one of these is required".into(),
            FieldNeed::Alternative if has_alternatives => ", one of these is required".into(),
            FieldNeed::Alternative => ", required".into(),
            FieldNeed::Optional => String::new(),
        };
        let value = self.describe_shape(&field.shape);
        let TableField { name, example, .. } = field;
        let doc = escape_cell(&field.description());
        let example = escape_cell(example);
        let _ = writeln!(
            self.text,
            "| `{name}` | {value}{need} | {doc} | `{example}` |"
        );
    }

    /// Describes the values that a field accepts, with links to the tables and formats among them. Adds these to
    /// `tables` and `formats`.
    fn describe_shape(&mut self, shape: &'static ValueShape) -> String {
        match shape {
            ValueShape::Text => "text".into(),
            ValueShape::Bool => "`true` or `false`".into(),
            ValueShape::WholeNumber(min, max) if min == max => format!("`{min}`"),
            ValueShape::WholeNumber(min, max) => format!("{min} to {max}"),
            ValueShape::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
            ValueShape::Null => "`~`".into(),
            ValueShape::Format(format) => {
                if !self.formats.iter().any(|other| other.name == format.name) {
                    self.formats.push(format);
                }
                format!("[{}](#texts)", format.name)
            }
            ValueShape::List(item) => format!("list of {}", self.describe_shape(item)),
            ValueShape::OneOrList(item) => format!("{}, or a list", self.describe_shape(item)),
            ValueShape::TextMap(value) => format!("text to {}", self.describe_shape(value)),
            ValueShape::NamedMap(value) => format!("name to {}", self.describe_shape(value)),
            ValueShape::Table(table) => {
                if !self.tables.iter().any(|other| std::ptr::eq(*other, *table)) {
                    self.tables.push(table);
                }
                let title = section_title(table.name);
                format!("[{title}](#{})", heading_anchor(&title))
            }
            ValueShape::AnyOf(shapes) => {
                let shapes = shapes.iter().map(|shape| self.describe_shape(shape));
                shapes.collect::<Vec<String>>().join(" or ")
            }
        }
    }

    fn write_formats(&mut self) {
        self.text.push_str("\n## Texts\n\n");
        for format in &self.formats {
            let _ = writeln!(self.text, "- **{}**: {}", format.name, format.doc);
        }
    }
}

/// The heading of a table: "An upstream's `timeouts`". The article stays, so that "A plan" and "`plan`", the section of
/// `identity`, have headings of their own.
fn section_title(name: &str) -> String {
    let mut letters = name.chars();
    let first_letter = letters.next().map(|letter| letter.to_ascii_uppercase());
    first_letter.into_iter().chain(letters).collect()
}

/// The anchor that Markdown renderers give to a heading.
fn heading_anchor(title: &str) -> String {
    let anchor_chars = title.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter
            .is_alphanumeric()
            .then_some(letter.to_ascii_lowercase()),
    });
    anchor_chars.collect()
}

/// Escapes a text so that it does not end its cell of a Markdown table.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}
