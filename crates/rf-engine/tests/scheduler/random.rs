//! Random requests on random schedulers.

use std::ops::ControlFlow;

use proptest::prelude::*;
use rf_engine::GenerateOptions;
use rf_engine::scheduler::{Request, Scheduler};

use crate::constraints::{Fault, Phrases, phrases};
use crate::support::{
    ENGINE, PAGE_TOKENS, SCHEDULER, alone, end, engine, greedy, prompt, sampled, submit, tiny,
};

/// A request of a test case.
#[derive(Clone, Debug)]
struct Plan {
    prompt: Vec<u32>,
    max_tokens: usize,
    num_choices: usize,
    priority: i32,
    seed: Option<u64>,
    is_constrained: bool,
    use_prefix_cache: bool,
    /// The sink breaks after so many events.
    breaks_after: Option<usize>,
}

impl Plan {
    fn options(&self, choice: usize) -> GenerateOptions {
        match self.seed {
            Some(seed) => sampled(seed + choice as u64, self.max_tokens),
            None => greedy(self.max_tokens),
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    // Few different prompts, so that prefixes are shared.
    let ids = (0_u32..3, 1_u32..100).prop_map(|(seed, tokens)| prompt(seed, tokens));
    let ends = (0_usize..60, prop::option::weighted(0.2, 0_usize..40));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.9));
    (ids, ends, 1_usize..4, -1_i32..2, prop::option::of(0_u64..9), flags).prop_map(
        |(prompt, (max_tokens, breaks_after), num_choices, priority, seed, flags)| Plan {
            prompt,
            max_tokens,
            num_choices,
            priority,
            seed,
            is_constrained: flags.0,
            use_prefix_cache: flags.1,
            breaks_after,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_each_alone(
        plans in prop::collection::vec(plan(), 1..14),
        kv_pages in 10_usize..40,
        max_num_seqs in 1_usize..12,
        max_batched_tokens in 1_usize..64,
        prefix_cache in prop::bool::weighted(0.8),
    ) {
        let mut alone_engine = engine(&tiny(), ENGINE);
        let kv_tokens = Some(kv_pages * PAGE_TOKENS);
        let options = SCHEDULER
            .with_max_num_seqs(max_num_seqs)
            .with_max_batched_tokens(max_batched_tokens)
            .with_prefix_cache(prefix_cache);
        let engine = engine(&tiny(), ENGINE.with_kv_tokens(kv_tokens));
        let scheduler = Scheduler::start(engine, options).unwrap();
        let handle = scheduler.handle();
        let mut pending = Vec::new();
        for plan in &plans {
            let change = |request: &mut Request| {
                request.num_choices = plan.num_choices;
                request.priority = plan.priority;
                request.use_prefix_cache = plan.use_prefix_cache;
                request.constraint =
                    plan.is_constrained.then(|| Phrases::boxed(&phrases(), true, Fault::None));
            };
            if let Some(mut left) = plan.breaks_after {
                let mut request = Request::new(plan.prompt.clone(), plan.options(0));
                change(&mut request);
                let sink = move |_| {
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                handle.submit(request, sink).unwrap();
                continue;
            }
            let (_, events) = submit(&handle, &plan.prompt, &plan.options(0), change);
            pending.push((plan, events));
        }
        for (plan, events) in pending {
            for (choice, answer) in events.answers().unwrap().into_iter().enumerate() {
                if plan.is_constrained {
                    let is_allowed = phrases().iter().any(|p| p.starts_with(&answer.ids));
                    prop_assert!(is_allowed, "{plan:?}: {:?}", answer.ids);
                    prop_assert_eq!(answer.ids.len(), plan.max_tokens.min(12));
                } else {
                    let expected = alone(&mut alone_engine, &plan.prompt, &plan.options(choice));
                    prop_assert_eq!(answer.ids, expected.ids, "{:?}, choice {}", plan, choice);
                }
            }
        }
        end(scheduler);
    }
}
