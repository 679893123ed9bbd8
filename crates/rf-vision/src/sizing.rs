//! The rules by which projectors choose sizes and tiles. Arithmetic is f32 where the reference
//! rounds it so.

use crate::config::{LFM2_TILE, ProjectorSettings};
use crate::plan::{Fit, Overview, TilePlan, Tiles};

/// Sides that are multiples of the merged patch, within the limits on tokens, padded.
pub(crate) fn smart(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    TilePlan::whole(smart_size(settings, size), Fit::Pad)
}

fn smart_size(settings: &ProjectorSettings, size: [usize; 2]) -> [usize; 2] {
    smart_resize(size, settings.unit(), settings.min_pixels(), settings.max_pixels())
}

/// Sides that are multiples of `align`, with about the aspect ratio of the picture.
fn smart_resize([w, h]: [usize; 2], align: usize, min: usize, max: usize) -> [usize; 2] {
    let a = align as f32;
    let sides = [w, h].map(|n| n as f32);
    let whole = |n: f32| (n as usize).saturating_mul(align);
    let rounded = sides.map(|n| whole((n / a).round()).max(align));
    let pixels = rounded[0].saturating_mul(rounded[1]);
    if pixels > max {
        let beta = (sides[1] * sides[0] / max as f32).sqrt();
        sides.map(|n| whole((n / beta / a).floor()).max(align))
    } else if pixels < min {
        let beta = (min as f32 / (sides[1] * sides[0])).sqrt();
        sides.map(|n| whole((n * beta / a).ceil()))
    } else {
        rounded
    }
}

/// A square of the model's size, padded.
pub(crate) fn square(settings: &ProjectorSettings, _size: [usize; 2]) -> TilePlan {
    TilePlan::whole([settings.image_size; 2], Fit::Pad)
}

/// The grid of merged patches whose aspect ratio is nearest to that of the picture (Muse).
pub(crate) fn nearest_grid(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    let unit = settings.unit();
    let [w, h] = size.map(|n| n as f64);
    let (mut a, mut b) = (h / unit as f64, w / unit as f64);
    let ratio = b / a;
    let max = settings.limits.map_or(usize::MAX, |limits| limits.max);
    if a * b > max as f64 {
        a = (max as f64 / ratio).sqrt();
        b = a * ratio;
    }
    let mut best: Option<(f64, [usize; 2])> = None;
    for y in [a.floor(), a.ceil()] {
        for x in [b.floor(), b.ceil()] {
            let (tokens, distance) = (y * x, (y / x - h / w).abs());
            if y < 1.0 || x < 1.0 || tokens > max as f64 {
                continue;
            }
            let is_better = best.is_none_or(|(least, [bx, by])| {
                distance < least
                    || (distance.total_cmp(&least).is_eq() && tokens > (bx * by) as f64)
            });
            if is_better {
                best = Some((distance, [x as usize, y as usize]));
            }
        }
    }
    // A picture so narrow that no such grid has a row: one row or column of the most patches.
    let thin = |n: f64| (n.round() as usize).clamp(1, max);
    let [x, y] = best.map_or_else(|| [thin(b), thin(a)], |(_, grid)| grid);
    TilePlan::whole([x * unit, y * unit], Fit::Stretch)
}

/// One picture, or tiles of 512² if it is large (LFM2).
pub(crate) fn tiles_of_512(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    let overview = smart_size(settings, size);
    let mut plan = TilePlan::whole(overview, Fit::Stretch);
    let unit = settings.unit() as f64;
    let rounded =
        |n: usize| ((n as f64 / unit).round_ties_even() * unit).max(settings.patch_size as f64);
    if rounded(size[0]) * rounded(size[1]) <= 2.0 * settings.max_pixels() as f64 {
        return plan;
    }
    let [w, h] = size;
    let ratio = w as f32 / h as f32;
    let mut grids: Vec<[usize; 2]> = (1..=10)
        .flat_map(|x| (1..=10).map(move |y| [x, y]))
        .filter(|[x, y]| (2..=10).contains(&(x * y)))
        .collect();
    grids.sort_by_key(|[x, y]| x * y);
    let mut best = [1, 1];
    let mut least = f32::INFINITY;
    for [x, y] in grids {
        let distance = (ratio - x as f32 / y as f32).abs();
        let is_large = (w * h) as f32 > 0.5 * (LFM2_TILE * LFM2_TILE * x * y) as f32;
        if distance < least || (distance.total_cmp(&least).is_eq() && is_large) {
            (least, best) = (distance, [x, y]);
        }
    }
    plan.tiles = Some(Tiles { grid: best, size: [LFM2_TILE; 2], fit: Fit::Pad, through: None });
    plan
}

/// Square tiles, as many per side as keep most pixels, and an overview unless the picture is small.
pub(crate) fn tile_counts(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    let [min, max] = settings.tiles;
    let candidates = (min..=max).flat_map(|a| {
        let first = min.div_ceil(a).max(min);
        (first..=(max / a).min(max)).map(move |b| [a, b])
    });
    best_tiles(settings, size, candidates)
}

/// As [`tile_counts`], with up to three tiles per side, and at least two tiles (Llama 4).
pub(crate) fn up_to_three_tiles(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    let candidates = (1..=3).flat_map(|x| (1..=3).map(move |y| [x, y]));
    best_tiles(settings, size, candidates.filter(|grid| *grid != [1, 1]))
}

fn best_tiles(
    settings: &ProjectorSettings,
    size: [usize; 2],
    candidates: impl Iterator<Item = [usize; 2]>,
) -> TilePlan {
    let side = settings.image_size;
    let mut plan = TilePlan::whole([side; 2], Fit::Stretch);
    if size.iter().all(|n| *n <= side) {
        return plan;
    }
    let [w, h] = size.map(|n| n as f32);
    let mut best: Option<(usize, usize, [usize; 2])> = None;
    for grid in candidates {
        let whole = grid.map(|n| n * side);
        let scale = (whole[0] as f32 / w).min(whole[1] as f32 / h);
        let scaled = (w * scale) as usize * (h * scale) as usize;
        let kept = scaled.min(size[0] * size[1]);
        let waste = (whole[0] * whole[1]).saturating_sub(kept);
        if best.is_none_or(|(most, least, _)| kept > most || (kept == most && waste < least)) {
            best = Some((kept, waste, grid));
        }
    }
    plan.tiles =
        best.map(|(.., grid)| Tiles { grid, size: [side; 2], fit: Fit::Pad, through: None });
    plan
}

/// An overview of about the model's size, and up to nine slices of a larger picture (`MiniCPM`).
pub(crate) fn slices(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    const MOST: usize = 9;
    let area = settings.image_size * settings.image_size;
    let pixels = size[0] * size[1];
    if pixels <= area {
        return TilePlan::whole(slice_size(settings, size, true), Fit::Stretch);
    }
    let mut plan = TilePlan::whole(slice_size(settings, size, false), Fit::Stretch);
    let count = (pixels as f32 / area as f32).ceil().min(MOST as f32) as usize;
    let ratio = (size[0] as f32 / size[1] as f32).ln();
    let mut best = [1, 1];
    let mut least = f32::INFINITY;
    for n in (count - 1..=count + 1).filter(|n| (2..=MOST).contains(n)) {
        for x in (1..=n).filter(|x| n.is_multiple_of(*x)) {
            let grid = [x, n / x];
            let distance = (ratio - (grid[0] as f32 / grid[1] as f32).ln()).abs();
            if distance < least {
                (least, best) = (distance, grid);
            }
        }
    }
    let part = |axis: usize| {
        let n = best[axis];
        ((size[axis] as f32 / n as f32).round() as usize).max(1)
    };
    let tile = slice_size(settings, [part(0), part(1)], true);
    plan.tiles = Some(Tiles { grid: best, size: tile, fit: Fit::Stretch, through: None });
    plan
}

/// Sides that are multiples of the merged patch, with about the model's number of pixels; smaller
/// pictures are enlarged only if `up`.
fn slice_size(settings: &ProjectorSettings, [w, h]: [usize; 2], up: bool) -> [usize; 2] {
    let side = settings.image_size;
    let mut size = [w, h];
    if w * h > side * side || up {
        let ratio = w as f32 / h as f32;
        let height = (side as f32 / ratio.sqrt()) as usize;
        size = [(height as f32 * ratio) as usize, height];
    }
    let unit = settings.unit();
    size.map(|n| ((n as f32 / unit as f32).round() as usize * unit).max(unit))
}

/// Tiles of a picture whose longer side has a fixed length, and an overview (Idefics 3).
pub(crate) fn longest_side(settings: &ProjectorSettings, size: [usize; 2]) -> TilePlan {
    let side = settings.image_size;
    let (through, refined) = match settings.longest_side {
        Some(longest) => {
            let [w, h] = size.map(|n| n as f64);
            let shorter = |ratio: f64| {
                let n = (longest as f64 * ratio) as usize;
                (n + n % 2).max(1)
            };
            let first = if w >= h { [longest, shorter(h / w)] } else { [shorter(w / h), longest] };
            (Some(first), first.map(|n| n.div_ceil(side) * side))
        }
        None => (None, smart_resize(size, side, 0, usize::MAX)),
    };
    TilePlan {
        tiles: Some(Tiles {
            grid: refined.map(|n| n / side),
            size: [side; 2],
            fit: Fit::Stretch,
            through,
        }),
        overview: Some(Overview { size: [side; 2], fit: Fit::Stretch, of_tiles: true }),
    }
}
