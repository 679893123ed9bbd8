//! Pictures of measurements: flame graphs, rooflines and bars, as SVG files and as text for
//! terminals.
//!
//! An SVG file follows the light or dark scheme of its viewer and loads nothing. Text uses block
//! characters only, without colours. Names come from profilers and files: they are escaped in SVG,
//! and control characters in them are replaced in both.

mod bars;
mod flame;
mod roofline;
mod svg;

pub use bars::{Bar, bars_svg, bars_text};
pub use flame::{flame_graph_svg, flame_graph_text};
pub use roofline::{roofline_svg, roofline_text};

/// The first characters of a text, at most `most`, without control characters. A cut text ends with
/// `…`.
fn cut(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    if text.chars().count() <= most {
        return text.chars().map(plain).collect();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).map(plain).collect();
    if most > 0 {
        cut.push('…');
    }
    cut
}

/// A number with three digits: `2930`, `40.5`, `0.25`.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
