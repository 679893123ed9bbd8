//! The distribution of the text with drafts: a χ² test of sequences of tokens.

use rf_engine::sampling::SamplerConfig;
use rf_engine::{Engine, GenerateExtras, Outputs, SequenceInput, Speculation};

use crate::drafts::{engine, fixed, generate};
use crate::recurrent::shapes::WITH_MTP;
use crate::support::{ENGINE, VOCAB_SIZE, alone, greedy, prompt, tiny, with_sampler};

/// The tokens per sample.
const DRAWN: usize = 3;

/// Samples per test: enough to see the planted bias.
const SAMPLES: u64 = 600;

/// Samples are `DRAWN` of a few tokens after a prompt.
struct Experiment {
    engine: Engine,
    prompt: Vec<u32>,
    allowed: [u32; 4],
}

impl Experiment {
    /// Counts of samples, with a bias for one token, by the indices of their tokens, and the number
    /// of accepted tokens.
    fn counts(
        &mut self,
        speculation: &mut Speculation,
        bias: (u32, f32),
        samples: u64,
    ) -> (Vec<f64>, usize) {
        let allowed = self.allowed;
        let ruled_out = (0..VOCAB_SIZE as u32).filter(|id| !allowed.contains(id));
        let mut logit_bias: Vec<_> = ruled_out.map(|id| (id, f32::NEG_INFINITY)).collect();
        logit_bias.push(bias);
        let mut session = self.engine.session();
        let (mut counts, mut accepted) = (vec![0.0; allowed.len().pow(DRAWN as u32)], 0);
        for seed in 0..samples {
            let sampler = SamplerConfig::default()
                .with_temperature(1.0)
                .with_top_k(0)
                .with_top_p(1.0)
                .with_min_p(0.0)
                .with_logit_bias(logit_bias.clone())
                .with_seed(seed);
            let extras = GenerateExtras::default().with_speculation(&mut *speculation);
            let options = with_sampler(sampler, DRAWN);
            let outcome = generate(&mut self.engine, &mut session, &self.prompt, &options, extras);
            accepted += outcome.timings.accepted_tokens;
            let position = |id: &u32| allowed.iter().position(|allowed| allowed == id).unwrap();
            let cell = outcome.ids.iter().fold(0, |cell, id| cell * allowed.len() + position(id));
            counts[cell] += 1.0;
        }
        (counts, accepted)
    }

    /// The probabilities of the samples, from logits that are computed without drafts.
    fn probabilities(&mut self) -> Vec<f64> {
        let mut cells = vec![(self.prompt.clone(), 1.0)];
        for _ in 0..DRAWN {
            let mut next = Vec::new();
            for (ids, probability) in cells {
                let mut session = self.engine.session();
                let feed =
                    SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::Last };
                let logits = self.engine.forward(&mut [feed]).unwrap();
                let weights = self.allowed.map(|id| f64::from(logits[id as usize]).exp());
                let sum: f64 = weights.iter().sum();
                for (id, weight) in self.allowed.into_iter().zip(weights) {
                    next.push(([&ids[..], &[id]].concat(), probability * weight / sum));
                }
            }
            cells = next;
        }
        cells.into_iter().map(|(_, probability)| probability).collect()
    }

    /// Checks that drafts keep the distribution, and that the test would see a bias.
    fn check(mut self, mut speculation: Speculation) {
        let (allowed, probabilities) = (self.allowed, self.probabilities());
        let (unbiased, accepted) = self.counts(&mut speculation, (allowed[0], 0.0), SAMPLES);
        assert!(accepted > 10, "drafts are accepted: {accepted}");
        let (sum, limit) = chi_squared(&unbiased, &probabilities);
        assert!(sum < limit, "χ² = {sum}, limit {limit}");
        // A planted bias is found, for the token that is nearest to a probability of ½.
        let cells = probabilities.chunks(probabilities.len() / allowed.len());
        let marginals = allowed.into_iter().zip(cells.map(|cells| cells.iter().sum::<f64>()));
        let by_distance =
            |a: &(u32, f64), b: &(u32, f64)| (a.1 - 0.5).abs().total_cmp(&(b.1 - 0.5).abs());
        let (id, _) = marginals.min_by(by_distance).unwrap();
        let (biased, _) = self.counts(&mut speculation, (id, 1.0), SAMPLES);
        let (sum, limit) = chi_squared(&biased, &probabilities);
        assert!(sum > limit, "χ² = {sum}, limit {limit}");
    }
}

/// χ² over the cells that 5 samples or more are expected in, with the others as one, and its
/// 99.9 % quantile (Wilson and Hilferty's approximation).
fn chi_squared(counts: &[f64], probabilities: &[f64]) -> (f64, f64) {
    let total: f64 = counts.iter().sum();
    let expected = probabilities.iter().map(|probability| probability * total);
    let (large, small): (Vec<_>, Vec<_>) =
        counts.iter().copied().zip(expected).partition(|(_, expected)| *expected >= 5.0);
    let rest = small.iter().fold((0.0, 0.0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    let cells: Vec<_> = large.into_iter().chain((rest.1 >= 5.0).then_some(rest)).collect();
    let sum = cells.iter().map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    let degrees = (cells.len() - 1) as f64;
    let part = 2.0 / (9.0 * degrees);
    (sum, degrees * (1.0 - part + 3.09 * part.sqrt()).powi(3))
}

#[test]
fn drafts_of_the_text_keep_the_distribution() {
    let allowed = [3, 4, 5, 6];
    // Every three of the allowed tokens in a row, so that there always is a draft.
    let digits = |number: usize| [number / 16, number / 4 % 4, number % 4].map(|d| allowed[d]);
    let prompt = (0..40).flat_map(|index| digits(index * 37 % 64)).collect();
    let engine = engine(&tiny(), ENGINE);
    let speculation = Speculation::ngram(&engine, fixed(DRAWN - 2)).unwrap();
    Experiment { engine, prompt, allowed }.check(speculation);
}

#[test]
fn drafts_of_the_models_own_block_keep_the_distribution() {
    // One with attention only, and one with recurrent layers.
    for shape in [&WITH_MTP[0], &WITH_MTP[2]] {
        let options = ENGINE.with_sequences(2).with_speculates(true).with_mtp(true);
        let mut engine = shape.engine(1, options);
        // Tokens that follow each other, so that the block often guesses one of them.
        let prompt = prompt(3, 20);
        let mut allowed = Vec::new();
        for id in alone(&mut engine, &prompt, &greedy(100)).ids {
            if !allowed.contains(&id) {
                allowed.push(id);
            }
        }
        let allowed = allowed[..4].try_into().unwrap();
        let speculation = Speculation::mtp(&engine, fixed(DRAWN - 2)).unwrap();
        Experiment { engine, prompt, allowed }.check(speculation);
    }
}
