//! The report's picture: a bar for the ratio of each proxy to the first, and a line through the bar's
//! end from the least to the greatest of its rounds.

use std::fmt::{self, Write as _};

use crate::options::{Options, Subject};
use crate::report::Outcome;

/// Pixels: the width of everything, of the names at the left and of what stands behind the bars.
const WIDTH: f64 = 760.0;
const NAMES: f64 = 170.0;
const FIGURES: f64 = 60.0;

/// Pixels from one bar to the next, and around the bars of a case.
const BAR: f64 = 18.0;
const GAP: f64 = 14.0;

/// Pixels above the first case.
const TOP: f64 = 56.0;

/// All cases below one another.
pub fn svg(options: &Options, outcomes: &[Outcome]) -> Result<String, fmt::Error> {
    let group = BAR * options.proxies.len() as f64 + GAP;
    let height = TOP + group * outcomes.len() as f64 + GAP;
    let widest = widest(options, outcomes);
    let scale = (WIDTH - NAMES - FIGURES) / widest;
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
    let one = NAMES + scale;
    writeln!(
        text,
        "<line x1='{one:.1}' y1='{TOP}' x2='{one:.1}' y2='{:.1}' stroke='#8c959f' stroke-dasharray='3 3'/>",
        height - GAP
    )?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let top = TOP + group * number as f64;
        let middle = top + (group - GAP) / 2.0 + 4.0;
        let name = outcome.case.name();
        writeln!(
            text,
            "<text x='16' y='{middle:.1}' font-weight='bold'>{name}</text>"
        )?;
        for (place, &subject) in options.proxies.iter().enumerate() {
            let y = top + BAR * place as f64;
            bar(&mut text, subject, outcome, place, y, scale)?;
        }
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// The greatest ratio of any round.
fn widest(options: &Options, outcomes: &[Outcome]) -> f64 {
    let mut widest: f64 = 1.0;
    for outcome in outcomes {
        for place in 0..options.proxies.len() {
            widest = widest.max(outcome.ratio(place, 0).map_or(0.0, |ratio| ratio.max));
        }
    }
    widest
}

fn bar(
    text: &mut String,
    subject: Subject,
    outcome: &Outcome,
    place: usize,
    y: f64,
    scale: f64,
) -> fmt::Result {
    let (line, color) = (y + 12.0, color(subject));
    writeln!(
        text,
        "<text x='{:.1}' y='{line:.1}' text-anchor='end'>{}</text>",
        NAMES - 8.0,
        subject.name()
    )?;
    let Some(ratio) = outcome.ratio(place, 0) else {
        return writeln!(text, "<text x='{NAMES}' y='{line:.1}'>-</text>");
    };
    let at = |value: f64| NAMES + value * scale;
    let middle = y + BAR / 2.0 - 1.0;
    writeln!(
        text,
        "<rect x='{NAMES}' y='{:.1}' width='{:.1}' height='{:.1}' fill='{color}'/>\n\
         <line x1='{:.1}' y1='{middle:.1}' x2='{:.1}' y2='{middle:.1}' stroke='#24292f'/>\n\
         <text x='{:.1}' y='{line:.1}' stroke='#ffffff' stroke-width='3' paint-order='stroke'>{:.2}</text>",
        y + 1.0,
        ratio.median * scale,
        BAR - 4.0,
        at(ratio.min),
        at(ratio.max),
        at(ratio.max) + 6.0,
        ratio.median
    )
}

/// Tollgate stands out.
fn color(subject: Subject) -> &'static str {
    match subject {
        Subject::Nginx => "#a8b3bf",
        Subject::Haproxy => "#b9c7d6",
        Subject::Envoy => "#cdbfdc",
        Subject::Floor => "#dcdcd0",
        Subject::Tollgate => "#2f81c7",
        Subject::Unlogged => "#8db9e2",
    }
}
