//! The picture of the surge: the variants side by side, over time what is answered, what steers it and how
//! long critical requests take.

use crate::client::PATIENCE;
use crate::record::Moment;
use crate::surge::{CAPACITY, Run};
use crate::svg::{Frame, Picture, Scale};
use crate::traffic::Kind;

const STYLE: &str = "
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#24292f}
.title{font-size:19px;font-weight:600}.lead{fill:#57606a;font-size:13px}
.name{font-size:14px;font-weight:600}.number,.note{font-size:11px;fill:#57606a}
.right{text-anchor:end}.middle{text-anchor:middle}
.ground{fill:#fbfcfd;stroke:#d0d7de}.grid{stroke:#e4e8ec}.tick{stroke:#8c959f}
.surge{fill:#f0b429;opacity:.16}
.critical{fill:#c8442f}.normal{fill:#3b78b5}.low{fill:#9dc3e2}.elastic{fill:#5aa469}
.bound{stroke:#24292f;stroke-dasharray:5 4;fill:none}
.factor,.load,.open,.p50,.p99{fill:none;stroke-width:2;stroke-linejoin:round}
.factor{stroke:#5aa469}.load{stroke:#7c4dab}.open{stroke:#a3a9b1;stroke-width:1.3}
.p50{stroke:#e39a86}.p99{stroke:#c8442f}
";

const LEFT: f64 = 74.0;
const WIDTH: f64 = 360.0;
const GAP: f64 = 26.0;
const TOPS: [f64; 3] = [132.0, 392.0, 602.0];
const HEIGHTS: [f64; 3] = [216.0, 166.0, 196.0];
const BOTTOM: f64 = 856.0;

/// What each row shows, in which unit.
const ROWS: [&str; 3] = ["answered, requests/s", "ratio", "latency of critical, ms"];

/// Draws the runs side by side. `bound` is what latencies are held against, in milliseconds.
pub fn draw(runs: &[&Run], bound: f64) -> String {
    let width = LEFT + runs.len() as f64 * (WIDTH + GAP);
    let mut picture = Picture::new(width, BOTTOM, STYLE);
    let heading = "Critical traffic triples in front of an upstream of fixed capacity";
    picture.text((LEFT, 34.0), "title", heading);
    let lead = "The upstream serves 400 requests/s. Asked for: critical 100/s, in the shaded surge 300/s; normal \
                75/s; low 40/s; ten greedy users 600/s, of which 80/s are guaranteed.";
    picture.text((LEFT, 56.0), "lead", lead);
    let left = |column: usize| LEFT + column as f64 * (WIDTH + GAP);
    let ends = runs.iter().map(|run| ends(run));
    let all = ends.fold((0.0_f64, 0.0_f64), |all, ends| {
        (all.0.min(ends.0), all.1.max(ends.1))
    });
    for (column, run) in runs.iter().enumerate() {
        let left = left(column);
        picture.text((left, 84.0), "name", run.name);
        let frame = |row: usize, y| Frame {
            left,
            top: TOPS[row],
            width: WIDTH,
            height: HEIGHTS[row],
            x: Scale::Linear(all.0, all.1),
            y,
        };
        let first = column == 0;
        rates(
            &mut picture,
            run,
            &frame(0, Scale::Linear(0.0, 500.0)),
            first,
        );
        ratios(&mut picture, run, &frame(1, Scale::Linear(0.0, 3.0)), first);
        let most = 1.5 * PATIENCE.as_secs_f64() * 1_000.0;
        let frame = frame(2, Scale::Log(10.0, most));
        latencies(&mut picture, run, &frame, bound, first);
        let whole = (all.0 / 5.0).ceil() as i64..=(all.1 / 5.0).floor() as i64;
        let marks: Vec<f64> = whole.map(|mark| mark as f64 * 5.0).collect();
        picture.x_axis(&frame, &marks);
        let middle = left + WIDTH / 2.0;
        picture.text(
            (middle, BOTTOM - 16.0),
            "number middle",
            "seconds since the surge began",
        );
    }
    for (row, title) in ROWS.into_iter().enumerate() {
        let middle = TOPS[row] + HEIGHTS[row] / 2.0;
        picture.upward((26.0, middle), "note middle", title);
    }
    legends(&mut picture);
    picture.finish()
}

/// From when to when, the beginning of the surge being zero.
fn ends(run: &Run) -> (f64, f64) {
    let last = run.record.moments.last().map_or(0.0, |moment| moment.at);
    (-run.surge.from, last - run.surge.from)
}

fn legends(picture: &mut Picture) {
    let kinds = Kind::ALL.map(|kind| (kind.as_str(), kind.as_str()));
    let rows: [&[(&str, &str)]; 3] = [
        &kinds,
        &[
            ("factor", "elastic factor"),
            ("load", "load as the gateway sees it"),
            ("open", "requests at the upstream over its workers"),
        ],
        &[("p50", "p50"), ("p99", "p99 in each second")],
    ];
    for (entries, top) in rows.into_iter().zip(TOPS) {
        let mut x = LEFT;
        let y = top - 12.0;
        for (class, text) in entries {
            if Kind::ALL.iter().any(|kind| kind.as_str() == *class) {
                picture.swatch((x, y - 9.0), class);
            } else {
                picture.line((x, y - 4.0), (x + 14.0, y - 4.0), class);
            }
            picture.text((x + 20.0, y), "note", text);
            x += 42.0 + 6.0 * text.len() as f64;
        }
        let dashed = match top {
            top if top == TOPS[0] => "what it can serve",
            top if top == TOPS[1] => continue,
            _ => "twice the p99 of tollgate in calm",
        };
        picture.line((x, y - 4.0), (x + 22.0, y - 4.0), "bound");
        picture.text((x + 28.0, y), "note", dashed);
    }
}

/// The surge is shaded.
fn begin(picture: &mut Picture, run: &Run, frame: &Frame, values: &[f64], labelled: bool) {
    picture.begin(frame, values, labelled);
    picture.band(frame, (0.0, run.surge.seconds()), "surge");
}

fn rates(picture: &mut Picture, run: &Run, frame: &Frame, labelled: bool) {
    begin(
        picture,
        run,
        frame,
        &[0.0, 100.0, 200.0, 300.0, 400.0, 500.0],
        labelled,
    );
    let seconds: Vec<_> = run.record.answers(run.surge.from).collect();
    let ground = seconds.iter().map(|(second, _)| (second + 0.5, 0.0));
    let mut low: Vec<(f64, f64)> = ground.collect();
    for kind in Kind::ALL {
        let each = seconds.iter().zip(&low);
        let high = each.map(|((_, part), (x, below))| (*x, below + part.of(kind).rate()));
        let high: Vec<(f64, f64)> = high.collect();
        picture.area(frame, &low, &high, kind.as_str());
        low = high;
    }
    picture.level(frame, CAPACITY.rate(), "bound");
    picture.end();
}

fn ratios(picture: &mut Picture, run: &Run, frame: &Frame, labelled: bool) {
    begin(picture, run, frame, &[0.0, 1.0, 2.0, 3.0], labelled);
    let mut curve = |class: &str, value: &dyn Fn(&Moment) -> Option<f64>| {
        let moments = run.record.moments.iter();
        let known = moments.filter_map(|now| Some((now.at - run.surge.from, value(now)?)));
        let points: Vec<(f64, f64)> = known.collect();
        if !points.is_empty() {
            picture.curve(frame, &points, class);
        }
    };
    curve("open", &|now| Some(now.open / CAPACITY.workers as f64));
    curve("load", &|now| now.load);
    curve("factor", &|now| now.factor);
    picture.end();
}

fn latencies(picture: &mut Picture, run: &Run, frame: &Frame, bound: f64, labelled: bool) {
    let marks = [10.0, 30.0, 100.0, 300.0, 1_000.0];
    begin(picture, run, frame, &marks, labelled);
    for (class, share) in [("p50", 0.5), ("p99", 0.99)] {
        let seconds = run.record.seconds(run.surge.from);
        let known = seconds.filter_map(|(second, part)| {
            let critical = part.of(Kind::Critical);
            Some((second + 0.5, critical.latency(share)?))
        });
        picture.curve(frame, &known.collect::<Vec<_>>(), class);
    }
    picture.level(frame, bound, "bound");
    picture.end();
}
