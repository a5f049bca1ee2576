//! A little of SVG: text, lines and areas, in frames with axes.

use std::fmt::Write;

/// How values are laid out along an axis.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    Linear(f64, f64),
    Log(f64, f64),
}

impl Scale {
    /// 0 at the lower end, 1 at the upper.
    fn place(self, value: f64) -> f64 {
        match self {
            Scale::Linear(low, high) => (value - low) / (high - low),
            Scale::Log(low, high) => (value / low).ln() / (high / low).ln(),
        }
    }
}

/// Where a diagram lies, in pixels, and what it shows.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Scale,
    pub y: Scale,
}

impl Frame {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let down = 1.0 - self.y.place(y);
        (
            self.left + self.width * self.x.place(x),
            self.top + self.height * down,
        )
    }
}

/// A picture that is being drawn.
pub struct Picture {
    text: String,
    frames: usize,
}

impl Picture {
    /// `style` is a style sheet.
    pub fn new(width: f64, height: f64, style: &str) -> Picture {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\">\n<style>{style}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        Picture { text, frames: 0 }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into memory does not fail.
        let _ = self.text.write_fmt(element);
        self.text.push('\n');
    }

    /// `class` says what it looks like, here and below.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// The same, reading upward.
    pub fn upward(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        self.put(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" class=\"{class}\">{text}</text>"
        ));
    }

    pub fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), class: &str) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" class=\"{class}\"/>"
        ));
    }

    pub fn swatch(&mut self, (x, y): (f64, f64), class: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"10\" class=\"{class}\"/>"
        ));
    }

    /// A frame's ground, lines at these values of y, and with numbers at them where `labelled`. What is
    /// drawn until [`Picture::end`] is cut off at the frame's edge.
    pub fn begin(&mut self, frame: &Frame, values: &[f64], labelled: bool) {
        let Frame {
            left,
            top,
            width,
            height,
            ..
        } = frame;
        self.frames += 1;
        let number = self.frames;
        let rect = format!("x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"");
        self.put(format_args!(
            "<clipPath id=\"f{number}\"><rect {rect}/></clipPath><rect {rect} class=\"ground\"/>"
        ));
        for value in values {
            self.level(frame, *value, "grid");
            if labelled {
                let (_, y) = frame.at((0.0, *value));
                self.text((left - 6.0, y + 4.0), "number right", &value.to_string());
            }
        }
        self.put(format_args!("<g clip-path=\"url(#f{number})\">"));
    }

    pub fn end(&mut self) {
        self.put(format_args!("</g>"));
    }

    /// From one value of x to another, as high as the frame.
    pub fn band(&mut self, frame: &Frame, (from, to): (f64, f64), class: &str) {
        let ((left, _), (right, _)) = (frame.at((from, 1.0)), frame.at((to, 1.0)));
        let (top, width, height) = (frame.top, right - left, frame.height);
        self.put(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" class=\"{class}\"/>"
        ));
    }

    /// A value of y, as wide as the frame.
    pub fn level(&mut self, frame: &Frame, value: f64, class: &str) {
        let (_, y) = frame.at((0.0, value));
        self.line((frame.left, y), (frame.left + frame.width, y), class);
    }

    /// Through all points.
    pub fn curve(&mut self, frame: &Frame, points: &[(f64, f64)], class: &str) {
        let points = path(frame, points.iter());
        self.put(format_args!("<path d=\"M{points}\" class=\"{class}\"/>"));
    }

    /// Between two curves over the same values of x.
    pub fn area(&mut self, frame: &Frame, low: &[(f64, f64)], high: &[(f64, f64)], class: &str) {
        let (there, back) = (path(frame, high.iter()), path(frame, low.iter().rev()));
        self.put(format_args!(
            "<path d=\"M{there} L{back} Z\" class=\"{class}\"/>"
        ));
    }

    /// Numbers along the lower edge.
    pub fn x_axis(&mut self, frame: &Frame, values: &[f64]) {
        let bottom = frame.top + frame.height;
        for value in values {
            let (x, _) = frame.at((*value, 1.0));
            self.line((x, bottom), (x, bottom + 4.0), "tick");
            self.text((x, bottom + 17.0), "number middle", &value.to_string());
        }
    }

    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn path<'p>(frame: &Frame, points: impl Iterator<Item = &'p (f64, f64)>) -> String {
    let points = points.map(|point| frame.at(*point));
    let points = points.map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" L")
}
