//! How tollgate's cost grows with routes, limits, addresses, connections and workers. All sizes of one axis run side by
//! side and are loaded in turn, as proxies are in a comparison.

use std::fmt::{self, Write as _};

use tollgate::base::clock::Clock;

use crate::case::Case;
use crate::config::target_folder;
use crate::cpu::{Cores, resident_bytes};
use crate::load::{Client, Until};
use crate::options::{Options, Subject};
use crate::proxy::{Proxy, Under};
use crate::report::{Counts, Outcome, format_figure};
use crate::shape::Shape;
use crate::upstream::Upstream;
use crate::{Contender, Failure, WARM_UP_TIME, measure_rounds, write_file};

/// The quantity that cost is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The policies that are loaded.
    Routes,
    /// The limits that count a request.
    Limits,
    /// The client addresses that are counted.
    Keys,
    /// The open connections, of which at most 64 have a pending request.
    Connections,
    /// The worker threads.
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

    /// The word on the command line and in the report.
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
        let mut shape = Shape::for_case(self.case(), workers);
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
pub fn run_scale(options: &Options) -> Result<(), Failure> {
    let mut outcomes = Vec::new();
    for &axis in &options.scale {
        outcomes.push((axis, measure_axis(options, axis)?));
    }
    let text = markdown(options, &outcomes)?;
    let folder = target_folder()?;
    write_file(&folder.join("scale.md"), &text)?;
    write_file(&folder.join("scale.svg"), &draw_svg(&outcomes)?)?;
    println!(
        "{text}\nwritten to {}/scale.md and scale.svg",
        folder.display()
    );
    Ok(())
}

fn measure_axis(options: &Options, axis: Axis) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let largest = axis.shape(
        axis.sizes().iter().copied().max().unwrap_or(1),
        options.workers,
    );
    let cores = Cores::divide(largest.workers)?;
    cores.pin_client()?;
    let case = axis.case();
    let upstream = Upstream::start(case.response())?;
    let mut contenders = Vec::new();
    for &size in axis.sizes() {
        let shape = axis.shape(size, options.workers);
        let (subject, address) = (Subject::Tollgate, upstream.address());
        let proxy = Proxy::start(subject, case, address, shape, &cores, Under::Nothing)?;
        let mut client = Client::new(proxy.address(), case, &shape)?;
        // Every connection is opened and every address counted once before anything is measured.
        let warm_up_requests = shape.addresses.max(shape.connections as u64);
        client.run(&clock, Until::Sent(warm_up_requests))?;
        client.run(&clock, Until::Passed(WARM_UP_TIME))?;
        contenders.push(Contender {
            label: format!("{} {size}", axis.name()),
            proxy,
            client,
        });
    }
    let rounds = measure_rounds(options, case, &mut contenders, &clock)?;
    let mut counts = Vec::new();
    for contender in &contenders {
        counts.push(Counts {
            resident: resident_bytes(&contender.proxy.processes()?)?,
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
        for (index, size) in axis.sizes().iter().enumerate() {
            let (cost, clean) = outcome.cost(index);
            writeln!(
                text,
                "| {} | {size} | {} | {} | {:.1} | {clean} of {} |",
                axis.name(),
                format_figure(cost),
                format_figure(outcome.ratio(index, 0)),
                outcome.counts[index].resident as f64 / 1024.0 / 1024.0,
                outcome.rounds.len()
            )?;
        }
    }
    Ok(text)
}

/// The width of one curve's picture with its words, in pixels.
const PICTURE_WIDTH: f64 = 360.0;
/// The height of one curve's picture with its words, in pixels.
const PICTURE_HEIGHT: f64 = 220.0;
/// The width of the part in which the curve is, in pixels.
const PLOT_WIDTH: f64 = 280.0;
/// The height of the part in which the curve is, in pixels.
const PLOT_HEIGHT: f64 = 130.0;

/// Draws a curve for each axis, two in a row. The sizes stand at even distances.
fn draw_svg(outcomes: &[(Axis, Outcome)]) -> Result<String, fmt::Error> {
    let rows = outcomes.len().div_ceil(2) as f64;
    let (width, height) = (2.0 * PICTURE_WIDTH, rows * PICTURE_HEIGHT);
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
        let left = (number % 2) as f64 * PICTURE_WIDTH + 50.0;
        let base = (number / 2) as f64 * PICTURE_HEIGHT + 40.0 + PLOT_HEIGHT;
        draw_curve(&mut text, *axis, outcome, (left, base), top)?;
    }
    text.push_str("</svg>\n");
    Ok(text)
}

fn draw_curve(
    text: &mut String,
    axis: Axis,
    outcome: &Outcome,
    (left, base): (f64, f64),
    top: f64,
) -> fmt::Result {
    let sizes = axis.sizes();
    let step = PLOT_WIDTH / (sizes.len() - 1).max(1) as f64;
    let y = |cost: f64| base - cost / top * PLOT_HEIGHT;
    writeln!(
        text,
        "<text x='{left}' y='{:.1}' font-size='13' font-weight='bold'>CPU us per request by {}</text>\n\
         <line x1='{left}' y1='{base}' x2='{:.1}' y2='{base}' stroke='#8c959f'/>",
        base - PLOT_HEIGHT - 14.0,
        axis.name(),
        left + PLOT_WIDTH
    )?;
    let mut points = String::new();
    for (index, size) in sizes.iter().enumerate() {
        let x = left + step * index as f64;
        let label = base + 16.0;
        writeln!(
            text,
            "<text x='{x:.1}' y='{label:.1}' text-anchor='middle'>{size}</text>"
        )?;
        let Some(cost) = outcome.cost(index).0 else {
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
