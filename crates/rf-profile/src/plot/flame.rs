//! Flame graphs of call stacks: a box per function within its caller, as wide as its samples.

use super::cut;
use super::svg::{Anchor, FRAMES, Svg};
use crate::tools::perf::Stacks;

/// The size of a picture in pixels.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const HEADER: f64 = 30.0;

/// Boxes of fewer pixels are left out.
const NARROWEST: f64 = 0.6;

/// The estimated width of a character in pixels.
const CHARACTER: f64 = 6.8;

/// A function within its callers, as a box.
#[derive(Debug, PartialEq, Eq)]
struct Frame<'a> {
    name: &'a str,
    /// The number of callers.
    depth: usize,
    /// The number of samples to the left of it.
    start: u64,
    samples: u64,
}

/// Draws a flame graph as SVG. The outermost functions are at the bottom, and callees are sorted by
/// name. A tooltip has the samples of each function.
///
/// # Examples
///
/// ```
/// use rf_profile::plot::flame_graph_svg;
/// use rf_profile::tools::perf::Stacks;
///
/// let stacks = Stacks::parse("demo 42 10.5: 1 cycles:\n\t55 matmul+0x10 (/demo)\n\n");
/// assert!(flame_graph_svg(&stacks, "demo").contains("matmul (1 samples, 100.0 %)"));
/// ```
pub fn flame_graph_svg(stacks: &Stacks, title: &str) -> String {
    let total = stacks.samples().max(1) as f64;
    let scale = WIDTH / total;
    let mut frames = frames(stacks);
    frames.retain(|frame| frame.samples as f64 * scale >= NARROWEST);
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
    let height = HEADER + ROW * rows as f64;
    let mut svg = Svg::new(WIDTH, height, title);
    svg.text("ink", (8.0, 20.0), Anchor::Start, title);
    let samples = format!("{} samples", stacks.samples());
    svg.text("muted", (WIDTH - 8.0, 20.0), Anchor::End, &samples);
    for frame in &frames {
        let Frame { name, depth, start, samples } = *frame;
        let percent = 100.0 * samples as f64 / total;
        let (x, width) = (start as f64 * scale, samples as f64 * scale);
        let y = height - ROW * (depth + 1) as f64;
        let tooltip = format!("{name} ({samples} samples, {percent:.1} %)");
        svg.with_tooltip(&tooltip, |svg| {
            svg.rect(class(name), (x, y), ((width - 0.5).max(0.3), ROW - 1.0));
            let characters = ((width - 6.0) / CHARACTER) as usize;
            if characters >= 3 {
                svg.text("ink", (x + 3.0, y + 12.0), Anchor::Start, &cut(name, characters));
            }
        });
    }
    svg.finish()
}

/// Draws a flame graph as text of this width with at most `most_rows` rows. The outermost functions
/// are at the top. Those that all samples share are left out, but for the last one.
pub fn flame_graph_text(stacks: &Stacks, width: usize, most_rows: usize) -> String {
    let total = stacks.samples().max(1);
    let frames = frames(stacks);
    let in_row = |depth: usize| frames.iter().filter(move |frame| frame.depth == depth);
    let is_shared = |depth: usize| in_row(depth).any(|frame| frame.samples == total);
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
    let first = (0..rows).take_while(|depth| is_shared(*depth)).last().unwrap_or(0);
    let column = |samples: u64| {
        let place = samples as f64 / total as f64 * width as f64;
        place.round() as usize
    };
    let mut out = String::new();
    for depth in (first..rows).take(most_rows) {
        let mut row = vec![' '; width];
        let mut is_empty = true;
        for frame in in_row(depth) {
            let columns = column(frame.start)..column(frame.start + frame.samples);
            let name = cut(frame.name, columns.len().saturating_sub(1));
            let Some(cells) = row.get_mut(columns).filter(|cells| !cells.is_empty()) else {
                continue;
            };
            for (cell, c) in cells.iter_mut().zip(['▏'].into_iter().chain(name.chars())) {
                *cell = c;
            }
            is_empty = false;
        }
        if is_empty {
            break;
        }
        out.push_str(row.iter().collect::<String>().trim_end());
        out.push('\n');
    }
    out
}

/// The boxes of all functions, in which stacks with the same beginning share boxes.
fn frames(stacks: &Stacks) -> Vec<Frame<'_>> {
    let mut sorted: Vec<(Vec<&str>, u64)> =
        stacks.iter().map(|(stack, count)| (stack.split(';').collect(), count)).collect();
    sorted.sort_unstable();
    let mut frames = Vec::new();
    let mut open = Vec::new();
    let mut position = 0;
    for (stack, count) in &sorted {
        let common = open.iter().zip(stack).take_while(|((name, _), other)| name == *other).count();
        close(&mut open, common, position, &mut frames);
        open.extend(stack[common..].iter().map(|name| (*name, position)));
        position += count;
    }
    close(&mut open, 0, position, &mut frames);
    frames
}

/// Ends the open boxes from a depth on.
fn close<'a>(
    open: &mut Vec<(&'a str, u64)>,
    depth: usize,
    position: u64,
    frames: &mut Vec<Frame<'a>>,
) {
    for (index, (name, start)) in open.drain(depth..).enumerate() {
        frames.push(Frame { name, depth: depth + index, start, samples: position - start });
    }
}

/// The class of a function's colour, which is the same wherever it occurs.
fn class(name: &str) -> &'static str {
    let hash =
        name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    FRAMES[hash as usize % FRAMES.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Stacks {
        let sample = |frames: &[&str]| {
            let frames = frames.iter().rev().map(|f| format!("\t55 {f}+0x1 (/x)\n"));
            let frames = frames.collect::<Vec<_>>().concat();
            format!("demo 42 10.5: 1 cycles:\n{frames}\n")
        };
        let samples = [
            &["main", "run", "matmul"][..],
            &["main", "run", "matmul"],
            &["main", "run", "a<b>"],
            &["main", "load"],
        ];
        Stacks::parse(&samples.map(sample).concat())
    }

    #[test]
    fn functions_with_the_same_callers_share_a_box() {
        let stacks = stacks();
        let frames = frames(&stacks);
        let of = |name: &str| {
            let found: Vec<_> = frames.iter().filter(|frame| frame.name == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            (found[0].depth, found[0].start, found[0].samples)
        };
        assert_eq!([of("demo"), of("main"), of("load")], [(0, 0, 4), (1, 0, 4), (2, 0, 1)]);
        assert_eq!([of("run"), of("a<b>"), of("matmul")], [(2, 1, 3), (3, 1, 1), (3, 2, 2)]);
    }

    #[test]
    fn a_picture_has_every_function_and_escapes_its_name() {
        let svg = flame_graph_svg(&stacks(), "a <test> & more");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("<title>a &lt;test&gt; &amp; more</title>"), "{svg}");
        assert!(svg.contains("<title>matmul (2 samples, 50.0 %)</title>"), "{svg}");
        assert!(svg.contains("a&lt;b&gt; (1 samples") && !svg.contains("<b>"), "{svg}");
        assert_eq!(svg.matches("<g>").count(), 6);
        assert_eq!(flame_graph_svg(&Stacks::default(), "x").matches("<g>").count(), 0);
    }

    #[test]
    fn a_terminal_shows_rows_of_boxes_below_what_all_share() {
        let expected = "\
▏main
▏load   ▏run
        ▏a<b>   ▏matmul
";
        assert_eq!(flame_graph_text(&stacks(), 32, 20), expected);
        assert_eq!(flame_graph_text(&stacks(), 32, 1), "▏main\n");
        // Too narrow for a name, and for a box.
        assert_eq!(flame_graph_text(&stacks(), 4, 20), "▏ma…\n▏▏r…\n ▏▏…\n");
        assert_eq!(flame_graph_text(&Stacks::default(), 32, 20), "");
        assert_eq!(flame_graph_text(&stacks(), 0, 20), "");
    }
}
