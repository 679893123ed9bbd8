//! Attention of Gemma 4's audio encoder, on the host: each row sees a few rows before it, with
//! scores that depend on the distance, too. Its work is less than a hundredth of the matmuls'.

use crate::error::Error;
use crate::sound::kind::SoundBuilder;

/// Rows that a row sees: itself and those before it.
const SEEN: usize = 12;

/// Bound of the scores.
const SOFTCAP: f32 = 50.0;

pub(super) struct LocalAttention {
    heads: usize,
    head_dim: usize,
    /// Factors on the elements of each head of a query and of a key.
    query_scale: Vec<f32>,
    key_scale: Vec<f32>,
    /// The key of each distance, `[SEEN, heads · head_dim]`.
    distances: Vec<f32>,
}

impl LocalAttention {
    /// The attention of the layer whose tensors begin with a name.
    pub(super) fn new(b: &mut SoundBuilder<'_>, layer: &str) -> Result<Self, Error> {
        let t = b.settings.transformer;
        let (heads, head_dim) = (t.num_heads, t.head_dim);
        let width = heads * head_dim;
        let ln2 = std::f32::consts::LN_2;
        let query = 1.0 / (head_dim as f32).sqrt() / ln2;
        let key = 1.0_f32.exp().ln_1p() / ln2;
        let mut scaled = |name: &str, factor: f32| {
            let name = format!("{layer}.{name}.weight");
            let values = if b.weights.has(&name) {
                b.weights.values(&name, 1, head_dim)?
            } else {
                vec![1.0; head_dim]
            };
            Ok::<_, Error>(values.into_iter().map(|value| value * factor).collect())
        };
        let query_scale = scaled("per_dim_scale", query)?;
        let key_scale = scaled("per_dim_k_scale", key)?;
        let name = format!("{layer}.attn_k_rel.weight");
        let matrix = b.weights.values(&name, width, t.hidden_size)?;
        let distances = (0..SEEN).flat_map(|distance| {
            let position = sinusoid(distance, t.hidden_size);
            let rows = matrix.chunks_exact(t.hidden_size);
            rows.map(|row| dot(row, &position)).collect::<Vec<f32>>()
        });
        let distances = distances.collect();
        Ok(Self { heads, head_dim, query_scale, key_scale, distances })
    }

    /// The output for rows of queries, keys and values.
    pub(super) fn run(&self, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
        let width = self.heads * self.head_dim;
        let scale = |x: &[f32], factors: &[f32]| -> Vec<f32> {
            x.iter().zip(factors.iter().cycle()).map(|(x, factor)| x * factor).collect()
        };
        let (q, k) = (scale(q, &self.query_scale), scale(k, &self.key_scale));
        let mut out = vec![0.0; q.len()];
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let first = (row + 1).saturating_sub(SEEN);
            for head in 0..self.heads {
                let columns = head * self.head_dim..(head + 1) * self.head_dim;
                let query = &q[row * width..][columns.clone()];
                let score = |seen: usize| {
                    let key = &k[seen * width..][columns.clone()];
                    let distance = &self.distances[(row - seen) * width..][columns.clone()];
                    SOFTCAP * ((dot(query, key) + dot(query, distance)) / SOFTCAP).tanh()
                };
                let scores: Vec<f32> = (first..=row).map(score).collect();
                let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let weights: Vec<f32> = scores.iter().map(|s| (s - largest).exp()).collect();
                let sum: f32 = weights.iter().sum();
                let out = &mut out[columns.clone()];
                for (seen, weight) in (first..=row).zip(&weights) {
                    let values = &v[seen * width..][columns.clone()];
                    out.iter_mut().zip(values).for_each(|(out, v)| *out += weight / sum * v);
                }
            }
        }
        out
    }
}

/// The sines of a distance at falling frequencies, then the cosines.
fn sinusoid(distance: usize, width: usize) -> Vec<f32> {
    let half = width / 2;
    let step = 10_000_f64.ln() / (half.max(2) - 1) as f64;
    let angle = |i: usize| distance as f64 * (-step * i as f64).exp();
    let sines = (0..half).map(|i| angle(i).sin() as f32);
    let cosines = (0..width - half).map(|i| angle(i).cos() as f32);
    sines.chain(cosines).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sees_itself_and_eleven_before_it() {
        let attention = LocalAttention {
            heads: 1,
            head_dim: 1,
            query_scale: vec![1.0],
            key_scale: vec![1.0],
            distances: vec![0.0; SEEN],
        };
        let rows = 14;
        // Keys of 0 give equal weights, so the output is the mean of the values.
        let values: Vec<f32> = (0..rows).map(|i| i as f32).collect();
        let out = attention.run(&vec![1.0; rows], &vec![0.0; rows], &values);
        assert!((out[1] - 0.5).abs() < 1e-6);
        assert!((out[13] - 7.5).abs() < 1e-6);
    }
}
