//! Inline SVG, drawn with plotters.
//!
//! plotters writes colours into the SVG. Each colour of [`palette`] has a rule in `report.css` that
//! maps it to a variable of the theme, so that plots follow the light and the dark mode.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, RGBColor, SVGBackend, TextStyle,
};

use crate::Error;

/// A plot with its tooltips.
pub(super) struct Plot {
    pub(super) svg: String,
    pub(super) marks: Vec<Mark>,
}

/// A tooltip over a position in a plot, in percent of the plot's size.
pub(super) struct Mark {
    pub(super) left: String,
    pub(super) top: String,
    pub(super) title: String,
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The result of drawing.
pub(super) type Drawn<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// The colours of plots: those of the light theme.
pub(super) mod palette {
    use plotters::style::RGBColor;

    pub(in super::super) const INK: RGBColor = RGBColor(0x16, 0x19, 0x1D);
    pub(in super::super) const MUTED: RGBColor = RGBColor(0x5F, 0x68, 0x73);
    pub(in super::super) const RULE: RGBColor = RGBColor(0xE2, 0xE5, 0xE9);
    pub(in super::super) const ACCENT: RGBColor = RGBColor(0x24, 0x56, 0xC7);
    pub(in super::super) const MATMUL: RGBColor = RGBColor(0x2F, 0x6B, 0xD8);
    pub(in super::super) const ATTENTION: RGBColor = RGBColor(0xC8, 0x64, 0x1B);
    pub(in super::super) const DEQUANT: RGBColor = RGBColor(0x16, 0x86, 0x6A);
    pub(in super::super) const INFERENCE: RGBColor = RGBColor(0x8A, 0x4F, 0xBE);
    pub(in super::super) const MEMORY: RGBColor = RGBColor(0x0F, 0x8A, 0xA6);
    pub(in super::super) const LAUNCH: RGBColor = RGBColor(0x7A, 0x7F, 0x87);
}

/// Draws a plot of `size` pixels.
pub(super) fn draw(
    size: (u32, u32),
    plot: impl FnOnce(&Area<'_>) -> Drawn<Vec<Mark>>,
) -> Result<Plot, Error> {
    let to_error = |error: DrawingAreaErrorKind<std::io::Error>| Error::Report(error.to_string());
    let mut svg = String::new();
    let marks = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let marks = plot(&area).map_err(to_error)?;
        area.present().map_err(to_error)?;
        marks
    };
    // Inline SVG needs no namespace, and the other attributes are the defaults.
    for default in [
        " xmlns=\"http://www.w3.org/2000/svg\"",
        " opacity=\"1\"",
        " stroke=\"none\" stroke-width=\"1\"",
    ] {
        svg = svg.replace(default, "");
    }
    Ok(Plot { svg, marks })
}

/// The style of labels.
pub(super) fn text_style(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

impl Mark {
    pub(super) fn new((x, y): (i32, i32), (width, height): (u32, u32), title: String) -> Self {
        let percent = |at: i32, of: u32| format!("{:.2}", 100.0 * f64::from(at) / f64::from(of));
        Self { left: percent(x, width), top: percent(y, height), title }
    }
}

#[cfg(test)]
mod tests {
    use plotters::style::RGBColor;

    use super::palette::*;

    #[test]
    fn every_colour_follows_the_theme() {
        let css = include_str!("../../templates/report.css");
        for RGBColor(r, g, b) in
            [INK, MUTED, RULE, ACCENT, MATMUL, ATTENTION, DEQUANT, INFERENCE, MEMORY, LAUNCH]
        {
            for attribute in ["fill", "stroke"] {
                let rule =
                    format!(".plot [{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: var(");
                assert!(css.contains(&rule), "{rule}");
            }
        }
    }
}
