//! What tollgate's cost grows with. All sizes of one sort run side by side and are loaded in turn, as
//! proxies are in a comparison.

use std::fmt::{self, Write as _};

use tollgate::base::clock::Clock;

use crate::case::Case;
use crate::config::target_folder;
use crate::cpu::{Cores, resident};
use crate::load::{Client, Until};
use crate::options::{Options, Subject};
use crate::proxy::{Proxy, Under};
use crate::report::{Counts, Outcome, shown};
use crate::shape::Shape;
use crate::upstream::Upstream;
use crate::{Contender, Failure, WARM_UP, rounds, write};

/// What cost is set against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Policies that are loaded.
    Routes,
    /// Limits that a request passes.
    Limits,
    /// Client addresses that are counted.
    Keys,
    /// Open connections, of which at most 64 have a request on its way.
    Connections,
    /// Worker threads.
    Workers,
}

impl Axis {
    /// In the order of the report.
    pub const ALL: [Axis; 5] = [
        Axis::Routes,
        Axis::Limits,
        Axis::Keys,
        Axis::Connections,
        Axis::Workers,
    ];

    /// As it is written on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Routes => "routes",
            Axis::Limits => "limits",
            Axis::Keys => "keys",
            Axis::Connections => "connections",
            Axis::Workers => "workers",
        }
    }

    fn sizes(self) -> &'static [u64] {
        match self {
            Axis::Routes => &[10, 100, 1_000, 10_000],
            Axis::Limits => &[0, 1, 2, 3, 4, 8],
            Axis::Keys => &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            Axis::Connections => &[10, 100, 1_000, 10_000],
            Axis::Workers => &[1, 2],
        }
    }

    fn case(self) -> Case {
        match self {
            Axis::Keys => Case::Addresses,
            _ => Case::Proxied,
        }
    }

    fn shape(self, size: u64, workers: usize) -> Shape {
        let mut shape = Shape::of(self.case(), workers);
        match self {
            Axis::Routes => shape.routes = size as usize,
            Axis::Limits => shape.limits = size as usize,
            Axis::Keys => shape.addresses = size,
            Axis::Connections => shape.connections = size as usize,
            Axis::Workers => shape.workers = size as usize,
        }
        shape
    }
}

/// Measures along each axis and writes the report.
pub fn scale(options: &Options) -> Result<(), Failure> {
    let mut outcomes = Vec::new();
    for &axis in &options.scale {
        outcomes.push((axis, outcome(options, axis)?));
    }
    let text = markdown(options, &outcomes)?;
    let folder = target_folder()?;
    write(&folder.join("scale.md"), &text)?;
    write(&folder.join("scale.svg"), &svg(&outcomes)?)?;
    println!(
        "{text}\nwritten to {}/scale.md and scale.svg",
        folder.display()
    );
    Ok(())
}

fn outcome(options: &Options, axis: Axis) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let most = axis.shape(
        axis.sizes().iter().copied().max().unwrap_or(1),
        options.workers,
    );
    let cores = Cores::divide(most.workers)?;
    cores.pin_client()?;
    let case = axis.case();
    let upstream = Upstream::start(case.answer())?;
    let mut contenders = Vec::new();
    for &size in axis.sizes() {
        let shape = axis.shape(size, options.workers);
        let (subject, address) = (Subject::Tollgate, upstream.address());
        let proxy = Proxy::start(subject, case, address, shape, &cores, Under::Nothing)?;
        let mut client = Client::new(proxy.address(), case, &shape)?;
        // Every connection is opened and every address counted once before anything is measured.
        let all = shape.addresses.max(shape.connections as u64);
        client.run(&clock, Until::Sent(all))?;
        client.run(&clock, Until::Passed(WARM_UP))?;
        contenders.push(Contender {
            label: format!("{} {size}", axis.name()),
            proxy,
            client,
        });
    }
    let rounds = rounds(options, case, &mut contenders, &clock)?;
    let mut counts = Vec::new();
    for contender in &contenders {
        counts.push(Counts {
            resident: resident(&contender.proxy.processes()?)?,
            syscalls: None,
            instructions: None,
        });
    }
    Ok(Outcome {
        case,
        rounds,
        counts,
    })
}

fn markdown(options: &Options, outcomes: &[(Axis, Outcome)]) -> Result<String, fmt::Error> {
    let mut text = format!(
        "# What tollgate's cost grows with\n\n\
         - workers: {}, rounds: {}, seconds each: {}\n\n\
         | of what | how many | CPU us/req (min-max) | ratio to the first | resident MiB | clean rounds |\n\
         |---|---|---|---|---|---|\n",
        options.workers, options.rounds, options.seconds
    );
    for (axis, outcome) in outcomes {
        for (place, size) in axis.sizes().iter().enumerate() {
            let (cost, clean) = outcome.cost(place);
            writeln!(
                text,
                "| {} | {size} | {} | {} | {:.1} | {clean} of {} |",
                axis.name(),
                shown(cost),
                shown(outcome.ratio(place, 0)),
                outcome.counts[place].resident as f64 / 1024.0 / 1024.0,
                outcome.rounds.len()
            )?;
        }
    }
    Ok(text)
}

/// Pixels: one curve's picture with its words, and the part in which the curve is.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
const PLOT: (f64, f64) = (280.0, 130.0);

/// A curve for each axis, two in a row; the sizes stand at even distances.
fn svg(outcomes: &[(Axis, Outcome)]) -> Result<String, fmt::Error> {
    let rows = outcomes.len().div_ceil(2) as f64;
    let (width, height) = (2.0 * WIDTH, rows * HEIGHT);
    let mut text = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' \
         height='{height}' font-family='sans-serif' font-size='11' fill='#24292f'>\n\
         <rect width='100%' height='100%' fill='#ffffff'/>\n"
    );
    let costs = outcomes
        .iter()
        .flat_map(|(axis, outcome)| (0..axis.sizes().len()).filter_map(move |n| outcome.cost(n).0));
    let top = costs.map(|cost| cost.max).fold(1.0, f64::max) * 1.1;
    for (number, (axis, outcome)) in outcomes.iter().enumerate() {
        let left = (number % 2) as f64 * WIDTH + 50.0;
        let base = (number / 2) as f64 * HEIGHT + 40.0 + PLOT.1;
        curve(&mut text, *axis, outcome, (left, base), top)?;
    }
    text.push_str("</svg>\n");
    Ok(text)
}

fn curve(
    text: &mut String,
    axis: Axis,
    outcome: &Outcome,
    (left, base): (f64, f64),
    top: f64,
) -> fmt::Result {
    let sizes = axis.sizes();
    let step = PLOT.0 / (sizes.len() - 1).max(1) as f64;
    let y = |cost: f64| base - cost / top * PLOT.1;
    writeln!(
        text,
        "<text x='{left}' y='{:.1}' font-size='13' font-weight='bold'>CPU us per request by {}</text>\n\
         <line x1='{left}' y1='{base}' x2='{:.1}' y2='{base}' stroke='#8c959f'/>",
        base - PLOT.1 - 14.0,
        axis.name(),
        left + PLOT.0
    )?;
    let mut points = String::new();
    for (place, size) in sizes.iter().enumerate() {
        let x = left + step * place as f64;
        let label = base + 16.0;
        writeln!(
            text,
            "<text x='{x:.1}' y='{label:.1}' text-anchor='middle'>{size}</text>"
        )?;
        let Some(cost) = outcome.cost(place).0 else {
            continue;
        };
        let middle = y(cost.median);
        write!(points, "{x:.1},{middle:.1} ")?;
        writeln!(
            text,
            "<line x1='{x:.1}' y1='{:.1}' x2='{x:.1}' y2='{:.1}' stroke='#24292f'/>\n\
             <circle cx='{x:.1}' cy='{middle:.1}' r='3' fill='#2f81c7'/>\n\
             <text x='{x:.1}' y='{:.1}' text-anchor='middle'>{:.1}</text>",
            y(cost.min),
            y(cost.max),
            y(cost.max) - 6.0,
            cost.median
        )?;
    }
    writeln!(
        text,
        "<polyline points='{}' fill='none' stroke='#2f81c7' stroke-width='2'/>",
        points.trim_end()
    )
}
