//! Sequences in files.

use std::ops::ControlFlow;

use rf_engine::{Engine, EngineOptions, Error, Model, SavedError, Session};
use rf_graph::{Backend, KvType, Layout};
use rf_kv::PageGroup;
use rf_oracle::ReferenceBackend;
use rf_testing::HybridBackend;

use crate::recurrent::shapes::SHAPES;
use crate::support::{ENGINE, alone, cpu, data, engine, greedy, prompt, tiny};

/// Room for one sequence, so that windows have fewer pages than sequences.
pub(crate) const OPTIONS: EngineOptions = ENGINE.with_sequences(1).with_kv_tokens(Some(2 * 160));

/// The bytes of a prompt but its last token.
fn saved(engine: &mut Engine, prompt: &[u32]) -> Vec<u8> {
    let mut session = engine.session();
    assert_eq!(engine.prefill(&mut session, prompt).unwrap(), prompt.len() - 1);
    let mut bytes = Vec::new();
    engine.save(&session, &mut bytes).unwrap();
    bytes
}

/// The recurrent states of a sequence: the last page of a saved one, before the hash.
pub(crate) fn states(engine: &Engine, session: &Session) -> Vec<f32> {
    let mut bytes = Vec::new();
    engine.save(session, &mut bytes).unwrap();
    let mut rest = &bytes[8 + 4 + 16 + 8 + 4 * session.len()..];
    let mut page = &[][..];
    let number = |rest: &mut &[u8]| {
        let (number, others) = rest.split_first_chunk().unwrap();
        *rest = others;
        u64::from_le_bytes(*number) as usize
    };
    for _ in PageGroup::ALL {
        for _ in 0..number(&mut rest) {
            let len = number(&mut rest);
            (page, rest) = rest.split_at(len);
        }
    }
    page.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// Saves a prompt with one engine and goes on with another: with the same prompt and a longer one.
pub(crate) fn check(make: &dyn Fn() -> Engine, what: &str) {
    let (mut first, mut second) = (make(), make());
    let text = prompt(3, 90);
    let bytes = saved(&mut first, &text);
    for longer in [text.clone(), [&text[..89], &prompt(4, 20)].concat()] {
        let mut session = second.restore(&bytes).unwrap();
        assert_eq!(session.tokens(), &text[..89]);
        let go_on = &mut |_: &str| ControlFlow::Continue(());
        let outcome = second.generate(&mut session, &longer, &greedy(12), go_on).unwrap();
        assert_eq!(outcome.timings.cached_tokens, 89, "{what}");
        assert_eq!(outcome.ids, alone(&mut first, &longer, &greedy(12)).ids, "{what}");
    }
    let used = PageGroup::ALL.map(|group| second.kv_stats_of(group).used_pages);
    assert_eq!(used, [0; 3], "{what}");
}

#[test]
fn a_saved_prompt_goes_on_as_if_it_had_been_computed() {
    for kv_type in [KvType::F16, KvType::Q8_0, KvType::Q4_0] {
        check(&|| engine(&tiny(), OPTIONS.with_kv_type(kv_type)), "full attention");
    }
    check(&|| engine(&data("gemma4_e4b"), OPTIONS), "windows");
    for shape in SHAPES {
        check(&|| shape.engine(2, OPTIONS), "states");
    }
    let (first, second) = (cpu(), cpu());
    let layout = Layout { layers: 2, expert_layers: 0 };
    let backend = HybridBackend::new(&first, &second, layout);
    let load =
        || Engine::load(Model::open(tiny()).unwrap(), &backend, OPTIONS, &mut |_| ()).unwrap();
    check(&load, "two backends");
}

#[test]
fn other_bytes_are_refused() {
    let mut engine = engine(&tiny(), OPTIONS);
    let bytes = saved(&mut engine, &prompt(3, 40));
    let mut refused = |bytes: &[u8]| match engine.restore(bytes).err() {
        Some(Error::Saved(error)) => error,
        other => panic!("{other:?}"),
    };
    for other in [&b""[..], b"GGUF", b"a text of some length"] {
        assert!(matches!(refused(other), SavedError::OtherFile));
    }
    for len in [8, 11, 12, 40, bytes.len() / 2, bytes.len() - 1] {
        assert!(matches!(refused(&bytes[..len]), SavedError::Damaged), "{len}");
    }
    for at in [12, 30, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(matches!(refused(&damaged), SavedError::Damaged), "{at}");
    }
    let mut later = bytes.clone();
    later[8] = 3;
    assert!(matches!(refused(&later), SavedError::Version { found: 3, supported: 2 }));

    let mut others = vec![SHAPES[0].engine(1, OPTIONS)];
    others.push(crate::support::engine(&tiny(), OPTIONS.with_kv_type(KvType::F32)));
    let load = |backend: &dyn Backend| {
        Engine::load(Model::open(tiny()).unwrap(), backend, OPTIONS, &mut |_| ()).unwrap()
    };
    others.push(load(&ReferenceBackend));
    for mut other in others {
        let error = other.restore(&bytes).err();
        assert!(matches!(error, Some(Error::Saved(SavedError::OtherModel))), "{error:?}");
    }
    let short = OPTIONS.with_context_tokens(Some(32));
    let error = crate::support::engine(&tiny(), short).restore(&bytes).err();
    let too_long =
        matches!(error, Some(Error::PromptTooLong { prompt_tokens: 39, context_tokens: 32 }));
    assert!(too_long, "{error:?}");
}
