//! Models whose layers have recurrent states: made of random numbers, because no file of such a
//! model is small.

use std::ops::ControlFlow;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::scheduler::{Scheduler, SchedulerOptions};
use rf_engine::{
    Engine, EngineOptions, Error, Feed, Model, Outputs, Session, Speculation, SpeculationOptions,
};
use rf_gguf::{Array, Gguf, GgufWriter, Value};
use rf_graph::case::Numbers;
use rf_graph::{BackendError, DType};
use rf_kv::{CutCause, NotCut, PageGroup};

use crate::support::{ENGINE, SCHEDULER, alone, ask, end, greedy, prompt, sampled, submit, tiny};

/// The shape of a model: layers, keys, and tensors with the layers that have them.
struct Shape {
    architecture: &'static str,
    layers: u32,
    keys: &'static [(&'static str, u32)],
    /// `attention.head_count_kv` by layer.
    kv_heads: &'static [u32],
    /// `feed_forward_length` by layer.
    feed_forward: &'static [u32],
    tensors: &'static [(&'static str, &'static [u64], &'static [usize])],
}

const HIDDEN: u64 = 64;

/// Two convolutions, then attention, then a convolution.
const LFM2: Shape = Shape {
    architecture: "lfm2",
    layers: 4,
    keys: &[("attention.head_count", 2), ("rope.dimension_count", 32), ("shortconv.l_cache", 3)],
    kv_heads: &[0, 0, 1, 0],
    feed_forward: &[96; 4],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("shortconv.in_proj.weight", &[HIDDEN, 3 * HIDDEN], &[0, 1, 3]),
        ("shortconv.conv.weight", &[3, HIDDEN], &[0, 1, 3]),
        ("shortconv.out_proj.weight", &[HIDDEN, HIDDEN], &[0, 1, 3]),
        ("attn_q.weight", &[HIDDEN, 64], &[2]),
        ("attn_k.weight", &[HIDDEN, 32], &[2]),
        ("attn_v.weight", &[HIDDEN, 32], &[2]),
        ("attn_q_norm.weight", &[32], &[2]),
        ("attn_k_norm.weight", &[32], &[2]),
        ("attn_output.weight", &[64, HIDDEN], &[2]),
        ("ffn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1, 2, 3]),
    ],
};

/// Gated delta rules, and gated attention in every second layer.
const QWEN35: Shape = Shape {
    architecture: "qwen35",
    layers: 4,
    keys: &[
        ("attention.head_count", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 16),
        ("full_attention_interval", 2),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 2),
        ("ssm.time_step_rank", 4),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 96),
    ],
    kv_heads: &[1; 4],
    feed_forward: &[96; 4],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("attn_qkv.weight", &[HIDDEN, 160], &[0, 2]),
        ("attn_gate.weight", &[HIDDEN, 96], &[0, 2]),
        ("ssm_conv1d.weight", &[4, 160], &[0, 2]),
        ("ssm_dt.bias", &[4], &[0, 2]),
        ("ssm_a", &[4], &[0, 2]),
        ("ssm_alpha.weight", &[HIDDEN, 4], &[0, 2]),
        ("ssm_beta.weight", &[HIDDEN, 4], &[0, 2]),
        ("ssm_norm.weight", &[24], &[0, 2]),
        ("ssm_out.weight", &[96, HIDDEN], &[0, 2]),
        ("attn_q.weight", &[HIDDEN, 128], &[1, 3]),
        ("attn_k.weight", &[HIDDEN, 32], &[1, 3]),
        ("attn_v.weight", &[HIDDEN, 32], &[1, 3]),
        ("attn_q_norm.weight", &[32], &[1, 3]),
        ("attn_k_norm.weight", &[32], &[1, 3]),
        ("attn_output.weight", &[64, HIDDEN], &[1, 3]),
        ("post_attention_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1, 2, 3]),
    ],
};

/// A state space, a feed-forward layer, attention, and a state space.
const NEMOTRON_H: Shape = Shape {
    architecture: "nemotron_h",
    layers: 4,
    keys: &[
        ("attention.head_count", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 2),
        ("ssm.time_step_rank", 4),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 96),
    ],
    kv_heads: &[0, 0, 1, 0],
    feed_forward: &[0, 96, 0, 0],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ssm_in.weight", &[HIDDEN, 260], &[0, 3]),
        ("ssm_conv1d.weight", &[4, 160], &[0, 3]),
        ("ssm_conv1d.bias", &[160], &[0, 3]),
        ("ssm_dt.bias", &[4], &[0, 3]),
        ("ssm_a", &[1, 4], &[0, 3]),
        ("ssm_d", &[1, 4], &[0, 3]),
        ("ssm_norm.weight", &[48, 2], &[0, 3]),
        ("ssm_out.weight", &[96, HIDDEN], &[0, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[1]),
        ("ffn_down.weight", &[96, HIDDEN], &[1]),
        ("attn_q.weight", &[HIDDEN, 64], &[2]),
        ("attn_k.weight", &[HIDDEN, 32], &[2]),
        ("attn_v.weight", &[HIDDEN, 32], &[2]),
        ("attn_output.weight", &[64, HIDDEN], &[2]),
    ],
};

/// State spaces only: there are no keys and values.
const MAMBA2: Shape = Shape {
    architecture: "mamba2",
    layers: 2,
    keys: &[
        ("attention.head_count", 0),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 1),
        ("ssm.time_step_rank", 2),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 80),
    ],
    kv_heads: &[0; 2],
    feed_forward: &[0; 2],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1]),
        ("ssm_in.weight", &[HIDDEN, 194], &[0, 1]),
        ("ssm_conv1d.weight", &[4, 112], &[0, 1]),
        ("ssm_conv1d.bias", &[112], &[0, 1]),
        ("ssm_dt.bias", &[2], &[0, 1]),
        ("ssm_a", &[1, 2], &[0, 1]),
        ("ssm_d", &[1, 2], &[0, 1]),
        ("ssm_norm.weight", &[80], &[0, 1]),
        ("ssm_out.weight", &[80, HIDDEN], &[0, 1]),
    ],
};

const SHAPES: [Shape; 4] = [LFM2, QWEN35, NEMOTRON_H, MAMBA2];

impl Shape {
    fn model(&self) -> Model {
        let mut writer = GgufWriter::new();
        let name = |key: &str| format!("{}.{key}", self.architecture);
        writer.add("general.architecture", self.architecture).unwrap();
        for (key, value) in [
            ("context_length", 8192),
            ("embedding_length", HIDDEN as u32),
            ("block_count", self.layers),
        ] {
            writer.add(name(key), value).unwrap();
        }
        for (key, value) in self.keys {
            writer.add(name(key), *value).unwrap();
        }
        for (key, list) in
            [("attention.head_count_kv", self.kv_heads), ("feed_forward_length", self.feed_forward)]
        {
            writer.add(name(key), Value::Array(Array::U32(list.to_vec()))).unwrap();
        }
        writer.add(name("attention.layer_norm_rms_epsilon"), 1e-5_f32).unwrap();
        let tokenizer = Gguf::open(tiny()).unwrap();
        for (key, value) in tokenizer.metadata().iter() {
            if key.starts_with("tokenizer.") {
                writer.add(key, value.clone()).unwrap();
            }
        }
        let norm = if self.architecture == "lfm2" { "token_embd_norm" } else { "output_norm" };
        writer.add_tensor("token_embd.weight", &[HIDDEN, 512], DType::F32).unwrap();
        writer.add_tensor(format!("{norm}.weight"), &[HIDDEN], DType::F32).unwrap();
        for (stem, shape, layers) in self.tensors {
            for layer in *layers {
                writer.add_tensor(format!("blk.{layer}.{stem}"), shape, DType::F32).unwrap();
            }
        }
        let mut numbers = Numbers::new(self.architecture);
        let mut bytes = Vec::new();
        let written = writer.write_to(&mut bytes, |tensor, out| {
            let columns = tensor.shape()[0] as f32;
            for _ in 0..tensor.size_bytes() / 4 {
                let x = numbers.normal();
                let value = match tensor.name() {
                    name if name.ends_with("norm.weight") => 1.0 + 0.2 * x,
                    name if name.ends_with("ssm_a") => -x.exp(),
                    name if name.contains("conv") => x,
                    _ => x / columns.sqrt(),
                };
                out.write_all(&value.to_le_bytes())?;
            }
            Ok(())
        });
        written.unwrap();
        Model::from_gguf(Gguf::from_bytes(bytes).unwrap()).unwrap()
    }

    fn engine(&self, threads: usize, options: EngineOptions) -> Engine {
        let backend = CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap();
        Engine::load(self.model(), &backend, options, &mut |_| ()).unwrap()
    }
}

fn feed(engine: &mut Engine, session: &mut Session, ids: &[u32]) -> Vec<u32> {
    let logits = engine.forward(&mut [Feed { session, ids, outputs: Outputs::All }]).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn logits_do_not_depend_on_threads_chunks_or_neighbours() {
    let ids = prompt(3, 90);
    for shape in SHAPES {
        let mut whole = shape.engine(1, ENGINE);
        let mut session = whole.session();
        let expected = feed(&mut whole, &mut session, &ids);
        for (threads, batch_tokens) in [(1, 64), (3, 1), (2, 7), (3, 512)] {
            let mut engine = shape.engine(threads, EngineOptions { batch_tokens, ..ENGINE });
            let mut session = engine.session();
            let actual = feed(&mut engine, &mut session, &ids);
            assert!(actual == expected, "{} {threads} {batch_tokens}", shape.architecture);
        }
        // Two sequences in one batch, the second of which takes over the states of a third.
        let (mut first, mut second) = (whole.session(), whole.session());
        drop(session);
        let mut logits = Vec::new();
        for (a, b) in [(0..40, 0..1), (40..41, 1..60), (41..90, 60..90)] {
            let feeds = &mut [
                Feed { session: &mut first, ids: &ids[a.clone()], outputs: Outputs::All },
                Feed { session: &mut second, ids: &ids[b], outputs: Outputs::None },
            ];
            logits.extend(whole.forward(feeds).unwrap().iter().map(|logit| logit.to_bits()));
        }
        assert!(logits == expected, "{}", shape.architecture);
    }
}

#[test]
fn a_sequence_goes_on_forks_and_starts_again_where_it_is_cut() {
    for shape in SHAPES {
        let mut engine = shape.engine(2, ENGINE);
        let ids = prompt(5, 60);
        let mut session = engine.session();
        feed(&mut engine, &mut session, &ids);
        assert_eq!(session.truncate(50), Err(NotCut { len_tokens: 50, cause: CutCause::State }));
        assert_eq!(
            (session.tokens(), engine.kv_stats_of(PageGroup::State).used_pages),
            (&ids[..], 1)
        );
        let texts = [[&ids[..], &[7, 8]].concat(), [&ids[..], &[9]].concat(), ids[..55].to_vec()];
        let expected: Vec<_> =
            texts.iter().map(|text| alone(&mut engine, text, &greedy(20)).ids).collect();
        for ((text, expected), cached_tokens) in texts.iter().zip(expected).zip([60, 60, 0]) {
            let mut fork = session.fork();
            let outcome =
                engine.generate(&mut fork, text, &greedy(20), &mut |_| ControlFlow::Continue(()));
            let outcome = outcome.unwrap();
            assert_eq!(outcome.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            assert_eq!(outcome.ids, expected, "{}", shape.architecture);
        }
        assert_eq!(engine.kv_stats_of(PageGroup::State).used_pages, 1);
    }
}

#[test]
fn answers_are_those_of_each_alone_with_few_states() {
    for shape in SHAPES {
        let mut alone_engine = shape.engine(2, ENGINE);
        for (sequences, prefix_cache) in [(64, true), (3, true), (2, false)] {
            let engine = shape.engine(2, EngineOptions { sequences, ..ENGINE });
            let options = SchedulerOptions { max_batched_tokens: 24, prefix_cache, ..SCHEDULER };
            let scheduler = Scheduler::start(engine, options).unwrap();
            let handle = scheduler.handle();
            // Texts that begin alike, some with several answers.
            let requests: Vec<_> = (0..6_u32)
                .map(|i| (prompt(i % 2, 20 + 9 * i), 1 + (i % 3) as usize, u64::from(i)))
                .collect();
            let events: Vec<_> = requests
                .iter()
                .map(|(ids, choices, seed)| {
                    let change = |r: &mut rf_engine::scheduler::Request| r.num_choices = *choices;
                    submit(&handle, ids, &sampled(*seed, 15), change).1
                })
                .collect();
            for (events, (ids, _, seed)) in events.into_iter().zip(&requests) {
                for (choice, answer) in (0..).zip(events.answers().unwrap()) {
                    let expected = alone(&mut alone_engine, ids, &sampled(seed + choice, 15)).ids;
                    assert_eq!(answer.ids, expected, "{} {sequences}", shape.architecture);
                }
            }
            end(scheduler);
        }
    }
}

#[test]
fn a_sequence_whose_batch_fails_starts_again() {
    for shape in SHAPES {
        let mut engine = shape.engine(2, EngineOptions { sequences: 1, ..ENGINE });
        let ids = prompt(6, 40);
        let mut first = engine.session();
        feed(&mut engine, &mut first, &ids);
        // There is no second state, so the batch of both fails before it is computed.
        let mut second = engine.session();
        let feeds = &mut [
            Feed { session: &mut first, ids: &[1], outputs: Outputs::Last },
            Feed { session: &mut second, ids: &[1], outputs: Outputs::Last },
        ];
        let error = engine.forward(feeds).unwrap_err();
        assert!(matches!(error, Error::OutOfPages(_)), "{error:?}");
        assert_eq!((first.len(), second.len()), (0, 0));
        let again = feed(&mut engine, &mut first, &ids);
        first.reset();
        assert_eq!(again, feed(&mut engine, &mut second, &ids));
    }
}

#[test]
fn the_memory_plan_counts_a_state_for_each_sequence() {
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), isa: None }).unwrap();
    for (shape, floats) in SHAPES.into_iter().zip(STATE_FLOATS) {
        let held = |sequences| {
            let options = EngineOptions { sequences, ..ENGINE };
            let engine = shape.engine(1, options);
            let need = shape.model().memory_need(&backend, &options).unwrap();
            assert_eq!((need, need.held), (engine.memory_need(), engine.memory()));
            need.held.states_bytes
        };
        assert_eq!(held(1), 4 * floats, "{}", shape.architecture);
        assert_eq!(held(5), 5 * held(1));
    }
}

/// f32 elements of the states of a sequence, by shape: rows of whole tiles of 32 columns.
const STATE_FLOATS: [u64; 4] = [
    3 * 2 * HIDDEN,
    2 * (3 * 160 + 4 * 16 * 32),
    2 * (3 * 160 + 4 * 16 * 32),
    2 * (3 * 128 + 2 * 16 * 64),
];

#[test]
fn a_model_of_two_backends_is_refused() {
    let options = EngineOptions { sequences: 1, ..ENGINE };
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), isa: None }).unwrap();
    let layout = rf_graph::Layout { layers: 1, expert_layers: 0 };
    let hybrid = rf_engine::hybrid::HybridBackend::new(&backend, &backend, layout);
    let error = LFM2.model().memory_need(&hybrid, &options).unwrap_err();
    assert!(
        matches!(&error, Error::Backend(BackendError::Unsupported { what, .. })
            if what.contains("recurrent layers cannot be divided")),
        "{error}"
    );
}

#[test]
fn drafts_are_refused() {
    let tiny = Model::open(tiny()).unwrap();
    let backend = CpuBackend::new(CpuOptions { threads: Some(1), isa: None }).unwrap();
    let tiny = Engine::load(tiny, &backend, ENGINE, &mut |_| ()).unwrap();
    let options = SpeculationOptions::default();
    for shape in SHAPES {
        let engine = shape.engine(1, ENGINE);
        let ngram = Speculation::ngram(&engine, options).err();
        let draft_model = Speculation::draft_model(&tiny, engine, options).err();
        for error in [ngram, draft_model] {
            assert!(matches!(error, Some(Error::CannotDropTokens)), "{error:?}");
        }
    }
}

/// Options with states for some sequences and for checkpoints.
fn with_checkpoints(checkpoints: usize) -> EngineOptions {
    let kv_tokens = Some(64 * 512);
    EngineOptions { context_tokens: Some(512), kv_tokens, sequences: 3, checkpoints, ..ENGINE }
}

#[test]
fn a_later_turn_goes_on_from_the_nearest_checkpoint() {
    for shape in SHAPES {
        let mut alone_engine = shape.engine(2, with_checkpoints(0));
        let engine = shape.engine(2, with_checkpoints(8));
        let scheduler = Scheduler::start(engine, SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let mut asks = |text: &[u32], cached_tokens: usize| {
            let answer = ask(&handle, text, &greedy(20));
            let expected = alone(&mut alone_engine, text, &greedy(20)).ids;
            assert_eq!(answer.ids, expected, "{}", shape.architecture);
            assert_eq!(answer.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            answer.ids
        };
        let first = prompt(1, 100);
        let answer = asks(&first, 0);
        // The last token of the answer is not computed, so its last full page ends at 112.
        let second = [&first[..], &answer, &prompt(2, 30)].concat();
        let answer = asks(&second, 112);
        asks(&[&second[..], &answer, &prompt(3, 11)].concat(), 160);
        // Another last message, and another answer.
        asks(&[&first[..], &prompt(4, 25)].concat(), 96);
        asks(&second, 144);
        // Texts that begin alike: the second one shows where, and the third one begins there.
        let system = prompt(5, 60);
        let text = |seed| [&system[..], &prompt(seed, 40)].concat();
        asks(&text(6), 0);
        asks(&text(7), 0);
        asks(&text(8), 48);
        end(scheduler);
    }
}

#[test]
fn a_session_goes_on_from_a_checkpoint_where_it_is_cut() {
    for shape in SHAPES {
        let mut alone_engine = shape.engine(2, with_checkpoints(0));
        let options = EngineOptions { sequences: 1, ..with_checkpoints(3) };
        let mut engine = shape.engine(2, options);
        let mut session = engine.session();
        let text = prompt(1, 100);
        for (len, more, cached_tokens) in [(100, 0, 0), (100, 9, 96), (98, 5, 96), (40, 0, 0)] {
            let text = [&text[..len], &prompt(9, more)].concat();
            let outcome = engine
                .generate(&mut session, &text, &greedy(8), &mut |_| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(outcome.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            assert_eq!(outcome.ids, alone(&mut alone_engine, &text, &greedy(8)).ids);
        }
    }
}

#[test]
fn a_turn_after_a_long_history_computes_what_is_new_and_at_most_a_page() {
    let options =
        EngineOptions { context_tokens: Some(4200), batch_tokens: 512, ..with_checkpoints(8) };
    let mut engine = QWEN35.engine(2, options);
    let history = prompt(1, 4000);
    let mut session = engine.session();
    let go_on = &mut |_: &str| ControlFlow::Continue(());
    engine.generate(&mut session, &history, &greedy(1), go_on).unwrap();
    // Another conversation in between, and a turn that begins like the first one.
    session.reset();
    engine.generate(&mut session, &prompt(2, 300), &greedy(1), go_on).unwrap();
    let next = [&history[..], &prompt(3, 40)].concat();
    let outcome = engine.generate(&mut session, &next, &greedy(1), go_on).unwrap();
    let computed = outcome.timings.prompt_tokens;
    assert!((40..=40 + 16).contains(&computed), "{computed}");
}

#[test]
fn a_prompt_is_computed_again_without_checkpoints() {
    let scheduler =
        Scheduler::start(LFM2.engine(2, EngineOptions { sequences: 4, ..ENGINE }), SCHEDULER)
            .unwrap();
    let handle = scheduler.handle();
    let ids = prompt(4, 70);
    let first = ask(&handle, &ids, &greedy(10));
    let second = ask(&handle, &ids, &greedy(10));
    assert_eq!(first.ids, second.ids);
    assert_eq!(second.timings.cached_tokens, 0);
    end(scheduler);
}
