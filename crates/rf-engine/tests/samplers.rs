//! Samplers choose among the tokens that their published formulas keep, in the order of the chain.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::collections::BTreeSet;

use rf_engine::sampling::{
    DryConfig, MirostatConfig, MirostatVersion, Sampler, SamplerConfig, SamplerKind,
};

/// Nothing filters.
fn plain() -> SamplerConfig {
    SamplerConfig::default()
        .with_temperature(1.0)
        .with_top_k(0)
        .with_top_p(1.0)
        .with_min_p(0.0)
        .with_seed(5)
}

/// The tokens of many draws from these probabilities.
fn drawn(config: SamplerConfig, probabilities: &[f32]) -> BTreeSet<u32> {
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
    let mut sampler = Sampler::new(config).unwrap();
    (0..2000).map(|_| sampler.sample(&logits).unwrap()).collect()
}

const FOUR: [f32; 4] = [0.4, 0.3, 0.2, 0.1];

#[test]
fn xtc_removes_all_top_choices_but_the_last() {
    let xtc = |xtc_threshold, xtc_probability| {
        plain().with_xtc_threshold(xtc_threshold).with_xtc_probability(xtc_probability)
    };
    // 0.4, 0.3 and 0.2 reach the threshold; 0.2 is the least of them.
    assert_eq!(drawn(xtc(0.15, 1.0), &FOUR), BTreeSet::from([2, 3]));
    // A single top choice stays, and so do all above one half.
    assert_eq!(drawn(xtc(0.35, 1.0), &FOUR), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(drawn(xtc(0.6, 1.0), &FOUR), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(drawn(xtc(0.15, 0.0), &FOUR), BTreeSet::from([0, 1, 2, 3]));
    // Half of the time nothing is removed.
    assert_eq!(drawn(xtc(0.15, 0.5), &FOUR), BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn top_n_sigma_keeps_logits_near_the_largest() {
    // Mean 2 and deviation 2: one deviation below 5 is 3.
    let logits = [5.0, 3.5, 1.5, 0.0, 0.0];
    let (mean, count) = (2.0_f32, 5.0);
    let variance = logits.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / count;
    assert!((variance.sqrt() - 1.97).abs() < 0.01);
    let kept = |top_n_sigma| {
        let mut sampler = Sampler::new(plain().with_top_n_sigma(top_n_sigma)).unwrap();
        (0..5000).map(|_| sampler.sample(&logits).unwrap()).collect::<BTreeSet<u32>>()
    };
    assert_eq!(kept(0.5), BTreeSet::from([0]));
    assert_eq!(kept(1.0), BTreeSet::from([0, 1]));
    assert_eq!(kept(2.0), BTreeSet::from([0, 1, 2]));
    assert_eq!(kept(-1.0), BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn the_order_of_samplers_counts() {
    use SamplerKind::{Temperature, TopK, TopP};
    let config = |samplers: &[SamplerKind]| {
        plain().with_temperature(10.0).with_top_p(0.45).with_samplers(samplers.to_vec())
    };
    // 0.4 alone is too little and 0.7 enough.
    assert_eq!(drawn(config(&[TopP, Temperature]), &FOUR), BTreeSet::from([0, 1]));
    // The temperature makes 0.27, 0.26, …: two have 0.53.
    let peaked = [0.9, 0.05, 0.03, 0.02];
    assert_eq!(drawn(config(&[TopP, Temperature]), &peaked), BTreeSet::from([0]));
    assert_eq!(drawn(config(&[Temperature, TopP]), &peaked), BTreeSet::from([0, 1]));
    // A sampler that is left out has no effect.
    let top_k = plain().with_top_k(1).with_samplers(vec![Temperature]);
    assert_eq!(drawn(top_k.clone(), &FOUR).len(), 4);
    assert_eq!(drawn(top_k.with_samplers(vec![TopK]), &FOUR).len(), 1);
}

#[test]
fn dry_turns_a_greedy_choice_away_from_a_repetition() {
    let dry = DryConfig::default().with_multiplier(0.8);
    for samplers in [
        SamplerKind::ALL.to_vec(),
        vec![SamplerKind::TopK, SamplerKind::Dry, SamplerKind::Temperature],
    ] {
        let config = SamplerConfig::greedy().with_dry(dry.clone()).with_samplers(samplers);
        let mut sampler = Sampler::new(config).unwrap();
        let logits = [0.0, 0.0, 0.0, 1.0, 0.5];
        for id in [1, 2, 3, 9, 1, 2] {
            assert_eq!(sampler.sample(&logits), Ok(3));
            sampler.accept(id);
        }
        // Token 3 would continue `1 2`: 1.0 − 0.8 is less than 0.5.
        assert_eq!(sampler.sample(&logits), Ok(4));
    }
}

#[test]
fn the_dynamic_temperature_follows_the_entropy() {
    // All tokens alike have the largest entropy: the temperature is 2 + 2, which changes nothing.
    let config = plain().with_temperature(2.0).with_dynatemp_range(2.0);
    assert_eq!(drawn(config.clone(), &[0.25; 4]).len(), 4);
    // Hardly any entropy: near 0, which is greedy.
    let peaked = [0.97, 0.01, 0.01, 0.01];
    assert_eq!(drawn(config.with_temperature(1.0).with_dynatemp_range(1.0), &peaked).len(), 1);
    assert!(drawn(plain(), &peaked).len() > 1);
}

#[test]
fn mirostat_replaces_the_filters() {
    for version in [MirostatVersion::V1, MirostatVersion::V2] {
        let mirostat = MirostatConfig::new(version).with_tau(20.0);
        let config = plain().with_mirostat(mirostat).with_top_k(1);
        assert!(drawn(config, &FOUR).len() > 1, "{version:?}");
    }
}
