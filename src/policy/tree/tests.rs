use super::*;

fn error(text: &str) -> (u32, u32, String) {
    let error = parse(0, text).expect_err(text);
    (error.place.line, error.place.column, error.message)
}
