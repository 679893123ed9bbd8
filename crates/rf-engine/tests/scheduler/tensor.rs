//! Requests served together by a model whose layers two parts of the CPU compute together.

use rf_engine::scheduler::Scheduler;
use rf_engine::{Engine, Model};
use rf_graph::tensor::TensorBackend;
use rf_testing::engine::cpu;

use crate::support::{ENGINE, SCHEDULER, alone, ask, greedy, prompt, sampled, submit, tiny};

fn engine() -> Engine {
    let cpus = [cpu(1), cpu(1)];
    let backend = TensorBackend::new(&[(&cpus[0], 1.0), (&cpus[1], 1.0)]).unwrap();
    let model = Model::open(tiny()).unwrap();
    let program = model.program(&ENGINE).unwrap();
    assert!(backend.division(&program).sums > 0);
    Engine::load(model, &backend, ENGINE, &mut |_| ()).unwrap()
}

#[test]
fn the_answers_of_concurrent_requests_on_two_parts_are_those_of_each_one_alone() {
    let mut alone_engine = engine();
    let requests: Vec<_> = (0..12_u32)
        .map(|i| {
            let mut ids = if i % 3 == 0 { prompt(7, 40) } else { Vec::new() };
            ids.extend(prompt(i, 1 + 3 * i));
            let tokens = 5 + 3 * i as usize;
            (ids, if i % 4 == 0 { sampled(u64::from(i), tokens) } else { greedy(tokens) })
        })
        .collect();
    let expected: Vec<_> =
        requests.iter().map(|(ids, options)| alone(&mut alone_engine, ids, options).ids).collect();
    let scheduler = Scheduler::start(engine(), SCHEDULER).unwrap();
    let handle = scheduler.handle();
    for _ in 0..2 {
        let running: Vec<_> =
            requests.iter().map(|(ids, options)| submit(&handle, ids, options, |_| ())).collect();
        for ((_, events), expected) in running.into_iter().zip(&expected) {
            assert_eq!(&events.answer().ids, expected);
        }
    }
    // The prefix of an earlier prompt is in the caches of both parts.
    let answer = ask(&handle, &requests[9].0, &requests[9].1);
    assert_eq!(answer.ids, expected[9]);
    assert!(answer.timings.cached_tokens > 0, "{:?}", answer.timings);
}
