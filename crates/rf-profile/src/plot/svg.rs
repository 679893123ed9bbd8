//! A writer of SVG.

use std::fmt::{Display, Write};

use super::cut;

/// Rules of the classes: a light scheme and a dark one.
const STYLE: &str = "\
.ground{fill:#fff}.ink{fill:#16191d}.muted{fill:#5f6873}.bar{fill:#2f6bd8}.dot{fill:#c8641b}\
.rule{stroke:#e2e5e9}.axis{stroke:#5f6873}.roof{stroke:#16191d;stroke-width:2;fill:none}\
.f0{fill:#f2a066}.f1{fill:#e8b450}.f2{fill:#f0885a}.f3{fill:#e5c070}.f4{fill:#f3b183}\
@media(prefers-color-scheme:dark){\
.ground{fill:#101317}.ink{fill:#e6e9ec}.muted{fill:#98a2ad}.bar{fill:#79a8ff}.dot{fill:#f2a066}\
.rule{stroke:#2a3038}.axis{stroke:#98a2ad}.roof{stroke:#e6e9ec}\
.f0{fill:#a85a24}.f1{fill:#8f6a1c}.f2{fill:#a3492a}.f3{fill:#7d6428}.f4{fill:#94593a}}";

/// Classes of frames in a flame graph.
pub(super) const FRAMES: [&str; 5] = ["f0", "f1", "f2", "f3", "f4"];

/// The longest name in a picture.
const LONGEST: usize = 300;

/// The place of a text at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is written element by element.
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
        ))
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.line(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    /// A line through points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        self.line(format_args!("<polyline class=\"{class}\" points=\"{points}\"/>"));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.line(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        ));
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let text = escaped(text);
        self.line(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{text}</text>"
        ));
    }

    /// Draws elements that have a tooltip.
    pub(super) fn with_tooltip(&mut self, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        let tooltip = escaped(tooltip);
        self.line(format_args!("<g><title>{tooltip}</title>"));
        draw(self);
        self.line("</g>");
    }

    /// The whole file.
    pub(super) fn finish(mut self) -> String {
        self.line("</svg>");
        self.0
    }

    fn line(&mut self, element: impl Display) {
        // Writing into a String cannot fail.
        _ = writeln!(self.0, "{element}");
    }
}

/// A text inside an element.
fn escaped(text: &str) -> String {
    cut(text, LONGEST).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
