//! The library as programs use it, on the CPU.

#![cfg(feature = "demo-model")]
#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::time::{Duration, Instant};

use rocmforge::device::{CpuOptions, Device, DeviceOptions};
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{Perplexity, Session};
use rocmforge::{
    Delta, Drafts, Error, Grammar, Job, LoadEvent, Loader, Model, Pooling, Purpose, Source,
    StopReason, Update,
};

/// A loader on one CPU thread, so that results do not depend on the machine.
fn loader(source: impl Into<Source>) -> Loader {
    let cpu = CpuOptions::default().with_threads(1);
    let device = DeviceOptions::default().with_device(Device::Cpu).with_cpu(cpu);
    Loader::new(source).device(device).context_tokens(256)
}

fn demo() -> Model {
    loader(Source::Demo).load().unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Waits until no sequence runs, or fails after some seconds.
fn wait_until_idle(model: &Model) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while model.handle().unwrap().stats().running > 0 {
        assert!(Instant::now() < deadline, "a cancelled request still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pieces_of_a_stream_add_up_to_the_answer() {
    let model = demo();
    let chat = model.chat().user("Tell me a story.").seed(3).max_tokens(20);
    let (mut text, mut end) = (String::new(), None);
    for delta in chat.stream().unwrap() {
        match delta.unwrap() {
            Delta::Content(piece) => text += &piece,
            Delta::Finished { reason, usage, .. } => end = Some((reason, usage)),
            other => panic!("{other:?}"),
        }
    }
    let (reason, usage) = end.unwrap();
    assert_eq!((reason, usage.completion_tokens), (StopReason::Length, 20));
    let answer = chat.answer().unwrap();
    assert_eq!((answer.content, answer.reason), (text, reason));
    assert_eq!(answer.usage.prompt_tokens, usage.prompt_tokens);
}

#[test]
fn a_dropped_stream_ends_its_request_and_a_dropped_model_does_not_end_its_streams() {
    let model = demo();
    let chat = model.chat().user("Tell me a story.").max_tokens(200);
    let mut stream = chat.stream().unwrap();
    assert!(stream.next().unwrap().is_ok());
    drop(stream);
    wait_until_idle(&model);

    let stream = chat.max_tokens(5).stream().unwrap();
    drop(model);
    assert_eq!(stream.answer().unwrap().usage.completion_tokens, 5);
}

#[test]
fn an_async_call_needs_no_particular_runtime() {
    let model = demo();
    let chat = model.chat().user("Tell me a story.").seed(5).max_tokens(8);
    let expected = chat.answer().unwrap().content;
    let answers = runtime().block_on(async {
        let (first, second) = tokio::join!(chat.answer_async(), chat.answer_async());
        [first.unwrap().content, second.unwrap().content]
    });
    assert_eq!(answers, [expected.clone(), expected]);
}

#[test]
fn answers_fit_the_type_that_is_requested() {
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    enum Kind {
        Red,
        Arctic,
    }
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct Fox {
        kind: Kind,
        age: u8,
    }
    let model = demo();
    let chat = model.chat().user("Invent a fox.").seed(1).max_tokens(100);
    let fox: Fox = chat.generate().unwrap();
    assert!(matches!(fox.kind, Kind::Red | Kind::Arctic) && fox.age < u8::MAX, "{fox:?}");
    // An answer that is cut off is no value.
    let cut = chat.max_tokens(2).generate::<Fox>().unwrap_err();
    assert!(matches!(cut, Error::NotTheValue { .. }), "{cut}");

    let choices = Grammar::Choice(vec!["yes".into(), "no".into()]);
    let answer = model.complete("A fox is brave:").grammar(choices).answer().unwrap();
    assert!(["yes", "no"].contains(&answer.content.as_str()), "{}", answer.content);
}

#[test]
fn embeddings_have_length_1_and_scores_rank_documents() {
    let model = loader(Source::Demo).embeddings().load().unwrap();
    let vectors = model.embed(&["The fox ran.", "The fox ran.", "Bread is good."]).unwrap();
    assert_eq!(vectors[0], vectors[1]);
    assert_ne!(vectors[0], vectors[2]);
    let length: f32 = vectors[0].iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    assert!(matches!(model.embed(&["fine", ""]), Err(Error::EmptyText { index: 1 })));
    // The demo model is pooled by its last token.
    let ids = vec![model.tokenize("The fox ran."), model.tokenize("Bread is good.")];
    let (pooled, tokens) = (model.embed_ids(ids.clone()).unwrap(), model.embed_tokens(ids.clone()));
    for ((pooled, tokens), ids) in pooled.iter().zip(tokens.unwrap()).zip(ids) {
        assert_eq!((Some(pooled), tokens.len()), (tokens.last(), ids.len()));
    }
    assert!(matches!(model.embed_tokens(vec![vec![]]), Err(Error::EmptyText { index: 0 })));
    let long = "fox ".repeat(300);
    assert!(matches!(model.embed(&[long]), Err(Error::TextTooLong { index: 0, most: 256, .. })));
    assert!(matches!(model.rerank("q", &["d"]), Err(Error::NoReranker)));
    assert!(matches!(model.rerank_ids(vec![vec![1]]), Err(Error::NoReranker)));
    assert!(matches!(model.complete("x").stream(), Err(Error::LoadedToEmbed)));
    assert!(matches!(demo().embed(&["x"]), Err(Error::LoadedToGenerate)));

    let reranker = loader(rf_testing::golden_model("bert_rank")).context_tokens(64).load().unwrap();
    let ranked = reranker.rerank("a b", &["c d", "a b", "e"]).unwrap();
    assert_eq!(ranked.len(), 3);
    assert!(ranked.is_sorted_by(|a, b| a.score >= b.score), "{ranked:?}");
    let mut indices: Vec<usize> = ranked.iter().map(|ranked| ranked.index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2]);
    let pair = |document| reranker.file().rank_ids("a b", document).unwrap();
    assert_eq!(reranker.rerank_ids(["c d", "a b", "e"].map(pair).into()).unwrap(), ranked);
}

#[test]
fn the_seed_of_a_loader_is_that_of_requests_without_one() {
    let sampler = rocmforge::SamplerConfig::default().with_temperature(2.0);
    let model = loader(Source::Demo).seed(11).sampler(sampler).load().unwrap();
    let chat = model.chat().user("Tell me a story.").max_tokens(20);
    let content = |chat: &rocmforge::Chat| chat.answer().unwrap().content;
    let seeded = content(&chat);
    assert_eq!(content(&chat), seeded);
    assert_eq!(content(&chat.clone().seed(11)), seeded);
    assert_ne!(content(&chat.seed(12)), seeded);
}

#[test]
fn perplexity_is_that_of_the_engine() {
    let text = "Once upon a time, there lived a shy fox named Marigold.";
    let model = runtime().block_on(loader(Source::Demo).load_async()).unwrap();
    let score = model.perplexity(text).unwrap();
    let open = loader(Source::Demo).purpose(Purpose::Texts).open(&mut |_| ()).unwrap();
    let ids = open.model().text_ids(text);
    let placement =
        rocmforge::device::Placement::open(DeviceOptions::default().with_device(Device::Cpu));
    let mut engine = open.load_on(&placement.unwrap(), &mut |_| ()).unwrap().engine;
    let mut run = Perplexity::new(&mut engine, &ids, None).unwrap();
    while run.step().unwrap() {}
    assert_eq!(score.tokens, run.score().tokens);
    assert_eq!(runtime().block_on(model.perplexity_async(text)).unwrap(), score);
    assert!((score.nll_sum - run.score().nll_sum).abs() < 1e-3, "{score:?} {:?}", run.score());
}

#[test]
fn several_jobs_and_choices_are_one_request() {
    let model = demo();
    let ids = model.tokenize("Once upon a time");
    assert_eq!(model.detokenize(&ids).unwrap(), "Once upon a time");
    let job = |prompt: &[u32]| {
        let options = rocmforge::GenerateOptions::default().with_max_tokens(4);
        Job::text(prompt.to_vec(), options).with_num_choices(2)
    };
    let mut generation = model.submit(vec![job(&ids), job(&ids[..2])]).unwrap();
    let mut finished = Vec::new();
    while let Some(update) = generation.wait() {
        match update {
            Update::Finished { choice, .. } => finished.push(choice),
            Update::Ended { usage } => assert_eq!(usage.completion_tokens, 16),
            Update::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    finished.sort_unstable();
    assert_eq!(finished, [0, 1, 2, 3]);
    assert!(generation.is_complete());
    let mut many = job(&ids);
    many.num_choices = 1 << 40;
    assert!(matches!(model.submit(vec![many]), Err(Error::Submit(_))));
    assert!(model.submit(vec![job(&[])]).is_err());
}

#[test]
fn a_session_continues_and_survives_in_a_file() {
    let model = demo();
    let handle = model.handle().unwrap();
    let options = rocmforge::GenerateOptions::default()
        .with_sampler(rocmforge::SamplerConfig::greedy())
        .with_max_tokens(4);
    let run = |prompt: &[u32], session: Option<Session>| {
        let job = Job::text(prompt.to_vec(), options.clone())
            .with_logprobs(0)
            .with_use_prefix_cache(false)
            .with_session(session);
        let mut generation = model.submit(vec![job]).unwrap();
        let (mut ids, mut returned) = (Vec::new(), None);
        while let Some(update) = generation.wait() {
            match update {
                Update::Delta { logprobs, .. } => ids.extend(logprobs.iter().map(|token| token.id)),
                Update::Finished { session, .. } => returned = session,
                Update::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
        (ids, returned.map(|session| *session), generation.usage().cached_tokens)
    };
    let mut prompt = model.tokenize("Once upon a time, there was a fox");
    let (first, none, cached) = run(&prompt, None);
    assert!(none.is_none() && cached == 0);
    let (ids, session, cached) = run(&prompt, Some(model.session().unwrap()));
    assert_eq!((&ids, cached), (&first, 0));
    // The last token is not computed.
    let session = session.unwrap();
    assert_eq!(session.len(), prompt.len() + 3);
    let restored = handle.call(move |engine| {
        let mut file = Vec::new();
        engine.save(&session, &mut file).unwrap();
        engine.restore(&file).unwrap()
    });

    prompt.extend(&ids);
    let known = prompt.len() - 1;
    prompt.extend(model.tokenize(" with a key"));
    let (expected, ..) = run(&prompt, None);
    let (ids, session, cached) = run(&prompt, Some(restored.unwrap()));
    assert_eq!((ids, cached), (expected, known));
    assert_eq!(session.unwrap().len(), prompt.len() + 3);

    let embedder = loader(Source::Demo).embeddings().load().unwrap();
    assert!(matches!(embedder.session(), Err(Error::LoadedToEmbed)));
}

#[test]
fn loading_reports_its_steps_and_refuses_what_cannot_be() {
    let (mut need, mut loaded) = (0, 0);
    let model = loader(Source::Demo).drafts(Drafts::Ngram).load_with(&mut |event| match event {
        LoadEvent::MemoryNeed(memory) => need = memory.total_bytes(),
        LoadEvent::Progress(progress) => loaded = progress.done_bytes,
        _ => {}
    });
    assert_eq!(model.unwrap().context_tokens(), 256);
    assert!(need > 7 << 20 && loaded > 7 << 20, "{need} {loaded}");

    let missing = Model::load("no such file.gguf").unwrap_err();
    assert!(matches!(missing, Error::Gguf(_)), "{missing}");
    let mtp = loader(Source::Demo).drafts(Drafts::Mtp).load().unwrap_err();
    assert!(matches!(mtp, Error::NoMtp { heads_in_metadata: 0 }), "{mtp}");
    // Templates are checked when the model is opened.
    let template = loader(Source::Demo).chat_template("{% if").load().unwrap_err();
    assert!(matches!(template, Error::Engine(_)), "{template}");
    let tiny = loader(rf_testing::tiny_model()).load().unwrap();
    let no_template = tiny.chat().user("Hi").answer().unwrap_err();
    assert!(no_template.to_string().contains("no chat template"), "{no_template}");
    let none = SchedulerOptions::default().with_max_num_seqs(0);
    assert!(loader(Source::Demo).scheduler(none).kv_tokens(256).load().is_err());
}

#[test]
fn the_plan_of_a_model_is_what_it_takes() {
    for (purpose, sequences) in [(Purpose::Texts, 1), (Purpose::Chat, 1), (Purpose::Requests, 64)] {
        let loader = loader(Source::Demo).purpose(purpose);
        let placement = loader.placement().unwrap();
        let open = loader.open(&mut |_| ()).unwrap();
        let (options, need) = open.plan(&placement).unwrap();
        assert_eq!(options.sequences, sequences, "{purpose:?}");
        assert!(options.kv_tokens.unwrap() >= 256);
        let engine = open.load_on(&placement, &mut |_| ()).unwrap().engine;
        assert_eq!(engine.memory_need(), need);
    }
    let texts = loader(Source::Demo).context_tokens(64).pooling(Pooling::Mean).for_texts([65]);
    let placement = texts.placement().unwrap();
    let error = texts.open(&mut |_| ()).unwrap().plan(&placement).unwrap_err();
    assert!(matches!(error, Error::TextTooLong { index: 0, tokens: 65, most: 64 }), "{error}");
}
