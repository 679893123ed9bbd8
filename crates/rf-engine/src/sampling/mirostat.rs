//! Mirostat (Basu et al., 2020): keeps the surprise of the text near a target.
//!
//! A token of probability p has the surprise −log₂ p. The limit μ starts at 2τ and moves against
//! the error of each token: μ ← μ − η (surprise − τ).

use super::candidates::Candidates;

/// The version of the algorithm, and its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct MirostatConfig {
    /// The version: with 1 the number of candidates is estimated from Zipf's law, with 2 they are
    /// the tokens with at most the surprise μ.
    pub version: MirostatVersion,
    /// The target τ, in bits.
    pub tau: f32,
    /// The learning rate η.
    pub eta: f32,
}

impl MirostatConfig {
    /// llama.cpp's default of [`tau`](Self::tau).
    pub const TAU: f32 = 5.0;
    /// llama.cpp's default of [`eta`](Self::eta).
    pub const ETA: f32 = 0.1;

    /// A version with llama.cpp's defaults.
    pub const fn new(version: MirostatVersion) -> Self {
        Self { version, tau: Self::TAU, eta: Self::ETA }
    }

    /// Sets [`tau`](Self::tau).
    #[must_use]
    pub const fn with_tau(mut self, tau: f32) -> Self {
        self.tau = tau;
        self
    }

    /// Sets [`eta`](Self::eta).
    #[must_use]
    pub const fn with_eta(mut self, eta: f32) -> Self {
        self.eta = eta;
        self
    }
}

/// A version of Mirostat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirostatVersion {
    /// The algorithm of the paper.
    V1,
    /// The simpler one of its authors, which estimates nothing.
    V2,
}

/// Tokens that version 1 estimates Zipf's exponent from.
const ESTIMATED_FROM: usize = 100;

#[derive(Debug, Clone)]
pub(super) struct Mirostat {
    config: MirostatConfig,
    mu: f64,
}

impl Mirostat {
    pub(super) fn new(config: MirostatConfig) -> Self {
        Self { config, mu: 2.0 * f64::from(config.tau) }
    }

    /// Keeps the candidates, draws one of them with `fraction`, and moves μ.
    pub(super) fn draw(&mut self, candidates: &mut Candidates, fraction: f64) -> Option<u32> {
        let probabilities = candidates.probabilities();
        let kept = match self.config.version {
            MirostatVersion::V1 => self.estimated_count(&probabilities),
            MirostatVersion::V2 => {
                probabilities.iter().take_while(|p| -p.log2() <= self.mu).count()
            }
        };
        candidates.truncate(kept.max(1));
        let id = candidates.draw(1.0, fraction)?;
        // The surprise of version 2 is that among the candidates; 1 keeps all in its measure, too,
        // because llama.cpp normalises after its cut.
        let surprise = -candidates.probability_of(id)?.log2();
        self.mu -= f64::from(self.config.eta) * (surprise - f64::from(self.config.tau));
        Some(id)
    }

    /// The number of candidates whose expected surprise is μ, under Zipf's law with the exponent
    /// that the most probable tokens suggest.
    fn estimated_count(&self, probabilities: &[f64]) -> usize {
        let (mut products, mut squares) = (0.0, 0.0);
        for (index, pair) in probabilities.windows(2).take(ESTIMATED_FROM - 1).enumerate() {
            let t = ((index + 2) as f64 / (index + 1) as f64).ln();
            let b = (pair[0] / pair[1]).ln();
            products += t * b;
            squares += t * t;
        }
        let exponent = products / squares;
        let epsilon = exponent - 1.0;
        let vocab_size = probabilities.len() as f64;
        let count =
            (epsilon * self.mu.exp2() / (1.0 - vocab_size.powf(-epsilon))).powf(1.0 / exponent);
        if count.is_finite() { count.max(1.0) as usize } else { probabilities.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(probabilities: &[f32]) -> Candidates {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        let mut candidates = Candidates::default();
        candidates.fill_top_k(&logits, 0);
        candidates
    }

    #[test]
    fn version_2_keeps_tokens_up_to_the_surprise_and_moves_it() {
        let config = MirostatConfig { version: MirostatVersion::V2, tau: 1.05, eta: 0.5 };
        let mut mirostat = Mirostat::new(config);
        // μ = 2.1: at most 2.1 bits, so ½ and ¼ stay. The last of them has a third of what is left.
        let mut left = candidates(&[0.5, 0.25, 0.125, 0.125]);
        assert_eq!(mirostat.draw(&mut left, 0.999), Some(1));
        let surprise = 3.0_f64.log2();
        assert!((mirostat.mu - (2.1 - 0.5 * (surprise - 1.05))).abs() < 1e-5);
    }

    #[test]
    fn the_most_probable_token_is_always_kept() {
        let config = MirostatConfig { version: MirostatVersion::V2, tau: 0.001, eta: 0.1 };
        let mut left = candidates(&[0.25; 4]);
        assert_eq!(Mirostat::new(config).draw(&mut left, 0.9), Some(0));
    }

    #[test]
    fn version_1_estimates_the_count_of_zipfs_law() {
        // Probabilities of Zipf's law with the exponent 1.5: the estimate is exact.
        let weights: Vec<f32> = (1..=1000).map(|rank| (rank as f32).powf(-1.5)).collect();
        let sum: f32 = weights.iter().sum();
        let probabilities: Vec<f64> = weights.iter().map(|w| f64::from(w / sum)).collect();
        let config = MirostatConfig { version: MirostatVersion::V1, tau: 3.0, eta: 0.1 };
        let mirostat = Mirostat::new(config);
        let expected = (0.5 * 64.0 / (1.0 - 1000_f64.powf(-0.5))).powf(1.0 / 1.5);
        assert_eq!(mirostat.estimated_count(&probabilities), expected as usize);
    }

    /// The mean surprise of many draws comes near the target, from above and from below.
    #[test]
    fn the_surprise_settles_at_the_target() {
        let weights: Vec<f32> = (1..=500).map(|rank| (rank as f32).powf(-1.1)).collect();
        for version in [MirostatVersion::V1, MirostatVersion::V2] {
            let mut mirostat = Mirostat::new(MirostatConfig { version, tau: 3.0, eta: 0.1 });
            let mut sum = 0.0;
            for step in 0..4000_u32 {
                let mut left = candidates(&weights);
                // A sequence that fills the unit interval evenly.
                let fraction = (f64::from(step) * 0.618_033_988_749_895).fract();
                let before = mirostat.mu;
                mirostat.draw(&mut left, fraction);
                sum += (before - mirostat.mu) / 0.1 + 3.0;
            }
            let mean = sum / 4000.0;
            assert!((mean - 3.0).abs() < 0.1, "{version:?}: {mean}");
        }
    }
}
