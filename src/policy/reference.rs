//! The reference of both files in Markdown: made of the same tables of fields that the files are read with.

use std::fmt::Write;

use super::decode::{GATEWAY, POLICY};
use super::table::{Form, Need, Table, TableField, ValueShape};

/// All fields of the gateway file and of a policy file. Sections stand in the order in which they are first named.
pub fn markdown() -> String {
    let mut pages = Pages {
        text: HEAD.to_owned(),
        tables: vec![&GATEWAY, &POLICY],
        forms: Vec::new(),
    };
    let mut next = 0;
    while let Some(table) = pages.tables.get(next) {
        pages.section(table);
        next += 1;
    }
    pages.texts();
    pages.text
}

const HEAD: &str = "# Reference of both files

<!-- Made from the declarations in src/policy/decode: `UPDATE_GOLDEN=1 cargo test --test policies reference`. -->

What editors complete and check is in the schemas that `tollgate schema gateway` and `tollgate schema policy` print.
";

struct Pages {
    text: String,
    /// All tables that were named, those with a section first.
    tables: Vec<&'static Table>,
    /// All forms of text that were named.
    forms: Vec<&'static Form>,
}

impl Pages {
    fn section(&mut self, table: &'static Table) {
        let Table { name, doc, fields } = table;
        let title = title(name);
        let _ = write!(
            self.text,
            "\n## {title}\n\n{doc}\n\n| field | value | what it does | example |\n|---|---|---|---|\n"
        );
        let either = table.needing(Need::Either).count() > 1;
        for field in *fields {
            self.row(field, either);
        }
    }

    fn row(&mut self, field: &'static TableField, either: bool) {
        let need = match field.need {
            Need::Must => ", required",
            Need::Either if either => ", one of these is required",
            Need::Either => ", required",
            Need::May => "",
        };
        let value = self.value(&field.shape);
        let TableField { name, example, .. } = field;
        let doc = cell(&field.description());
        let example = cell(example);
        let _ = writeln!(
            self.text,
            "| `{name}` | {value}{need} | {doc} | `{example}` |"
        );
    }

    /// The values that a field takes, in words.
    fn value(&mut self, shape: &'static ValueShape) -> String {
        match shape {
            ValueShape::Text => "text".into(),
            ValueShape::Flag => "`true` or `false`".into(),
            ValueShape::Whole(from, to) if from == to => format!("`{from}`"),
            ValueShape::Whole(from, to) => format!("{from} to {to}"),
            ValueShape::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
            ValueShape::Nothing => "`~`".into(),
            ValueShape::Form(form) => {
                if !self.forms.iter().any(|known| known.name == form.name) {
                    self.forms.push(form);
                }
                format!("[{}](#texts)", form.name)
            }
            ValueShape::List(item) => format!("list of {}", self.value(item)),
            ValueShape::Many(item) => format!("{}, or a list", self.value(item)),
            ValueShape::Named(value) => format!("name to {}", self.value(value)),
            ValueShape::Table(table) => {
                if !self.tables.iter().any(|known| std::ptr::eq(*known, *table)) {
                    self.tables.push(table);
                }
                let title = title(table.name);
                format!("[{title}](#{})", anchor(&title))
            }
            ValueShape::Either(shapes) => {
                let all: Vec<String> = shapes.iter().map(|shape| self.value(shape)).collect();
                all.join(" or ")
            }
        }
    }

    fn texts(&mut self) {
        self.text.push_str("\n## Texts\n\n");
        for form in &self.forms {
            let _ = writeln!(self.text, "- **{}**: {}", form.name, form.doc);
        }
    }
}

/// "an upstream's `timeouts`" as a heading. With its article, for the section `plan` of `identity` is not a plan.
fn title(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// The anchor that renderers give to a heading.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter
            .is_alphanumeric()
            .then_some(letter.to_ascii_lowercase()),
    });
    kept.collect()
}

/// Text that ends no cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
