//! Embeddings and scores: batches do not change them, and engines do only what they were loaded
//! for.

use rf_engine::{Engine, EngineOptions, Error, Model, Outputs, Pooling, SequenceInput};
use rf_graph::KvType;
use rf_testing::engine::{cpu, golden as open};

/// The context of the smallest of the models.
const CONTEXT: usize = 64;

fn load(model: Model, options: EngineOptions) -> Result<Engine, Error> {
    Engine::load(model, &cpu(2), options, &mut |_| ())
}

fn options(pooling: Pooling) -> EngineOptions {
    EngineOptions::default()
        .with_context_tokens(Some(CONTEXT))
        .with_kv_type(KvType::F32)
        .with_pooling(Some(pooling))
}

/// Texts of these lengths.
fn texts<const N: usize>(lengths: [usize; N]) -> [Vec<u32>; N] {
    lengths.map(|length| (0..length as u32).map(|i| 5 + (i * i + length as u32) % 250).collect())
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn texts_in_one_batch_have_the_vectors_that_each_has_alone() {
    let texts = texts([3, 40, 1, CONTEXT, 17, 50]);
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    for name in ["nomic_bert", "bert_rank", "smollm3"] {
        let scores = (name == "bert_rank").then_some(Pooling::Rank);
        for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last].into_iter().chain(scores) {
            let mut engine = load(open(name), options(pooling)).unwrap();
            let alone: Vec<Vec<f32>> =
                texts.iter().map(|text| engine.embed(&[text]).unwrap().remove(0)).collect();
            assert_eq!(alone.len(), texts.len());
            assert!(bits(&alone).windows(2).all(|pair| pair[0] != pair[1]), "{name} {pooling:?}");
            assert_eq!(bits(&engine.embed(&texts).unwrap()), bits(&alone), "{name} {pooling:?}");
            // Small batches, with room in the cache for several sequences or for one. A text that
            // is not causal gets a batch that it fits in.
            for (batch_tokens, sequences) in [(7, 1), (50, 3)] {
                let kv_tokens = Some(sequences * CONTEXT);
                let options =
                    options(pooling).with_batch_tokens(batch_tokens).with_kv_tokens(kv_tokens);
                let mut engine = load(open(name), options).unwrap();
                let vectors = engine.embed(&texts).unwrap();
                assert_eq!(bits(&vectors), bits(&alone), "{name} {pooling:?} {batch_tokens}");
                assert_eq!(engine.kv_stats().used_pages, 0);
            }
        }
    }
}

#[test]
fn tokens_have_the_states_that_poolings_reduce() {
    let texts = texts([3, 40, 1, 17]);
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    for name in ["nomic_bert", "smollm3"] {
        // Several batches, and texts that take more than one.
        let options = options(Pooling::Mean).with_batch_tokens(20);
        let mut engine = load(open(name), options).unwrap();
        let tokens = engine.embed_tokens(&texts).unwrap();
        let lengths: Vec<_> = tokens.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 40, 1, 17], "{name}");
        assert_eq!(engine.kv_stats().used_pages, 0);
        for (pooling, place) in [(Pooling::Cls, 0), (Pooling::Last, usize::MAX)] {
            let mut engine = load(open(name), self::options(pooling)).unwrap();
            let pooled = engine.embed(&texts).unwrap();
            let of_tokens: Vec<_> =
                tokens.iter().map(|text| text[place.min(text.len() - 1)].clone()).collect();
            assert_eq!(bits(&pooled), bits(&of_tokens), "{name} {pooling:?}");
        }
    }
    let mut engine = load(open("smollm3"), EngineOptions::default()).unwrap();
    assert!(matches!(engine.embed_tokens(&texts), Err(Error::LoadedToGenerate)));
}

#[test]
fn every_token_of_an_encoder_sees_the_others() {
    let [text] = texts([20]);
    let mut changed = text.clone();
    changed[19] += 1;
    for (name, sees) in [("nomic_bert", true), ("smollm3", false)] {
        let mut engine = load(open(name), options(Pooling::Cls)).unwrap();
        let vectors = engine.embed(&[&text, &changed]).unwrap();
        assert_eq!(vectors[0] != vectors[1], sees, "{name}");
    }
}

#[test]
fn an_engine_does_only_what_it_was_loaded_for() {
    let error = load(open("nomic_bert"), EngineOptions::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "architecture 'nomic-bert' with pooling 'mean' does not generate text: it computes \
         embeddings or scores"
    );
    let error = load(open("nomic_bert"), options(Pooling::Rank)).err().unwrap();
    assert_eq!(error.to_string(), "the file has no tensor 'cls.output.weight'");

    let [text] = texts([20]);
    let mut engine = load(open("smollm3"), EngineOptions::default()).unwrap();
    assert!(matches!(engine.embed(&[&text]), Err(Error::LoadedToGenerate)));
    let mut engine = load(open("smollm3"), options(Pooling::Last)).unwrap();
    let mut session = engine.session();
    let feed = SequenceInput { session: &mut session, ids: &text, outputs: Outputs::Last };
    assert!(matches!(engine.forward(&mut [feed]), Err(Error::LoadedToEmbed)));
}

#[test]
fn texts_that_cannot_be_embedded_are_errors_and_the_engine_stays_usable() {
    let [text, long] = texts([20, CONTEXT + 1]);
    let mut engine = load(open("nomic_bert"), options(Pooling::Mean)).unwrap();
    let expected = engine.embed(&[&text]).unwrap();
    assert!(matches!(engine.embed(&[&text, &[]]), Err(Error::EmptyPrompt)));
    assert!(matches!(engine.embed(&[&[272]]), Err(Error::UnknownToken { id: 272, .. })));
    let error = engine.embed(&[&long]).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { prompt_tokens: 65, context_tokens: CONTEXT }));
    assert_eq!(engine.embed(&[&text]).unwrap(), expected);
    assert!(engine.embed(&[]).unwrap().is_empty());
}
