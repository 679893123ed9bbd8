//! The candidate tokens, and the filters that remove them.

use std::cmp::Ordering;

/// First look of [`Candidates::keep_top_p`] when the candidates are unordered: most nuclei are
/// smaller.
const FIRST_ORDERED: usize = 128;

/// The id of the largest logit, the lowest among equals; `None` when all are NaN or negative
/// infinity.
pub(super) fn argmax(logits: &[f32]) -> Option<u32> {
    // The largest of each chunk is found in lanes that do not depend on each other. One comparison
    // after the other takes several times as long, and the rows of a step wait for each other.
    let (mut first, mut largest) = (None, f32::NEG_INFINITY);
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        // False for NaN.
        let larger = |logit: f32, than: f32| if logit > than { logit } else { than };
        let mut lanes = [f32::NEG_INFINITY; 16];
        let (vectors, rest) = chunk.as_chunks::<16>();
        // The lanes stay in registers only if no other code writes to them.
        for vector in vectors {
            for (lane, logit) in lanes.iter_mut().zip(vector) {
                *lane = larger(*logit, *lane);
            }
        }
        let all = rest.iter().chain(&lanes);
        let largest_here = all.fold(f32::NEG_INFINITY, |largest, logit| larger(*logit, largest));
        if largest_here > largest {
            (first, largest) = (Some(index * CHUNK), largest_here);
        }
    }
    let first = first?;
    // No logit is larger.
    let position = logits[first..].iter().position(|logit| *logit >= largest)?;
    u32::try_from(first + position).ok()
}

/// Logits that one look for the largest covers.
const CHUNK: usize = 1024;

/// A shrinking set of tokens. Filters before [`draw`](Self::draw) work on the probabilities at
/// temperature 1: `p = exp(logit − max) / Σ exp(logit − max)` over what is left.
///
/// Every step leaves an order that depends on ids and logits alone (id order, or one sorted by a
/// total order), so a draw does not depend on how a sort is implemented.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidates {
    items: Vec<Candidate>,
    /// `items` is in the order of [`Candidate::rank`].
    sorted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    id: u32,
    /// Finite.
    logit: f32,
}

impl Candidate {
    /// Most probable first, the lower id among equals.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that sorts take")]
    fn rank(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.id.cmp(&other.id))
    }
}

impl Candidates {
    /// Starts over with the `top_k` best of `logits`, sorted; with all of them in id order where
    /// `top_k` is 0 or covers the vocabulary.
    pub(super) fn fill_top_k(&mut self, logits: &[f32], top_k: usize) {
        self.items.clear();
        self.sorted = false;
        let usable =
            (0..).zip(logits).filter_map(|(id, &logit)| usable(logit).map(|logit| (id, logit)));
        if top_k == 0 || top_k >= logits.len() {
            self.items.extend(usable.map(|(id, logit)| Candidate { id, logit }));
            return;
        }
        // One pass with a rising bar: what is not above the worst of the k best so far cannot be
        // among them (an equal logit loses to the lower id before it). Small k passes over almost
        // all logits with one comparison each.
        let limit = top_k + top_k.max(64);
        let mut bar = f32::NEG_INFINITY;
        for (id, logit) in usable {
            if logit > bar {
                self.items.push(Candidate { id, logit });
                if self.items.len() == limit {
                    bar = self.truncate_to_best(top_k);
                }
            }
        }
        if self.items.len() > top_k {
            self.truncate_to_best(top_k);
        }
        self.items.sort_unstable_by(Candidate::rank);
        self.sorted = true;
    }

    /// Starts over with the best of the logits, sorted already.
    pub(super) fn fill_best(&mut self, best: &[rf_graph::Candidate]) {
        self.items.clear();
        let usable = best.iter().filter_map(|c| usable(c.logit).map(|logit| (c.id, logit)));
        self.items.extend(usable.map(|(id, logit)| Candidate { id, logit }));
        self.sorted = true;
    }

    /// `(id, logit)`, the most probable first.
    pub(super) fn in_order(&mut self) -> impl Iterator<Item = (u32, f32)> {
        self.order(0, self.items.len());
        self.items.iter().map(|item| (item.id, item.logit))
    }

    /// Locally typical sampling (Meister et al., 2022): orders by |−ln p − H|, H the entropy, and
    /// keeps the shortest prefix whose probability exceeds `typical_p`.
    pub(super) fn keep_typical(&mut self, typical_p: f32) {
        if typical_p >= 1.0 || self.items.len() <= 1 {
            return;
        }
        let max = self.max_logit();
        let total = self.total_weight(max);
        let log_total = total.ln();
        let surprise = |logit: f32| f64::from(max) - f64::from(logit) + log_total;
        let entropy: f64 = self
            .items
            .iter()
            .map(|item| weight(item.logit, max) / total * surprise(item.logit))
            .sum();
        let distance = |item: &Candidate| (surprise(item.logit) - entropy).abs();
        self.items
            .sort_unstable_by(|a, b| distance(a).total_cmp(&distance(b)).then_with(|| a.rank(b)));
        self.sorted = false;

        let target = f64::from(typical_p) * total;
        let mut cumulative = 0.0;
        let kept = self.items.iter().position(|item| {
            cumulative += weight(item.logit, max);
            cumulative > target
        });
        self.items.truncate(kept.map_or(self.items.len(), |last| last + 1));
    }

    /// Nucleus sampling (Holtzman et al., 2020): the shortest prefix in order of probability that
    /// sums to at least `top_p`, never empty.
    pub(super) fn keep_top_p(&mut self, top_p: f32) {
        if top_p >= 1.0 || self.items.len() <= 1 {
            return;
        }
        let max = self.max_logit();
        let target = f64::from(top_p) * self.total_weight(max);
        let mut ordered = if self.sorted { self.items.len() } else { 0 };
        let mut cumulative = 0.0;
        let mut kept = 0;
        while kept < self.items.len() {
            // Sorting a whole vocabulary for a nucleus of a few dozen tokens would dominate the
            // step.
            if kept == ordered {
                let next = (ordered * 4).max(FIRST_ORDERED).min(self.items.len());
                self.order(ordered, next);
                ordered = next;
            }
            cumulative += weight(self.items[kept].logit, max);
            kept += 1;
            if cumulative >= target {
                break;
            }
        }
        self.items.truncate(kept);
        self.sorted = true;
    }

    /// Keeps tokens with `p ≥ min_p · p_max`, that is `logit ≥ max + ln min_p`.
    pub(super) fn keep_min_p(&mut self, min_p: f32) {
        if min_p <= 0.0 {
            return;
        }
        let least = self.max_logit() + min_p.ln();
        self.items.retain(|item| item.logit >= least);
    }

    /// Top-nσ (Tang et al., 2024): keeps logits of at least the largest one minus `n` standard
    /// deviations of all.
    pub(super) fn keep_top_n_sigma(&mut self, n: f32) {
        if n <= 0.0 || self.items.len() <= 1 {
            return;
        }
        let count = self.items.len() as f64;
        let mean = self.items.iter().map(|item| f64::from(item.logit)).sum::<f64>() / count;
        let squares = self.items.iter().map(|item| (f64::from(item.logit) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / count).sqrt();
        let least = f64::from(self.max_logit()) - f64::from(n) * deviation;
        self.items.retain(|item| f64::from(item.logit) >= least);
    }

    /// XTC ("exclude top choices", p-e-w, 2024): of the tokens with a probability of at least
    /// `threshold`, removes all but the least probable one.
    pub(super) fn exclude_top_choices(&mut self, threshold: f32) {
        let probabilities = self.probabilities();
        let above = probabilities.iter().take_while(|p| **p >= f64::from(threshold)).count();
        self.items.drain(..above.saturating_sub(1));
    }

    /// Keeps the `count` most probable tokens.
    pub(super) fn keep_top_k(&mut self, count: usize) {
        if count > 0 && count < self.items.len() {
            self.order(0, self.items.len());
            self.sorted = true;
            self.items.truncate(count);
        }
    }

    /// Changes each logit.
    pub(super) fn adjust(&mut self, adjust: impl Fn(u32, f32) -> f32) {
        for item in &mut self.items {
            item.logit = usable(adjust(item.id, item.logit)).unwrap_or(f32::MIN);
        }
        self.sorted = false;
    }

    /// Divides the logits by a temperature above 0.
    pub(super) fn scale(&mut self, temperature: f32) {
        let max = self.max_logit();
        for item in &mut self.items {
            item.logit = ((item.logit - max) / temperature).max(f32::MIN);
        }
    }

    /// The temperature within `range` around `temperature` that the entropy selects (dynamic
    /// temperature): `low + (high − low) · (H / Hₘₐₓ)^exponent`.
    pub(super) fn dynamic_temperature(&self, temperature: f32, range: f32, exponent: f32) -> f32 {
        let (low, high) = ((temperature - range).max(0.0), temperature + range);
        if self.items.len() <= 1 {
            return temperature;
        }
        let max = self.max_logit();
        let total = self.total_weight(max);
        let entropy: f64 = self
            .items
            .iter()
            .map(|item| weight(item.logit, max) / total)
            .filter(|p| *p > 0.0)
            .map(|p| -p * p.ln())
            .sum();
        let share = entropy / (self.items.len() as f64).ln();
        low + (high - low) * (share as f32).powf(exponent)
    }

    /// The probabilities, the most probable token first.
    pub(super) fn probabilities(&mut self) -> Vec<f64> {
        if !self.sorted {
            self.order(0, self.items.len());
            self.sorted = true;
        }
        let max = self.max_logit();
        let total = self.total_weight(max);
        self.items.iter().map(|item| weight(item.logit, max) / total).collect()
    }

    /// The probability of a candidate.
    pub(super) fn probability_of(&self, id: u32) -> Option<f64> {
        let max = self.max_logit();
        let item = self.items.iter().find(|item| item.id == id)?;
        Some(weight(item.logit, max) / self.total_weight(max))
    }

    /// Keeps the first `count` tokens.
    pub(super) fn truncate(&mut self, count: usize) {
        self.items.truncate(count);
    }

    /// The most probable candidate.
    pub(super) fn best(&self) -> Option<u32> {
        self.items.iter().min_by(|a, b| a.rank(b)).map(|item| item.id)
    }

    /// The candidate in whose share of the probability at `temperature` (above 0) the `fraction` in
    /// `[0, 1)` falls.
    pub(super) fn draw(&self, temperature: f32, fraction: f64) -> Option<u32> {
        let max = self.max_logit();
        // Scaled after the subtraction: at a tiny temperature logit / temperature would overflow.
        let weight = |item: &Candidate| f64::from(((item.logit - max) / temperature).exp());
        let target = fraction * self.items.iter().map(weight).sum::<f64>();
        let mut cumulative = 0.0;
        let mut chosen = None;
        for item in &self.items {
            let weight = weight(item);
            if weight > 0.0 {
                // Kept when rounding leaves `target` at the very end of the sum.
                chosen = Some(item.id);
            }
            cumulative += weight;
            if cumulative > target {
                break;
            }
        }
        chosen
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.items.capacity()
    }

    fn max_logit(&self) -> f32 {
        match self.items.first() {
            Some(first) if self.sorted => first.logit,
            _ => self.items.iter().map(|item| item.logit).fold(f32::NEG_INFINITY, f32::max),
        }
    }

    fn total_weight(&self, max: f32) -> f64 {
        self.items.iter().map(|item| weight(item.logit, max)).sum()
    }

    /// Drops all but the `count` best (there are more) and returns the worst of those.
    fn truncate_to_best(&mut self, count: usize) -> f32 {
        let (_, worst, _) = self.items.select_nth_unstable_by(count - 1, Candidate::rank);
        let worst = worst.logit;
        self.items.truncate(count);
        worst
    }

    /// Puts the items that belong at `from..to` there, sorted; the first `from` already are in
    /// place.
    fn order(&mut self, from: usize, to: usize) {
        let rest = &mut self.items[from..];
        let count = to - from;
        if count < rest.len() {
            rest.select_nth_unstable_by(count - 1, Candidate::rank);
        }
        rest[..count].sort_unstable_by(Candidate::rank);
    }
}

/// Probability relative to the most probable token.
fn weight(logit: f32, max: f32) -> f64 {
    f64::from((logit - max).exp())
}

/// The logit as a finite number; `None` rules the token out. Positive infinity becomes the largest
/// finite number, because differences of infinities are NaN; adding 0 turns −0 into +0, which
/// [`f32::total_cmp`] would tell apart.
fn usable(logit: f32) -> Option<f32> {
    (logit > f32::NEG_INFINITY).then(|| logit.min(f32::MAX) + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of the given probabilities, all of them kept, in id order.
    fn with_probabilities(probabilities: &[f32]) -> Candidates {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        filled(&logits, 0)
    }

    fn filled(logits: &[f32], top_k: usize) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.fill_top_k(logits, top_k);
        candidates
    }

    fn ids(candidates: &Candidates) -> Vec<u32> {
        candidates.items.iter().map(|item| item.id).collect()
    }

    /// Different logits without an order, the same everywhere.
    fn scattered(count: u32) -> Vec<f32> {
        (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 * 1e-6).collect()
    }

    #[test]
    fn argmax_takes_the_lowest_id_of_equals_and_passes_over_nan() {
        assert_eq!(argmax(&[f32::NAN, 1.0, 3.0, 3.0, f32::NAN]), Some(2));
        assert_eq!(argmax(&[0.0, f32::INFINITY]), Some(1));
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(argmax(&[]), None);
        let mut logits = scattered(5000);
        for id in [4999, 4321, 2048, 2047, 16, 3] {
            // The last one is found first, and each lower id with the same logit instead of it.
            logits[id] = 1000.0;
            assert_eq!(argmax(&logits), Some(id as u32));
        }
    }

    #[test]
    fn top_k_keeps_the_largest_in_order() {
        let candidates = filled(&[1.0, 5.0, 3.0, 4.0, 2.0], 3);
        assert_eq!(ids(&candidates), [1, 3, 2]);
        assert_eq!(ids(&filled(&[2.0, 1.0], 2)), [0, 1]);
        assert_eq!(ids(&filled(&[1.0, 2.0], 9)), [0, 1]); // all: id order
        assert_eq!(ids(&filled(&[1.0, 2.0], 0)), [0, 1]);
    }

    #[test]
    fn top_k_of_equals_keeps_the_lowest_ids() {
        assert_eq!(ids(&filled(&[0.0; 1000], 3)), [0, 1, 2]);
        assert_eq!(ids(&filled(&[0.0, -0.0, 0.0, 1.0], 3)), [3, 0, 1]);
    }

    #[test]
    fn top_k_in_one_pass_equals_a_full_sort() {
        let logits = scattered(5000);
        let mut sorted: Vec<u32> = (0..5000).collect();
        sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        for k in [1, 2, 40, 63, 64, 65, 1000, 4999] {
            assert_eq!(ids(&filled(&logits, k)), sorted[..k], "k = {k}");
        }
    }

    #[test]
    fn tokens_of_nan_and_negative_infinity_are_never_candidates() {
        let logits = [f32::NAN, 1.0, f32::NEG_INFINITY, 2.0, f32::INFINITY];
        assert_eq!(ids(&filled(&logits, 0)), [1, 3, 4]);
        assert_eq!(ids(&filled(&logits, 4)), [4, 3, 1]);
        assert!(ids(&filled(&[f32::NAN; 3], 2)).is_empty());
    }

    #[test]
    fn top_p_keeps_the_shortest_prefix_that_reaches_it() {
        let kept = |top_p| {
            let mut candidates = with_probabilities(&[0.1, 0.5, 0.15, 0.25]);
            candidates.keep_top_p(top_p);
            ids(&candidates)
        };
        assert_eq!(kept(0.0), [1]);
        assert_eq!(kept(0.49), [1]);
        assert_eq!(kept(0.51), [1, 3]);
        assert_eq!(kept(0.74), [1, 3]);
        assert_eq!(kept(0.76), [1, 3, 2]);
        assert_eq!(kept(0.95), [1, 3, 2, 0]);
        assert_eq!(kept(1.0), [0, 1, 2, 3]); // off
    }

    #[test]
    fn top_p_without_top_k_equals_top_p_of_the_sorted_vocabulary() {
        let logits = scattered(5000);
        for top_p in [0.001, 0.05, 0.3, 0.9, 0.999] {
            let mut unordered = filled(&logits, 0);
            unordered.keep_top_p(top_p);
            let mut ordered = filled(&logits, 0);
            ordered.order(0, 5000);
            ordered.sorted = true;
            ordered.keep_top_p(top_p);
            assert_eq!(ids(&unordered), ids(&ordered), "p = {top_p}");
        }
    }

    #[test]
    fn min_p_is_relative_to_the_most_probable() {
        let kept = |min_p| {
            let mut candidates = with_probabilities(&[0.04, 0.5, 0.2, 0.26]);
            candidates.keep_min_p(min_p);
            ids(&candidates)
        };
        assert_eq!(kept(0.0), [0, 1, 2, 3]);
        assert_eq!(kept(0.07), [0, 1, 2, 3]);
        assert_eq!(kept(0.09), [1, 2, 3]);
        assert_eq!(kept(0.45), [1, 3]);
        assert_eq!(kept(1.0), [1]);
    }

    #[test]
    fn typical_prefers_average_surprise_over_the_most_probable() {
        // H = 1.23 nat; −ln p: 0.51, then 2.30. Distances: 0.72 for id 0, 1.07 for the rest.
        let mut candidates = with_probabilities(&[0.6, 0.1, 0.1, 0.1, 0.1]);
        candidates.keep_typical(0.55);
        assert_eq!(ids(&candidates), [0]);
        // H = 1.60 nat; −ln p: 1.05, 1.61, 1.61, 1.90, 3.00, 3.00: those of 0.2 are nearest to H.
        let mut candidates = with_probabilities(&[0.35, 0.2, 0.2, 0.15, 0.05, 0.05]);
        candidates.keep_typical(0.39);
        assert_eq!(ids(&candidates), [1, 2]);
        candidates.keep_typical(1.0);
        assert_eq!(ids(&candidates), [1, 2]);
    }

    #[test]
    fn draw_follows_the_cumulative_probability() {
        let candidates = with_probabilities(&[0.5, 0.3, 0.2]);
        let drawn = |fraction| candidates.draw(1.0, fraction);
        assert_eq!(drawn(0.0), Some(0));
        assert_eq!(drawn(0.499), Some(0));
        assert_eq!(drawn(0.501), Some(1));
        assert_eq!(drawn(0.799), Some(1));
        assert_eq!(drawn(0.801), Some(2));
        assert_eq!(drawn(1.0 - f64::EPSILON / 2.0), Some(2));
        assert_eq!(Candidates::default().draw(1.0, 0.5), None);
    }

    #[test]
    fn temperature_sharpens_and_flattens() {
        // p ∝ exp(logit / T): 0.8 : 0.2 becomes 16 : 1 at T = 0.5 and 2 : 1 at T = 2.
        let candidates = with_probabilities(&[0.8, 0.2]);
        assert_eq!(candidates.draw(0.5, 0.94), Some(0)); // 16/17 = 0.941
        assert_eq!(candidates.draw(0.5, 0.95), Some(1));
        assert_eq!(candidates.draw(2.0, 0.66), Some(0)); // 2/3 = 0.667
        assert_eq!(candidates.draw(2.0, 0.67), Some(1));
        assert_eq!(candidates.draw(f32::MIN_POSITIVE, 0.999), Some(0));
    }

    #[test]
    fn extreme_logits_stay_drawable() {
        let candidates = filled(&[f32::MAX, f32::MIN, f32::INFINITY], 0);
        for temperature in [f32::MIN_POSITIVE, 1.0, f32::MAX] {
            let drawn = candidates.draw(temperature, 0.4);
            assert!(matches!(drawn, Some(0 | 1)), "{drawn:?} at {temperature}");
        }
        let mut candidates = candidates;
        candidates.keep_typical(0.9);
        candidates.keep_top_p(0.9);
        candidates.keep_min_p(0.1);
        assert_eq!(ids(&candidates), [0, 2]);
    }
}
