//! The roofline: what each operation computes per byte, against what memory and arithmetic allow (Williams, Waterman and
//! Patterson 2009). Both axes are logarithmic.

use std::fmt::Write;

use rf_profile::roofline::{Bound, Limits, Roofline};

use super::figures::{percent, rate};
use super::scale::Logarithmic;
use super::{put, suite_name, text};
use crate::results::{Measured, Run};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;

/// Of a letter of a label, about.
const LETTER: f64 = 5.9;
const ROOF_LETTER: f64 = 7.2;
const LABEL_HEIGHT: f64 = 11.0;

/// Areas that stand for the slope where labels look for room.
const SLOPE_STEPS: u32 = 160;

/// An operation in the plot.
struct Point<'a> {
    measured: &'a Measured,
    place: Roofline,
    x: f64,
    y: f64,
}

impl Point<'_> {
    /// Operations per byte.
    fn intensity(&self) -> f64 {
        self.place.operations_per_s / self.place.bytes_per_s
    }
}

/// The plot, or why there is none.
pub(super) fn section(out: &mut String, run: &Run) {
    put!(out, "<section id=\"roofline\"><h2>Roofline</h2>\n");
    let points = points(run);
    match axes(&run.limits, &points) {
        Some(axes) => plot(out, run, points, &axes),
        None => put!(
            out,
            "<p class=\"note\">No roofline: no benchmark of this run says how many bytes it moves and what it computes, or the \
             machine’s limits were not measured.</p>\n"
        ),
    }
    put!(out, "</section>\n");
}

fn points<'a>(run: &'a Run) -> Vec<Point<'a>> {
    let point = |measured: &'a Measured| {
        let place = measured.roofline?;
        let is_there = place.bytes_per_s > 0.0 && place.operations_per_s > 0.0;
        is_there.then_some(Point { measured, place, x: 0.0, y: 0.0 })
    };
    run.results.iter().filter_map(point).collect()
}

/// Operations per byte, operations per second.
struct Axes {
    x: Logarithmic,
    y: Logarithmic,
}

fn axes(limits: &Limits, points: &[Point<'_>]) -> Option<Axes> {
    let bandwidth = limits.bandwidth_bytes_per_s?;
    if points.is_empty() {
        return None;
    }
    // The ridge, where memory and arithmetic allow the same, is to be seen.
    let ridges = limits.operations_per_s().map(|(_, speed)| speed / bandwidth);
    let xs = points.iter().map(Point::intensity).chain(ridges);
    let speeds = points.iter().map(|point| point.place.operations_per_s);
    let ys = speeds.chain(limits.operations_per_s().map(|(_, speed)| speed));
    Some(Axes {
        x: Logarithmic::around(xs, LEFT..WIDTH - RIGHT)?,
        y: Logarithmic::around(ys, HEIGHT - BOTTOM..TOP)?,
    })
}

fn plot(out: &mut String, run: &Run, mut points: Vec<Point<'_>>, axes: &Axes) {
    for point in &mut points {
        point.x = axes.x.at(point.intensity());
        point.y = axes.y.at(point.place.operations_per_s);
    }
    put!(
        out,
        "<p>Each dot is a benchmark. The slope is what memory allows, the level lines are what arithmetic allows; a dot on its \
         line cannot be faster. {}</p>\n",
        text(&format!("Limits: {}.", run.limits.source))
    );
    put!(
        out,
        "<div class=\"scroll\"><svg class=\"roofline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline of {} \
         benchmarks; their figures stand in the tables below\">\n",
        points.len()
    );
    grid(out, axes);
    let mut taken = roofs(out, &run.limits, axes, &points);
    for point in &points {
        dot(out, point);
        taken.push(Area::around(point.x, point.y, 4.0));
    }
    // Those nearest to a limit, and then the others, as far as there is room.
    points.sort_by(|a, b| b.place.share.total_cmp(&a.place.share));
    for point in &points {
        label(out, point, &mut taken);
    }
    put!(out, "</svg></div>\n");
    legend(out, &points);
}

fn grid(out: &mut String, axes: &Axes) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for power in axes.x.powers() {
        let x = axes.x.at(10_f64.powi(power));
        put!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
        );
        put!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            plain_power(power)
        );
    }
    for power in axes.y.powers() {
        let y = axes.y.at(10_f64.powi(power));
        put!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        put!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            speed_power(power)
        );
    }
    put!(
        out,
        "<text class=\"axis-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations per byte</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 6.0
    );
    put!(
        out,
        "<text class=\"axis-name\" transform=\"translate(12 {:.1}) rotate(-90)\" text-anchor=\"middle\">operations per second\
         </text>\n",
        f64::midpoint(TOP, bottom)
    );
}

/// The lines of the limits; returns where they and their labels lie.
fn roofs(out: &mut String, limits: &Limits, axes: &Axes, points: &[Point<'_>]) -> Vec<Area> {
    let mut taken = Vec::new();
    let Some(bandwidth) = limits.bandwidth_bytes_per_s else { return taken };
    let ((least, most), (slowest, fastest)) = (axes.x.ends(), axes.y.ends());
    let top = limits.operations_per_s().map(|(_, speed)| speed).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { fastest };
    // The slope, cut where the plot begins and at the highest level.
    let start = least.max(slowest / bandwidth);
    let end = (top / bandwidth).min(most);
    let (x1, y1) = (axes.x.at(start), axes.y.at(start * bandwidth));
    let (x2, y2) = (axes.x.at(end), axes.y.at(end * bandwidth));
    put!(
        out,
        "<line class=\"roof memory\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
    let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
    let (x, y) = (x1 + 0.12 * (x2 - x1), y1 + 0.12 * (y2 - y1));
    put!(
        out,
        "<text class=\"roof-name\" transform=\"translate({x:.1} {y:.1}) rotate({angle:.1})\" dy=\"-6\">memory {}</text>",
        rate(bandwidth, "B")
    );
    for step in 0..16 {
        let share = 0.12 + f64::from(step) * 0.018;
        let (x, y) = (x1 + share * (x2 - x1), y1 + share * (y2 - y1));
        taken.push(Area::around(x + 2.0, y - 10.0, 9.0));
    }
    for step in 0..=SLOPE_STEPS {
        let share = f64::from(step) / f64::from(SLOPE_STEPS);
        taken.push(Area::around(x1 + share * (x2 - x1), y1 + share * (y2 - y1), 2.0));
    }
    for (arithmetic, speed) in limits.operations_per_s() {
        let (x, y) = (axes.x.at(speed / bandwidth), axes.y.at(speed));
        let right = WIDTH - RIGHT;
        put!(
            out,
            "<line class=\"roof compute\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"
        );
        let name = format!("{arithmetic} {}", rate(speed, "ops"));
        // At the end of the line, or where dots leave room before it.
        let width = ROOF_LETTER * name.chars().count() as f64;
        let place = |steps: u32| {
            let right = right - f64::from(steps) * 20.0;
            Area { left: right - width, right, top: y - 18.0, bottom: y - 2.0 }
        };
        let covers = |area: &Area| points.iter().any(|p| Area::around(p.x, p.y, 5.0).meets(area));
        let mut places = (0..40).map(place).take_while(|area| area.left > x);
        let area = places.find(|area| !covers(area)).unwrap_or_else(|| place(0));
        put!(
            out,
            "<text class=\"roof-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\n",
            area.right,
            y - 6.0
        );
        taken.push(area);
        taken.push(Area { left: x, right, top: y - 2.0, bottom: y + 2.0 });
    }
    taken
}

fn dot(out: &mut String, point: &Point<'_>) {
    let Point { measured, place, x, y } = point;
    let limit = match place.bound {
        Bound::Memory => "memory",
        Bound::Compute => "arithmetic",
    };
    let label = format!(
        "{}\n{} · {} · {:.2} ops/byte\n{} of the limit of {limit}",
        measured.name,
        rate(place.bytes_per_s, "B"),
        rate(place.operations_per_s, "ops"),
        point.intensity(),
        percent(place.share)
    );
    put!(
        out,
        "<circle class=\"point s-{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>\n",
        suite_name(measured.suite),
        text(&label)
    );
}

/// A place in the plot that is used.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn around(x: f64, y: f64, reach: f64) -> Self {
        Self { left: x - reach, right: x + reach, top: y - reach, bottom: y + reach }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn is_inside(&self) -> bool {
        self.left > LEFT
            && self.right < WIDTH - RIGHT
            && self.top > TOP
            && self.bottom < HEIGHT - BOTTOM
    }
}

/// Names a point where that covers nothing.
fn label(out: &mut String, point: &Point<'_>, taken: &mut Vec<Area>) {
    let name = short(&point.measured.name);
    let width = LETTER * name.chars().count() as f64;
    let area = |left: f64, middle: f64| Area {
        left,
        right: left + width,
        top: middle - LABEL_HEIGHT / 2.0,
        bottom: middle + LABEL_HEIGHT / 2.0,
    };
    let Point { x, y, .. } = *point;
    let places = [
        area(x + 7.0, y),
        area(x - 7.0 - width, y),
        area(x - width / 2.0, y - 11.0),
        area(x - width / 2.0, y + 11.0),
    ];
    let is_free = |area: &Area| area.is_inside() && !taken.iter().any(|other| area.meets(other));
    let Some(place) = places.into_iter().find(is_free) else { return };
    put!(
        out,
        "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
        place.left,
        place.bottom - 2.0,
        text(&name)
    );
    taken.push(place);
}

/// A name without its suite, which the colour says.
fn short(name: &str) -> String {
    const LETTERS: usize = 44;
    let rest = name.split_once('/').map_or(name, |(_, rest)| rest);
    if rest.chars().count() <= LETTERS {
        return rest.to_owned();
    }
    rest.chars().take(LETTERS - 1).chain(['…']).collect()
}

fn legend(out: &mut String, points: &[Point<'_>]) {
    let mut suites: Vec<_> = points.iter().map(|point| point.measured.suite).collect();
    suites.sort_unstable();
    suites.dedup();
    put!(out, "<p class=\"legend\">");
    for suite in suites {
        let name = suite_name(suite);
        put!(out, "<span><i class=\"s-{name}\"></i>{name}</span> ");
    }
    put!(
        out,
        "<span class=\"muted\">Names stand where there is room for them; hold the pointer over a dot for its own.</span></p>\n"
    );
}

/// `0.01`, `1`, `100`.
fn plain_power(power: i32) -> String {
    if power >= 0 {
        format!("{}", 10_f64.powi(power))
    } else {
        format!("{:.*}", power.unsigned_abs() as usize, 10_f64.powi(power))
    }
}

/// `10 G`, `1 T`.
fn speed_power(power: i32) -> String {
    let (value, prefix) = match power {
        12.. => (power - 12, "T"),
        9.. => (power - 9, "G"),
        6.. => (power - 6, "M"),
        3.. => (power - 3, "k"),
        _ => (power, ""),
    };
    format!("{} {prefix}", plain_power(value)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let ticks = [-2, 0, 3].map(plain_power);
        assert_eq!(ticks, ["0.01", "1", "1000"]);
        assert_eq!([7, 9, 13].map(speed_power), ["10 M", "1 G", "10 T"]);
        assert_eq!(short("matmul/q4_0/rows=1"), "q4_0/rows=1");
        assert_eq!(short(&"x".repeat(99)).chars().count(), 44);
    }
}
