//! Sampling of the next token from logits: the sampler chain of llama.cpp, in its order and with
//! its defaults.
//!
//! logit bias → penalties → DRY → top-nσ → top-k → typical → top-p → min-p → XTC → temperature →
//! draw
//!
//! [`SamplerConfig::samplers`] changes the order. Mirostat takes the place of all of them but the
//! bias and the temperature.
//!
//! Each step sees only what the step before it kept, so the order is part of the meaning: top-p
//! after top-k takes its share of the mass of the *k* best, not of the whole vocabulary.
//!
//! Start reading at [`Sampler::sample`]; [`SamplerConfig`] says what each parameter means and which
//! value turns it off.
//!
//! # Determinism
//!
//! The same configuration, seed, logits and accepted tokens choose the same tokens. Randomness is
//! PCG-XSL-RR 128/64 (`pcg64` of the PCG family), state = the seed, stream = a constant, one
//! 64-bit output for each token drawn, of which the upper 53 bits make the fraction in `[0, 1)`.
//! That stream is the same on every platform and is held by a test with the published vectors.
//! Greedy choices draw nothing.
//!
//! ```
//! use rf_engine::sampling::{Sampler, SamplerConfig};
//!
//! let mut sampler = Sampler::new(SamplerConfig::default().with_seed(1))?;
//! let id = sampler.sample(&[0.1, 9.0, -3.0])?;
//! sampler.accept(id);
//! assert_eq!(id, 1); // min-p 0.05 removes all others
//! # Ok::<(), rf_engine::sampling::Error>(())
//! ```

mod candidates;
mod config;
mod dry;
mod error;
mod kind;
mod logprobs;
mod mirostat;
mod penalties;

use std::hash::{BuildHasher, RandomState};

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use rf_graph::Candidate;

use self::candidates::Candidates;
use self::dry::Dry;
use self::mirostat::Mirostat;
use self::penalties::Penalties;

pub use self::config::SamplerConfig;
pub use self::dry::DryConfig;
pub use self::error::Error;
pub use self::kind::SamplerKind;
pub use self::logprobs::TokenLogprob;
pub use self::mirostat::{MirostatConfig, MirostatVersion};

/// The PCG stream (its odd increment, halved) that every sampler draws from: the digits of π after
/// the point, in hexadecimal. Changing it changes every seeded text.
const PCG_STREAM: u128 = 0x243f_6a88_85a3_08d3_1319_8a2e_0370_7344;

/// The sampler chain of one sequence: parameters, random stream, and the window of the penalties.
///
/// Buffers are kept between calls: once they have grown to the vocabulary, sampling does not
/// allocate.
#[derive(Debug, Clone)]
pub struct Sampler {
    config: SamplerConfig,
    seed: u64,
    rng: Pcg64,
    penalties: Penalties,
    dry: Dry,
    mirostat: Option<Mirostat>,
    /// The samplers that can change something, in their order. The temperature is among them.
    chain: Vec<SamplerKind>,
    adjusted: Vec<f32>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler with an empty penalty window at the start of its random stream.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] as [`SamplerConfig::validate`] finds it.
    pub fn new(config: SamplerConfig) -> Result<Self, Error> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(random_seed);
        let (penalties, dry) = (Penalties::new(&config), Dry::new(&config.dry));
        let mirostat = config.mirostat.map(Mirostat::new);
        let is_active = |kind: &SamplerKind| match kind {
            _ if mirostat.is_some() => *kind == SamplerKind::Temperature,
            SamplerKind::Penalties => penalties.is_active(),
            SamplerKind::Dry => dry.is_active(),
            SamplerKind::TopNSigma => config.top_n_sigma > 0.0,
            SamplerKind::TopK => config.top_k > 0,
            SamplerKind::Typical => config.typical_p < 1.0,
            SamplerKind::TopP => config.top_p < 1.0,
            SamplerKind::MinP => config.min_p > 0.0,
            SamplerKind::Xtc => config.xtc_probability > 0.0 && config.xtc_threshold <= 0.5,
            SamplerKind::Temperature => true,
        };
        let chain = config.samplers.iter().copied().filter(is_active).collect();
        Ok(Self {
            seed,
            rng: rng_from(seed),
            penalties,
            dry,
            mirostat,
            chain,
            adjusted: Vec::new(),
            candidates: Candidates::default(),
            config,
        })
    }

    /// Chooses the next token from `logits` (one per token of the vocabulary, so `logits[id]`).
    ///
    /// NaN counts as negative infinity: such a token is never chosen. At temperature 0 or below the
    /// best of what the chain keeps is chosen, the lowest id among equals. The token is not fed
    /// back: call [`accept`](Self::accept) with what was really appended to the sequence.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyLogits`] when there are none, [`Error::NoCandidates`] when all of them are NaN
    /// or negative infinity (after the logit bias).
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, Error> {
        if logits.is_empty() {
            return Err(Error::EmptyLogits);
        }
        let vocab_size = logits.len();
        let no_candidates = Error::NoCandidates { vocab_size };
        let first = self.num_penalties();
        let logits = if self.config.logit_bias.is_empty() && first == 0 {
            logits
        } else {
            self.adjusted.clear();
            self.adjusted.extend_from_slice(logits);
            add_bias(&self.config.logit_bias, &mut self.adjusted);
            for kind in &self.chain[..first] {
                if *kind == SamplerKind::Penalties {
                    self.penalties.apply(&mut self.adjusted);
                    continue;
                }
                for (id, penalty) in self.dry.penalties() {
                    if let Some(logit) = self.adjusted.get_mut(id as usize) {
                        *logit -= penalty;
                    }
                }
            }
            &self.adjusted
        };
        if self.takes_the_best(first) {
            return candidates::argmax(logits).ok_or(no_candidates);
        }
        let is_top_k = self.chain.get(first) == Some(&SamplerKind::TopK);
        self.candidates.fill_top_k(logits, if is_top_k { self.config.top_k } else { 0 });
        self.choose(first + usize::from(is_top_k)).ok_or(no_candidates)
    }

    /// How many penalties the chain begins with. They look at all logits.
    fn num_penalties(&self) -> usize {
        let is_penalty =
            |kind: &&SamplerKind| matches!(kind, SamplerKind::Penalties | SamplerKind::Dry);
        self.chain.iter().take_while(is_penalty).count()
    }

    /// Returns true if the best token is the choice of the samplers from `first` on: nothing is
    /// drawn, and none of them can drop or demote it.
    fn takes_the_best(&self, first: usize) -> bool {
        let keeps = |kind: &SamplerKind| match kind {
            SamplerKind::Penalties | SamplerKind::Dry | SamplerKind::Typical | SamplerKind::Xtc => {
                false
            }
            SamplerKind::TopNSigma
            | SamplerKind::TopK
            | SamplerKind::TopP
            | SamplerKind::MinP
            | SamplerKind::Temperature => true,
        };
        self.is_greedy() && self.mirostat.is_none() && self.chain[first..].iter().all(keeps)
    }

    /// Returns true if the temperature takes the most probable token.
    fn is_greedy(&self) -> bool {
        self.config.is_greedy() && self.chain.contains(&SamplerKind::Temperature)
    }

    /// How many of the most probable tokens [`sample_best`](Self::sample_best) needs to choose what
    /// [`sample`](Self::sample) would; `None` if it takes all of them.
    pub(crate) fn best_needed(&self) -> Option<usize> {
        if !self.config.logit_bias.is_empty() || self.num_penalties() > 0 {
            return None;
        }
        if self.takes_the_best(0) {
            return Some(1);
        }
        let is_top_k = self.chain.first() == Some(&SamplerKind::TopK);
        is_top_k.then_some(self.config.top_k)
    }

    /// As [`sample`](Self::sample) from the tokens that a backend chose: as many of the best as
    /// [`best_needed`](Self::best_needed) says, or all, the most probable first.
    ///
    /// # Errors
    ///
    /// The errors of [`sample`](Self::sample).
    pub(crate) fn sample_best(&mut self, best: &[Candidate]) -> Result<u32, Error> {
        if best.is_empty() {
            return Err(Error::EmptyLogits);
        }
        self.candidates.fill_best(best);
        // They are the candidates of top-k already, or the best one.
        let first = usize::from(self.chain.first() == Some(&SamplerKind::TopK));
        self.choose(first).ok_or(Error::NoCandidates { vocab_size: best.len() })
    }

    /// Applies the samplers from `first` on, and draws.
    fn choose(&mut self, first: usize) -> Option<u32> {
        let (config, candidates) = (&self.config, &mut self.candidates);
        let mut temperature = 1.0;
        for (index, kind) in self.chain.iter().enumerate().skip(first) {
            match kind {
                SamplerKind::Penalties => {
                    candidates.adjust(|id, logit| self.penalties.adjusted(id, logit));
                }
                SamplerKind::Dry => {
                    let penalties = self.dry.penalties();
                    candidates.adjust(|id, logit| logit - penalties.get(&id).unwrap_or(&0.0));
                }
                SamplerKind::TopNSigma => candidates.keep_top_n_sigma(config.top_n_sigma),
                SamplerKind::TopK => candidates.keep_top_k(config.top_k),
                SamplerKind::Typical => candidates.keep_typical(config.typical_p),
                SamplerKind::TopP => candidates.keep_top_p(config.top_p),
                SamplerKind::MinP => candidates.keep_min_p(config.min_p),
                SamplerKind::Xtc => {
                    if unit_interval(self.rng.next_u64()) < f64::from(config.xtc_probability) {
                        candidates.exclude_top_choices(config.xtc_threshold);
                    }
                }
                SamplerKind::Temperature if config.is_greedy() => candidates.keep_top_k(1),
                SamplerKind::Temperature => {
                    let mut own = config.temperature;
                    if config.dynatemp_range > 0.0 {
                        let (range, exponent) = (config.dynatemp_range, config.dynatemp_exponent);
                        own = candidates.dynamic_temperature(own, range, exponent);
                    }
                    if own <= 0.0 {
                        candidates.keep_top_k(1);
                    } else if index + 1 == self.chain.len() && self.mirostat.is_none() {
                        temperature = own;
                    } else {
                        candidates.scale(own);
                    }
                }
            }
        }
        if self.is_greedy() && self.mirostat.is_none() {
            return self.candidates.best();
        }
        // Drawn even when one candidate is left, so that the nth token always uses the nth output.
        let fraction = unit_interval(self.rng.next_u64());
        match &mut self.mirostat {
            Some(mirostat) => mirostat.draw(&mut self.candidates, fraction),
            None => self.candidates.draw(temperature, fraction),
        }
    }

    /// Notes that `id` was appended to the sequence, for the penalties. As in llama.cpp prompt
    /// tokens count too: feed them in order before the first [`sample`](Self::sample).
    pub fn accept(&mut self, id: u32) {
        self.penalties.accept(id);
        self.dry.accept(id);
    }

    /// The seed in use: the configured one, or the one drawn in its place, which repeats this text
    /// when it is configured.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

fn add_bias(bias: &[(u32, f32)], logits: &mut [f32]) {
    for &(id, bias) in bias {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit += bias;
        }
    }
}

/// A fraction in `[0, 1)` from the upper 53 bits: as many as an `f64` holds exactly.
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

// Not `seed_from_u64`: rand_core leaves itself room to change how that expands a seed.
fn rng_from(seed: u64) -> Pcg64 {
    Pcg64::new(u128::from(seed), PCG_STREAM)
}

/// A random seed. The standard library keys `RandomState` from the entropy of the system, which
/// saves a dependency. 32 bits are easy to retype and exact in JSON.
fn random_seed() -> u64 {
    RandomState::new().hash_one("seed") >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nothing filters and the temperature leaves the distribution as it is.
    fn plain(seed: u64) -> SamplerConfig {
        SamplerConfig {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: Some(seed),
            ..SamplerConfig::default()
        }
    }

    fn draws(config: SamplerConfig, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(config).unwrap();
        (0..count).map(|_| sampler.sample(logits).unwrap()).collect()
    }

    proptest! {
        /// A backend that hands over only the best tokens changes no choice.
        #[test]
        fn the_best_tokens_are_enough(
            logits in prop::collection::vec(-20.0_f32..20.0, 1..300),
            top_k in 1_usize..60,
            temperature in prop::sample::select(vec![0.0_f32, 0.7, 1.5]),
            typical_p in prop::sample::select(vec![0.5_f32, 1.0]),
        ) {
            let config = SamplerConfig { temperature, top_k, typical_p, seed: Some(7), ..SamplerConfig::default() };
            let (mut whole, mut best) =
                (Sampler::new(config.clone()).unwrap(), Sampler::new(config).unwrap());
            let mut order: Vec<_> =
                (0..).zip(&logits).map(|(id, logit)| Candidate { id, logit: *logit }).collect();
            order.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
            order.truncate(best.best_needed().unwrap());
            for _ in 0..5 {
                prop_assert_eq!(whole.sample(&logits).unwrap(), best.sample_best(&order).unwrap());
            }
        }
    }

    #[test]
    fn penalties_and_biases_take_all_logits() {
        let needed = |config: SamplerConfig| Sampler::new(config).unwrap().best_needed();
        let greedy = SamplerConfig { temperature: 0.0, ..SamplerConfig::default() };
        assert_eq!(needed(greedy.clone()), Some(1));
        assert_eq!(needed(SamplerConfig { typical_p: 0.9, top_k: 0, ..greedy.clone() }), None);
        assert_eq!(needed(SamplerConfig { logit_bias: vec![(3, 1.0)], ..greedy.clone() }), None);
        assert_eq!(needed(SamplerConfig { repeat_penalty: 1.1, ..greedy }), None);
        assert_eq!(needed(SamplerConfig { top_k: 40, ..SamplerConfig::default() }), Some(40));
    }

    fn logits_of(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    #[test]
    fn the_generator_is_the_published_pcg64() {
        // First outputs of the reference implementation's demo, seed 42, stream 54.
        let mut rng = Pcg64::new(42, 54);
        let expected = [0x86b1_da1d_7206_2b68, 0x1304_aa46_c985_3d39, 0xa367_0e9e_0dd5_0358_u64];
        assert_eq!([(); 3].map(|()| rng.next_u64()), expected);
    }

    #[test]
    fn the_random_stream_of_a_seed_never_changes() {
        // 16 equally likely tokens: the upper four bits of each output, which another
        // implementation of the generator gave.
        let ids = draws(plain(1234), &[0.0; 16], 16);
        assert_eq!(ids, [14, 13, 11, 2, 13, 4, 8, 14, 15, 2, 1, 5, 14, 9, 10, 5]);
    }

    #[test]
    fn frequencies_match_the_distribution() {
        const COUNT: usize = 100_000;
        let probabilities = [0.4, 0.3, 0.2, 0.07, 0.03];
        let ids = draws(plain(7), &logits_of(&probabilities), COUNT);
        let mut chi_squared = 0.0;
        for (id, &probability) in (0..).zip(&probabilities) {
            let expected = COUNT as f64 * f64::from(probability);
            let seen = ids.iter().filter(|&&drawn| drawn == id).count() as f64;
            chi_squared += (seen - expected).powi(2) / expected;
        }
        assert!(chi_squared < 18.47, "χ² = {chi_squared}"); // 99.9 % quantile, 4 degrees of freedom
    }

    #[test]
    fn same_seed_same_ids_and_other_seed_other_ids() {
        let logits = [0.0; 1000];
        assert_eq!(draws(plain(3), &logits, 50), draws(plain(3), &logits, 50));
        assert_ne!(draws(plain(3), &logits, 50), draws(plain(4), &logits, 50));
    }

    #[test]
    fn an_unset_seed_is_drawn_reported_and_repeats_the_text() {
        let logits = [0.0; 1000];
        let mut sampler = Sampler::new(SamplerConfig { seed: None, ..plain(0) }).unwrap();
        let ids: Vec<u32> = (0..50).map(|_| sampler.sample(&logits).unwrap()).collect();
        assert_eq!(draws(plain(sampler.seed()), &logits, 50), ids);
        let seeds: Vec<u64> =
            (0..4).map(|_| Sampler::new(SamplerConfig::default()).unwrap().seed()).collect();
        assert!(seeds.iter().any(|&seed| seed != seeds[0]), "{seeds:?}");
    }

    #[test]
    fn a_seeded_sequence_is_repeatable_with_penalties() {
        let run = || {
            let config = SamplerConfig { presence_penalty: 50.0, ..plain(11) };
            let mut sampler = Sampler::new(config).unwrap();
            let ids: Vec<u32> = (0..20)
                .map(|_| {
                    let id = sampler.sample(&[0.0; 30]).unwrap();
                    sampler.accept(id);
                    id
                })
                .collect();
            ids
        };
        let first = run();
        assert_eq!(run(), first);
        let mut unique = first.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 20, "a penalty of 50 forbids repetition");
    }

    #[test]
    fn greedy_takes_the_best_after_bias_and_penalties() {
        let mut sampler = Sampler::new(SamplerConfig {
            repeat_penalty: 2.0,
            logit_bias: vec![(2, f32::NEG_INFINITY), (1, 0.5), (99, 1.0)],
            ..SamplerConfig::greedy()
        })
        .unwrap();
        let logits = [3.0, 2.8, 9.0, 2.0];
        assert_eq!(sampler.sample(&logits), Ok(1)); // 2.8 + 0.5 beats 3.0
        sampler.accept(1);
        assert_eq!(sampler.sample(&logits), Ok(0)); // 3.3 / 2 does not
        sampler.accept(0);
        assert_eq!(sampler.sample(&logits), Ok(3));
    }

    #[test]
    fn the_bias_comes_before_the_penalties() {
        let mut sampler = Sampler::new(SamplerConfig {
            repeat_penalty: 2.0,
            logit_bias: vec![(0, 4.0)],
            ..SamplerConfig::greedy()
        })
        .unwrap();
        sampler.accept(0);
        // (2 + 4) / 2 = 3 against 4; penalised before the bias it would be 2 / 2 + 4 = 5.
        assert_eq!(sampler.sample(&[2.0, 4.0]), Ok(1));
    }

    #[test]
    fn top_p_takes_its_share_of_what_top_k_left() {
        // Of the whole vocabulary the first two make 0.5, so top-p 0.59 alone keeps three tokens;
        // of the two that top-k 2 leaves, the first makes 0.6 / (0.6 + 0.4), so it alone is enough
        // for 0.59.
        let logits = logits_of(&[0.3, 0.2, 0.15, 0.15, 0.1, 0.1]);
        let largest = |config| draws(config, &logits, 500).into_iter().max();
        let top_p = SamplerConfig { top_p: 0.59, ..plain(5) };
        assert_eq!(largest(top_p.clone()), Some(2));
        assert_eq!(largest(SamplerConfig { top_k: 2, ..top_p }), Some(0));
    }

    #[test]
    fn typical_comes_before_top_p_and_top_p_before_min_p() {
        let logits = logits_of(&[0.35, 0.2, 0.2, 0.15, 0.05, 0.05]);
        // Typical leaves ids 1 and 2, top-p the first of them; the other way round it would be id
        // 0.
        let config = SamplerConfig { typical_p: 0.39, top_p: 0.45, ..plain(5) };
        assert_eq!(draws(config, &logits, 200), [1; 200]);

        // Top-p keeps three (0.9 of 1); after min-p, which leaves those three, two (0.8 of 0.9).
        let logits = logits_of(&[0.5, 0.3, 0.1, 0.06, 0.04]);
        let config = SamplerConfig { top_p: 0.85, min_p: 0.15, ..plain(5) };
        assert_eq!(draws(config, &logits, 200).into_iter().max(), Some(2));
    }

    #[test]
    fn temperature_comes_after_the_filters() {
        // At temperature 1 min-p 0.2 keeps only the first; at 100, applied first, it would keep
        // both.
        let config = SamplerConfig { temperature: 100.0, min_p: 0.2, ..plain(5) };
        assert_eq!(draws(config, &logits_of(&[0.9, 0.1]), 200), [0; 200]);
    }

    #[test]
    fn typical_can_drop_the_best_even_when_greedy() {
        let logits = logits_of(&[0.35, 0.2, 0.2, 0.15, 0.05, 0.05]);
        let config = SamplerConfig { typical_p: 0.39, ..SamplerConfig::greedy() };
        assert_eq!(draws(config, &logits, 1), [1]);
    }

    #[test]
    fn nothing_to_choose_from_is_an_error() {
        for config in [SamplerConfig::greedy(), SamplerConfig::default(), plain(1)] {
            let mut sampler = Sampler::new(config).unwrap();
            assert_eq!(sampler.sample(&[]), Err(Error::EmptyLogits));
            let impossible = [f32::NAN, f32::NEG_INFINITY];
            assert_eq!(sampler.sample(&impossible), Err(Error::NoCandidates { vocab_size: 2 }));
            assert_eq!(sampler.sample(&[f32::NAN, 0.0]), Ok(1));
        }
    }

    #[test]
    fn sampling_does_not_grow_its_buffers_after_the_first_token() {
        let config = SamplerConfig { frequency_penalty: 0.1, top_k: 0, ..SamplerConfig::default() };
        let mut sampler = Sampler::new(config).unwrap();
        let logits: Vec<f32> = (0..4096).map(|i| (i % 61) as f32 * 0.1).collect();
        let mut buffers = None;
        for _ in 0..200 {
            let id = sampler.sample(&logits).unwrap();
            sampler.accept(id);
            let now = (sampler.adjusted.as_ptr(), sampler.candidates.capacity());
            assert_eq!(*buffers.get_or_insert(now), now);
        }
    }

    fn any_config() -> impl Strategy<Value = SamplerConfig> {
        let penalties = (0.5_f32..2.0, -2.0_f32..2.0, -2.0_f32..2.0, prop::option::of(0_usize..8));
        let filters = (-0.5_f32..2.0, 0_usize..40, 0.0_f32..=1.0, 0.0_f32..=1.0, 0.0_f32..=1.0);
        (filters, penalties, any::<u64>()).prop_map(|(filters, penalties, seed)| SamplerConfig {
            temperature: filters.0,
            top_k: filters.1,
            top_p: filters.2,
            min_p: filters.3,
            typical_p: filters.4,
            repeat_penalty: penalties.0,
            presence_penalty: penalties.1,
            frequency_penalty: penalties.2,
            repeat_last_n: penalties.3,
            logit_bias: vec![(1, f32::NEG_INFINITY), (2, 1.0)],
            seed: Some(seed),
            ..SamplerConfig::default()
        })
    }

    fn any_logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => -20.0_f32..20.0,
            1 => prop::sample::select(vec![f32::INFINITY, 1e38, -1e38, -0.0, f32::MIN_POSITIVE]),
            1 => Just(f32::NAN),
            1 => Just(f32::NEG_INFINITY),
        ]
    }

    proptest! {
        #[test]
        fn any_choice_is_a_possible_token_and_repeatable(
            config in any_config(),
            logits in prop::collection::vec(any_logit(), 1..300),
        ) {
            let mut first = Sampler::new(config.clone()).unwrap();
            let mut second = Sampler::new(config).unwrap();
            for _ in 0..10 {
                let chosen = first.sample(&logits);
                prop_assert_eq!(&chosen, &second.sample(&logits));
                let Ok(id) = chosen else {
                    // Only where nothing but the banned token could have been chosen.
                    let possible = |(id, &logit): (usize, &f32)| id != 1 && logit > f32::NEG_INFINITY;
                    prop_assert!(!logits.iter().enumerate().any(possible));
                    break;
                };
                prop_assert!(id != 1 && logits[id as usize] > f32::NEG_INFINITY);
                first.accept(id);
                second.accept(id);
            }
        }

        #[test]
        fn the_choice_is_among_the_k_best(
            k in 1_usize..20,
            seed: u64,
            logits in prop::collection::vec(-5.0_f32..5.0, 20..200),
        ) {
            let id = draws(SamplerConfig { top_k: k, ..plain(seed) }, &logits, 1)[0];
            let better = logits.iter().filter(|&&logit| logit > logits[id as usize]).count();
            prop_assert!(better < k);
        }
    }
}
