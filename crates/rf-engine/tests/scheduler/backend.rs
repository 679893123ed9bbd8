//! Failures of the backend, and backends that select the best tokens.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rf_cpu::CpuBackend;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Request, RequestError, Scheduler};
use rf_engine::{Engine, Error, Model};
use rf_graph::{
    Backend, BackendError, Batch, Candidate, Executor, Fusions, MemoryNeed, MemoryUse, Output,
    OutputRows, Program, Progress,
};
use rf_kv::CopyPage;

use crate::support::{
    ENGINE, SCHEDULER, VOCAB_SIZE, alone, ask, cpu, end, engine, greedy, prompt, sampled, submit,
    tiny, with_sampler,
};

/// Faults to inject into the executor, and counts of its calls.
#[derive(Debug, Default)]
struct Control {
    /// Batches of this many tokens fail; 0 for none.
    fails_at_tokens: AtomicUsize,
    panics: AtomicBool,
    max_top_k: usize,
    top_k_calls: AtomicUsize,
    calls: AtomicUsize,
}

/// A CPU with a [`Control`].
struct Controlled(CpuBackend, Arc<Control>);

struct ControlledExecutor(Box<dyn Executor>, Arc<Control>);

impl Backend for Controlled {
    fn name(&self) -> &'static str {
        "test"
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn fusions(&self) -> Fusions {
        self.0.fusions()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.0.available_memory_bytes()
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        self.0.memory_need(program)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let executor = self.0.compile(program, progress)?;
        Ok(Box::new(ControlledExecutor(executor, Arc::clone(&self.1))))
    }
}

impl Executor for ControlledExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let OutputRows::TopK { k, best } = output.rows else {
            self.1.calls.fetch_add(1, Ordering::Relaxed);
            if batch.ids.len() == self.1.fails_at_tokens.load(Ordering::Relaxed) {
                assert!(!self.1.panics.load(Ordering::Relaxed), "a bug in the backend");
                return Err(BackendError::Device("the device is lost".into()));
            }
            return self.0.forward(batch, output);
        };
        self.1.top_k_calls.fetch_add(1, Ordering::Relaxed);
        let mut logits = vec![0.0; batch.output_rows.len() * VOCAB_SIZE];
        self.0.forward(batch, Output::rows(&mut logits))?;
        for (row, best) in logits.chunks_exact(VOCAB_SIZE).zip(best.chunks_exact_mut(k)) {
            let mut all: Vec<Candidate> =
                (0..).zip(row).map(|(id, logit)| Candidate { id, logit: *logit }).collect();
            all.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
            best.copy_from_slice(&all[..k]);
        }
        Ok(())
    }

    fn max_top_k(&self) -> usize {
        self.1.max_top_k
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        self.0.copy_pages(copies)
    }

    fn memory(&self) -> MemoryUse {
        self.0.memory()
    }
}

fn controlled(control: Control) -> (Scheduler, Arc<Control>) {
    let control = Arc::new(control);
    let backend = Controlled(cpu(), Arc::clone(&control));
    let engine = Engine::load(Model::open(tiny()).unwrap(), &backend, ENGINE, &mut |_| ()).unwrap();
    // Without the prefix cache every prompt is computed.
    let options = SCHEDULER.with_prefix_cache(false);
    (Scheduler::start(engine, options).unwrap(), control)
}

#[test]
fn a_failed_batch_fails_its_requests_and_no_others() {
    for panics in [false, true] {
        let (scheduler, control) = controlled(Control::default());
        let handle = scheduler.handle();
        let ids = prompt(1, 30);
        let expected = ask(&handle, &ids, &greedy(20)).ids;
        control.panics.store(panics, Ordering::Relaxed);
        control.fails_at_tokens.store(30, Ordering::Relaxed);
        let (_, events) = submit(&handle, &ids, &greedy(20), |r| r.num_choices = 2);
        match events.answers().unwrap_err() {
            RequestError::Engine(error) if !panics => {
                assert!(matches!(*error, Error::Backend(BackendError::Device(_))));
            }
            RequestError::Panicked(message) if panics => {
                assert_eq!(message, "a bug in the backend");
            }
            other => panic!("{other:?}"),
        }
        let stats = handle.stats();
        assert_eq!((stats.running, stats.kv_pages_used, stats.finished.failed), (0, 0, 2));
        let failed_steps = || handle.device_failure().map(|failure| failure.steps);
        if !panics {
            let (_, again) = submit(&handle, &ids, &greedy(20), |_| ());
            assert!(again.answers().is_err());
            wait_until(|| failed_steps() == Some(2));
        }
        control.fails_at_tokens.store(0, Ordering::Relaxed);
        assert_eq!(ask(&handle, &ids, &greedy(20)).ids, expected);
        wait_until(|| failed_steps().is_none());
        end(scheduler);
    }
}

/// The last event of a request comes before the end of its step.
fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

#[test]
fn the_best_tokens_of_a_backend_give_the_same_answers() {
    let mut alone_engine = engine(&tiny(), ENGINE);
    let (scheduler, control) = controlled(Control { max_top_k: 64, ..Control::default() });
    let handle = scheduler.handle();
    let top_k = |top_k, seed| {
        let sampler =
            SamplerConfig::default().with_top_k(top_k).with_temperature(2.0).with_seed(seed);
        with_sampler(sampler, 20)
    };
    let few = [greedy(20), sampled(1, 20), top_k(64, 2), top_k(3, 3)];
    let mut compare = |requests: &[rf_engine::GenerateOptions]| {
        let events: Vec<_> = requests
            .iter()
            .zip(0..)
            .map(|(options, seed)| submit(&handle, &prompt(seed, 20), options, |_| ()).1)
            .collect();
        for ((events, options), seed) in events.into_iter().zip(requests).zip(0..) {
            let expected = alone(&mut alone_engine, &prompt(seed, 20), options).ids;
            assert_eq!(events.answer().ids, expected, "{options:?}");
        }
    };
    compare(&few);
    assert_eq!(control.calls.load(Ordering::Relaxed), 0, "no whole rows");
    assert!(control.top_k_calls.load(Ordering::Relaxed) >= 20);
    // One that needs all logits, or more than the backend selects, is no harm to the others.
    for more in [top_k(65, 4), top_k(0, 5)] {
        let requests = [&few[..], &[more]].concat();
        compare(&requests);
    }
    assert!(control.calls.load(Ordering::Relaxed) > 0);
    end(scheduler);
}

#[test]
fn a_request_without_a_receiver_is_not_computed() {
    let (scheduler, control) = controlled(Control::default());
    let handle = scheduler.handle();
    ask(&handle, &[1, 2, 3], &greedy(5));
    assert_eq!(control.calls.load(Ordering::Relaxed), 5);
    let gone = Request::new(vec![1], greedy(5));
    handle.submit(gone, |_| ControlFlow::Break(())).unwrap();
    ask(&handle, &[1, 2, 3], &greedy(5));
    assert_eq!(control.calls.load(Ordering::Relaxed), 10);
    assert_eq!(end(scheduler).finished.cancelled, 1);
}
