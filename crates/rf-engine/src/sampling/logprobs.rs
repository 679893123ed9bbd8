//! Log probabilities of tokens.

use super::candidates::Candidates;

/// The log probability of a token, and the most probable tokens at its position.
///
/// They are those of the model: before bias, penalties, constraint and temperature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// `(token id, log probability)` of the most probable tokens, in descending order; of equal
    /// ones, the lower id comes first.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprob {
    /// The log probability of `id` and the `count` best tokens, from the logits of all tokens. NaN
    /// counts as −∞.
    pub(crate) fn new(logits: &[f32], id: u32, count: usize) -> Self {
        let finite = || logits.iter().copied().filter(|logit| *logit > f32::NEG_INFINITY);
        let max = finite().fold(f32::NEG_INFINITY, f32::max);
        let log_sum = finite().map(|logit| f64::from(logit - max).exp()).sum::<f64>().ln();
        let logprob = |logit: f32| {
            let logit = if logit.is_nan() { f32::NEG_INFINITY } else { logit };
            (f64::from(logit) - f64::from(max) - log_sum) as f32
        };
        let mut top = Vec::new();
        if count > 0 {
            let mut candidates = Candidates::default();
            candidates.fill_top_k(logits, count);
            top.extend(candidates.in_order().map(|(id, logit)| (id, logprob(logit))));
        }
        let chosen = logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        Self { logprob: logprob(chosen), top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let probabilities = [0.2_f32, 0.5, 0.05, 0.25];
        let logits = probabilities.map(|p| p.ln() + 7.0);
        let logprob = TokenLogprob::new(&logits, 3, 2);
        assert!((logprob.logprob.exp() - 0.25).abs() < 1e-6);
        let top: Vec<u32> = logprob.top.iter().map(|(id, _)| *id).collect();
        assert_eq!(top, [1, 3]);
        // More than there are: all, in order.
        let all = TokenLogprob::new(&logits, 0, 9).top;
        assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3, 0, 2]);
        assert!((all.iter().map(|(_, p)| p.exp()).sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(TokenLogprob::new(&logits, 0, 0).top, []);
    }

    #[test]
    fn ruled_out_tokens_have_no_probability() {
        let logits = [f32::NAN, 1.0, f32::NEG_INFINITY];
        for id in [0, 2, 5] {
            let logprob = TokenLogprob::new(&logits, id, 3).logprob;
            assert!(logprob.is_infinite() && logprob < 0.0);
        }
        assert_eq!(TokenLogprob::new(&logits, 1, 3).top, [(1, 0.0)]);
    }
}
