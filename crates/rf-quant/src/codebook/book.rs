//! A codebook prepared for searches.

/// The candidates of a search: the points nearest to a group whose values are rounded one by one.
const NEAR: usize = 16;

/// A codebook of points of `G` values.
pub(super) struct Book<const G: usize> {
    /// The number of the rounded group that each point is.
    keys: Vec<u16>,
    /// The points nearest to each rounded group, the nearest first.
    near: Vec<[u16; NEAR]>,
    /// The values of the points, once for each shift.
    pub(super) shifts: Vec<Shift<G>>,
}

/// The values of a codebook with one of its shifts.
pub(super) struct Shift<const G: usize> {
    /// Half-way points between neighbouring values of a code.
    boundaries: Vec<f32>,
    /// The largest value of a code.
    pub(super) largest: f32,
    /// The values of each point.
    pub(super) points: Vec<[f32; G]>,
}

impl<const G: usize> Book<G> {
    /// A codebook whose points have codes of `bits` bits. `shifts` are the values of the codes,
    /// ascending, once for each shift.
    pub(super) fn new(grid: &[u16], bits: usize, shifts: &[&[f32]]) -> Self {
        let num_codes = shifts[0].len();
        let codes: Vec<[u8; G]> = grid
            .iter()
            .map(|point| std::array::from_fn(|i| (point >> (bits * i)) as u8 & ((1 << bits) - 1)))
            .collect();
        let key = |codes: &[u8; G]| {
            codes.iter().rev().fold(0, |key, code| key * num_codes as u16 + u16::from(*code))
        };
        let mut distances = Vec::with_capacity(grid.len());
        let near = (0..num_codes.pow(G as u32)).map(|key| {
            let group: [i32; G] =
                std::array::from_fn(|i| (key / num_codes.pow(i as u32) % num_codes) as i32);
            distances.clear();
            // The index breaks ties.
            distances.extend(codes.iter().zip(0..).map(|(codes, index): (_, u32)| {
                let squares = (0..G).map(|i| (i32::from(codes[i]) - group[i]).pow(2) as u32);
                squares.sum::<u32>() << 16 | index
            }));
            let (first, last, _) = distances.select_nth_unstable(NEAR - 1);
            first.sort_unstable();
            std::array::from_fn(|i| *first.get(i).unwrap_or(last) as u16)
        });
        let near = near.collect();
        let shifts = shifts.iter().map(|values| Shift {
            largest: values.iter().fold(0.0, |a: f32, x| a.max(*x)),
            boundaries: values.windows(2).map(|pair| pair[0].midpoint(pair[1])).collect(),
            points: codes.iter().map(|codes| codes.map(|code| values[usize::from(code)])).collect(),
        });
        Self { keys: codes.iter().map(key).collect(), near, shifts: shifts.collect() }
    }

    /// The point of least weighted error for the values `x` with a scale, and that error.
    pub(super) fn nearest(
        &self,
        shift: &Shift<G>,
        x: &[f32; G],
        weights: &[f32; G],
        scale: f32,
    ) -> (u16, f32) {
        let inverse = 1.0 / scale;
        let scaled = x.map(|x| x * inverse);
        let mut codes = [0; G];
        for bound in &shift.boundaries {
            for (code, x) in codes.iter_mut().zip(scaled) {
                *code += u16::from(x >= *bound);
            }
        }
        let num_codes = shift.boundaries.len() as u16 + 1;
        let key = codes.iter().rev().fold(0, |key, code| key * num_codes + code);
        let near = &self.near[usize::from(key)];
        let error_of = |index: u16| error(&shift.points[usize::from(index)], x, weights, scale);
        let mut best = (near[0], error_of(near[0]));
        // If the rounded values are a point, no other one is nearer.
        if self.keys[usize::from(near[0])] != key {
            for &index in &near[1..] {
                let error = error_of(index);
                if error < best.1 {
                    best = (index, error);
                }
            }
        }
        best
    }
}

/// `Σ w (scale · point - x)²`, in four sums, because the terms of one do not vectorise.
fn error<const G: usize>(point: &[f32; G], x: &[f32; G], weights: &[f32; G], scale: f32) -> f32 {
    let mut sums = [0.0; 4];
    let fours = point.as_chunks::<4>().0.iter().zip(x.as_chunks::<4>().0);
    for ((point, x), weights) in fours.zip(weights.as_chunks::<4>().0) {
        for lane in 0..4 {
            let difference = scale * point[lane] - x[lane];
            sums[lane] += weights[lane] * difference * difference;
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
