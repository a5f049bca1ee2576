//! The report's picture. Each proxy has a bar for its ratio to the first one, and a line through the bar's end from the
//! least to the greatest of its rounds.

use std::fmt::{self, Write as _};

use crate::options::{Options, Subject};
use crate::report::Outcome;

/// The width of the picture, in pixels.
const WIDTH: f64 = 760.0;
/// The width of the names at the left, in pixels.
const NAMES_WIDTH: f64 = 170.0;
/// The width of the figures behind the bars, in pixels.
const FIGURES_WIDTH: f64 = 60.0;

/// The distance from one bar to the next, in pixels.
const BAR_STEP: f64 = 18.0;
/// The distance between the bars of two cases, in pixels.
const CASE_GAP: f64 = 14.0;

/// The height of the title above the first case, in pixels.
const TITLE_HEIGHT: f64 = 56.0;

/// Draws all cases below one another.
pub fn draw_svg(options: &Options, outcomes: &[Outcome]) -> Result<String, fmt::Error> {
    let group = BAR_STEP * options.proxies.len() as f64 + CASE_GAP;
    let height = TITLE_HEIGHT + group * outcomes.len() as f64 + CASE_GAP;
    let widest = max_ratio(options, outcomes);
    let scale = (WIDTH - NAMES_WIDTH - FIGURES_WIDTH) / widest;
    let reference = options.proxies.first().map_or("nothing", |s| s.name());
    let mut text = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' \
         height='{height}' font-family='sans-serif' font-size='12' fill='#24292f'>\n\
         <rect width='100%' height='100%' fill='#ffffff'/>\n\
         <text x='16' y='24' font-size='15' font-weight='bold'>CPU time per request, {reference} = 1</text>\n\
         <text x='16' y='42' fill='#57606a'>median of clean rounds; lines from the least to the greatest; \
         workers: {}</text>\n",
        options.workers
    );
    let one = NAMES_WIDTH + scale;
    writeln!(
        text,
        "<line x1='{one:.1}' y1='{TITLE_HEIGHT}' x2='{one:.1}' y2='{:.1}' stroke='#8c959f' stroke-dasharray='3 3'/>",
        height - CASE_GAP
    )?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let top = TITLE_HEIGHT + group * number as f64;
        let middle = top + (group - CASE_GAP) / 2.0 + 4.0;
        let name = outcome.case.name();
        writeln!(
            text,
            "<text x='16' y='{middle:.1}' font-weight='bold'>{name}</text>"
        )?;
        for (index, &subject) in options.proxies.iter().enumerate() {
            let y = top + BAR_STEP * index as f64;
            draw_bar(&mut text, subject, outcome, index, y, scale)?;
        }
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// The greatest ratio of any round.
fn max_ratio(options: &Options, outcomes: &[Outcome]) -> f64 {
    let mut widest: f64 = 1.0;
    for outcome in outcomes {
        for index in 0..options.proxies.len() {
            widest = widest.max(outcome.ratio(index, 0).map_or(0.0, |ratio| ratio.max));
        }
    }
    widest
}

fn draw_bar(
    text: &mut String,
    subject: Subject,
    outcome: &Outcome,
    index: usize,
    y: f64,
    scale: f64,
) -> fmt::Result {
    let (line, color) = (y + 12.0, bar_color(subject));
    writeln!(
        text,
        "<text x='{:.1}' y='{line:.1}' text-anchor='end'>{}</text>",
        NAMES_WIDTH - 8.0,
        subject.name()
    )?;
    let Some(ratio) = outcome.ratio(index, 0) else {
        return writeln!(text, "<text x='{NAMES_WIDTH}' y='{line:.1}'>-</text>");
    };
    let at = |value: f64| NAMES_WIDTH + value * scale;
    let middle = y + BAR_STEP / 2.0 - 1.0;
    writeln!(
        text,
        "<rect x='{NAMES_WIDTH}' y='{:.1}' width='{:.1}' height='{:.1}' fill='{color}'/>\n\
         <line x1='{:.1}' y1='{middle:.1}' x2='{:.1}' y2='{middle:.1}' stroke='#24292f'/>\n\
         <text x='{:.1}' y='{line:.1}' stroke='#ffffff' stroke-width='3' paint-order='stroke'>{:.2}</text>",
        y + 1.0,
        ratio.median * scale,
        BAR_STEP - 4.0,
        at(ratio.min),
        at(ratio.max),
        at(ratio.max) + 6.0,
        ratio.median
    )
}

/// The colour of a proxy's bar. Only tollgate's is saturated.
fn bar_color(subject: Subject) -> &'static str {
    match subject {
        Subject::Nginx => "#a8b3bf",
        Subject::Haproxy => "#b9c7d6",
        Subject::Envoy => "#cdbfdc",
        Subject::Floor => "#dcdcd0",
        Subject::Tollgate => "#2f81c7",
        Subject::Unlogged => "#8db9e2",
    }
}
