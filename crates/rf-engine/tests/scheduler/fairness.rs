//! Requests take turns: none waits for all sequences of another one.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::Duration;

use rf_engine::scheduler::{
    Constraint, ConstraintError, Event, GroupId, Request, RequestId, SchedulerOptions,
    SchedulerStats, StepScheduler, TokenMask,
};
use rf_engine::{Engine, EngineOptions};

use crate::support::{ENGINE, SCHEDULER, VOCAB_SIZE, alone, engine, greedy, prompt, sampled, tiny};

/// A scheduler whose steps are counted.
struct Steps {
    engine: Engine,
    scheduler: StepScheduler,
    count: usize,
    /// Steps until each request had its first token, and until it ended.
    first: HashMap<RequestId, usize>,
    last: HashMap<RequestId, usize>,
    /// Requests in the order of their starts.
    started: Vec<RequestId>,
    tokens: HashMap<(RequestId, usize), Vec<u32>>,
}

impl Steps {
    fn new(engine_options: EngineOptions, options: SchedulerOptions) -> Self {
        let engine = engine(&tiny(), engine_options);
        let scheduler = StepScheduler::new(&engine, options.with_prefix_cache(false)).unwrap();
        Self {
            engine,
            scheduler,
            count: 0,
            first: HashMap::new(),
            last: HashMap::new(),
            started: Vec::new(),
            tokens: HashMap::new(),
        }
    }

    fn submit(&mut self, request: Request) -> RequestId {
        self.scheduler.submit(&mut self.engine, request).unwrap()
    }

    /// Prompts of one call.
    fn submit_group(&mut self, prompts: u32, tokens: u32, max_tokens: usize) -> Vec<RequestId> {
        let group = GroupId::unique();
        let request = |seed| Request::new(prompt(seed, tokens), greedy(max_tokens));
        (0..prompts).map(|seed| self.submit(request(seed).with_group(group))).collect()
    }

    fn step(&mut self) {
        let Self { engine, scheduler, count, first, last, started, tokens } = self;
        *count += 1;
        scheduler.step(engine, None, &mut |id, event| {
            match event {
                Event::Started { .. } => started.push(id),
                Event::Token { choice, id: token, .. } => {
                    first.entry(id).or_insert(*count);
                    tokens.entry((id, choice)).or_default().push(token);
                }
                Event::Finished { .. } => drop(last.insert(id, *count)),
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        });
    }

    fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    fn run_to_end(&mut self) {
        while !self.scheduler.is_idle() {
            self.step();
            assert!(self.count < 20_000, "it does not end");
        }
    }

    fn stats(&self) -> SchedulerStats {
        self.scheduler.stats(&self.engine)
    }
}

#[test]
fn a_request_starts_at_once_beside_one_with_many_prompts() {
    let mut steps = Steps::new(ENGINE, SCHEDULER.with_max_num_seqs(4));
    let many = steps.submit_group(100, 10, 50);
    steps.run(20);
    assert_eq!(steps.stats().running, 4);
    let small = steps.submit(Request::new(prompt(500, 10), greedy(5)));
    let submitted = steps.count;
    while !steps.last.contains_key(&small) {
        steps.step();
    }
    assert_eq!(steps.first[&small] - submitted, 1, "its first token");
    assert_eq!(steps.last[&small] - submitted, 5, "a token in each step");
    steps.run_to_end();
    // The one that made way has the tokens that it has alone.
    assert!(steps.stats().preemptions > 0);
    let mut engine = engine(&tiny(), ENGINE);
    for (seed, id) in many.iter().enumerate() {
        let expected = alone(&mut engine, &prompt(seed as u32, 10), &greedy(50)).ids;
        assert_eq!(steps.tokens[&(*id, 0)], expected, "{seed}");
    }
}

#[test]
fn a_request_starts_at_once_beside_one_with_many_choices() {
    let mut steps = Steps::new(ENGINE, SCHEDULER.with_max_num_seqs(8));
    let many = steps.submit(Request::new(prompt(1, 10), sampled(1, 60)).with_num_choices(64));
    steps.run(10);
    assert_eq!(steps.stats().running, 8);
    // As many of the other request as of the first one.
    let other = steps.submit(Request::new(prompt(2, 10), sampled(2, 60)).with_num_choices(64));
    steps.run(70);
    let finished = |steps: &Steps, id| {
        let of = |(request, _): &&(RequestId, usize)| *request == id;
        steps.tokens.keys().filter(of).count()
    };
    assert_eq!(steps.first[&other], 11);
    let (a, b) = (finished(&steps, many), finished(&steps, other));
    assert!(a.abs_diff(b) <= 8, "{a} and {b} choices have begun");
    steps.run_to_end();
    let mut engine = engine(&tiny(), ENGINE);
    for (id, seed) in [(many, 1), (other, 2)] {
        for choice in 0..64 {
            let options = sampled(seed + choice, 60);
            let expected = alone(&mut engine, &prompt(seed as u32, 10), &options).ids;
            assert_eq!(steps.tokens[&(id, choice as usize)], expected, "{seed}, choice {choice}");
        }
    }
}

#[test]
fn groups_take_turns_for_one_slot() {
    let mut steps = Steps::new(ENGINE, SCHEDULER.with_max_num_seqs(1));
    let a = steps.submit_group(4, 5, 3);
    let b = steps.submit_group(2, 5, 3);
    let c = steps.submit(Request::new(prompt(9, 5), greedy(3)));
    steps.run_to_end();
    assert_eq!(steps.started, [a[0], b[0], c, a[1], b[1], a[2], a[3]]);
}

#[test]
fn a_request_that_holds_all_pages_gives_some_back() {
    // Room for three sequences of ten pages.
    let small = ENGINE.with_kv_tokens(Some(3 * 160));
    let mut steps = Steps::new(small, SCHEDULER);
    steps.submit_group(30, 100, 60);
    steps.run(30);
    let other = steps.submit(Request::new(prompt(99, 100), greedy(20)));
    let submitted = steps.count;
    while !steps.last.contains_key(&other) {
        steps.step();
    }
    // Its prompt takes 100 tokens of at least 30 per step.
    let (first, last) = (steps.first[&other] - submitted, steps.last[&other] - submitted);
    assert!(first <= 4 && last <= first + 20, "{first}, {last}");
    steps.run_to_end();
}

#[test]
fn a_request_runs_no_more_sequences_than_it_may() {
    let options = SCHEDULER.with_max_seqs_per_request(3);
    let mut steps = Steps::new(ENGINE, options);
    steps.submit_group(10, 10, 20);
    steps.submit(Request::new(prompt(1, 10), sampled(1, 20)).with_num_choices(10));
    let mut most = 0;
    while !steps.scheduler.is_idle() {
        steps.step();
        most = most.max(steps.stats().running);
    }
    assert_eq!(most, 6);
}

/// A step has room for this many tokens.
const STEP: usize = 16;

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let options = SCHEDULER.with_max_batched_tokens(STEP).with_max_num_seqs(8);
    let mut steps = Steps::new(ENGINE, options);
    let long = steps.submit(Request::new(prompt(1, 150), greedy(4)));
    steps.run(2);
    let short = steps.submit(Request::new(prompt(2, 8), greedy(4)));
    let next = steps.submit(Request::new(prompt(3, 140), greedy(4)));
    let after = steps.submit(Request::new(prompt(4, 7), greedy(4)));
    steps.run_to_end();
    // Half of a step is theirs.
    assert!(steps.first[&after] <= 4, "{:?}", steps.first);
    assert!(steps.first[&short] <= 5, "{:?}", steps.first);
    assert!(steps.first[&long] < steps.first[&next], "{:?}", steps.first);
    // Alone it takes 10 steps.
    assert!(steps.first[&long] <= 12, "{:?}", steps.first);
}

#[test]
fn short_prompts_delay_a_long_one_by_a_factor_of_two_at_most() {
    let options = SCHEDULER.with_max_batched_tokens(STEP).with_max_num_seqs(STEP);
    let mut steps = Steps::new(ENGINE, options);
    let long = steps.submit(Request::new(prompt(1, 144), greedy(1)));
    // More short prompts than a step has room for, in each step.
    for seed in 0..60 {
        for more in 0..2 {
            steps.submit(Request::new(prompt(100 + 2 * seed + more, STEP as u32), greedy(1)));
        }
        steps.step();
    }
    let alone = 144 / STEP;
    assert!((alone + 1..=2 * alone).contains(&steps.first[&long]), "{:?}", steps.first[&long]);
    steps.run_to_end();
}

#[test]
fn prompts_of_the_same_length_are_computed_in_order() {
    let options = SCHEDULER.with_max_batched_tokens(STEP);
    let mut steps = Steps::new(ENGINE, options);
    let ids: Vec<_> =
        (0..5).map(|seed| steps.submit(Request::new(prompt(seed, 64), greedy(1)))).collect();
    steps.run_to_end();
    let first: Vec<_> = ids.iter().map(|id| steps.first[id]).collect();
    assert_eq!(first, [4, 8, 12, 16, 20]);
}

#[test]
fn a_request_waits_for_those_before_it_at_most() {
    // The bound of the documentation: single requests start in the order of their arrival.
    let mut steps = Steps::new(ENGINE, SCHEDULER.with_max_num_seqs(2));
    let ids: Vec<_> =
        (0..9).map(|seed| steps.submit(Request::new(prompt(seed, 5), greedy(7)))).collect();
    steps.run_to_end();
    assert_eq!(steps.started, ids);
    for (index, id) in ids.iter().enumerate() {
        assert!(steps.first[id] <= 7 * (index / 2) + 1, "{index}: {:?}", steps.first);
    }
}

/// Allows every token, but takes long to say so.
struct Slow(Duration);

impl Constraint for Slow {
    fn allowed(&mut self) -> Result<TokenMask, ConstraintError> {
        sleep(self.0);
        Ok(TokenMask::from_words(vec![u32::MAX; VOCAB_SIZE.div_ceil(32)]))
    }

    fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
        Ok(())
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self(self.0))
    }
}

#[test]
fn slow_constraints_take_turns() {
    let mut steps = Steps::new(ENGINE, SCHEDULER.with_max_num_seqs(16));
    let free = steps.submit(Request::new(prompt(1, 10), greedy(20)));
    let submit = |steps: &mut Steps, seed, millis| {
        let constraint = Box::new(Slow(Duration::from_millis(millis)));
        let request = Request::new(prompt(seed, 10), greedy(5)).with_constraint(Some(constraint));
        steps.submit(request)
    };
    let mut slow: Vec<_> = (2..9).map(|seed| submit(&mut steps, seed, 40)).collect();
    // One alone exceeds the time of a step.
    slow.push(submit(&mut steps, 9, 150));
    let generated = |steps: &Steps, id| steps.tokens.get(&(id, 0)).map_or(0, Vec::len);
    let all = |steps: &Steps| slow.iter().map(|id| generated(steps, *id)).sum::<usize>();
    // How long a constraint takes is known after its first token.
    while slow.iter().any(|id| generated(&steps, *id) == 0) {
        steps.step();
    }
    while !steps.scheduler.is_idle() {
        let before = (generated(&steps, free), all(&steps));
        steps.step();
        assert_eq!(generated(&steps, free), (before.0 + 1).min(20), "it never waits");
        assert!(all(&steps) - before.1 <= 2, "step {}", steps.count);
        assert!(steps.count < 100, "all have their turn");
    }
    let mut engine = engine(&tiny(), ENGINE);
    for (seed, id) in (2..).zip(slow) {
        let expected = alone(&mut engine, &prompt(seed, 10), &greedy(5)).ids;
        assert_eq!(steps.tokens[&(id, 0)], expected, "{seed}");
    }
}
