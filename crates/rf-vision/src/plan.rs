//! How a picture is resized and cut, which depends on its size alone.

use crate::resample::{Interpolation, resize};
use crate::rgb::Rgb;

/// The parts of a picture that are encoded one by one. Sizes are `[width, height]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TilePlan {
    /// Tiles of equal size of a resized picture, row by row.
    pub(crate) tiles: Option<Tiles>,
    /// The whole picture.
    pub(crate) overview: Option<Overview>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Tiles per row and per column.
    pub(crate) grid: [usize; 2],
    /// Size of a tile.
    pub(crate) size: [usize; 2],
    pub(crate) fit: Fit,
    /// A size to which the picture is resized first.
    pub(crate) through: Option<[usize; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overview {
    pub(crate) size: [usize; 2],
    pub(crate) fit: Fit,
    /// True if it is made of the picture that is cut into tiles.
    pub(crate) of_tiles: bool,
}

/// How a picture gets another aspect ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Black bars.
    Pad,
    Stretch,
}

impl TilePlan {
    /// The whole picture, resized.
    pub(crate) fn whole(size: [usize; 2], fit: Fit) -> Self {
        Self { tiles: None, overview: Some(Overview { size, fit, of_tiles: false }) }
    }

    /// The tiles, row by row, and the overview of a picture.
    pub(crate) fn apply(&self, picture: &Rgb, kernel: Interpolation) -> (Vec<Rgb>, Option<Rgb>) {
        let mut refined = None;
        let mut tiles = Vec::new();
        if let Some(Tiles { grid: [columns, rows], size, fit, through }) = self.tiles {
            let first = through.map(|size| resize(picture, size, kernel));
            let whole = [size[0] * columns, size[1] * rows];
            let cut = fit.resize(first.as_ref().unwrap_or(picture), whole, kernel);
            let corners = (0..rows).flat_map(|y| (0..columns).map(move |x| [x, y]));
            tiles.extend(corners.map(|[x, y]| cut.crop([x * size[0], y * size[1]], size)));
            refined = Some(cut);
        }
        let overview = self.overview.as_ref().map(|overview| {
            let source = refined.as_ref().filter(|_| overview.of_tiles).unwrap_or(picture);
            overview.fit.resize(source, overview.size, kernel)
        });
        (tiles, overview)
    }
}

impl Fit {
    fn resize(self, picture: &Rgb, size: [usize; 2], kernel: Interpolation) -> Rgb {
        if self == Self::Stretch {
            return resize(picture, size, kernel);
        }
        let [width, height] = size.map(|n| n as f32);
        let source = picture.size().map(|n| n as f32);
        let scale = (width / source[0]).min(height / source[1]);
        let inner = |axis: usize| ((source[axis] * scale).ceil() as usize).clamp(1, size[axis]);
        let inner = [inner(0), inner(1)];
        let resized = resize(picture, inner, kernel);
        if inner == size {
            return resized;
        }
        let mut out = Rgb::black(size);
        out.paste(&resized, [(size[0] - inner[0]) / 2, (size[1] - inner[1]) / 2]);
        out
    }
}
