//! A backend decorator that plants slow-downs, to test their detection.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use rf_bench::rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Batch, Executor, Fusions, MemoryNeed,
    MemoryUse, Op, Output, Program, Progress, Telemetry, Timeline, WeightId,
};
use rf_kv::CopyPage;

/// A slow-down: ops of this name, and of this format if one is given, take `factor` times as long.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    op: String,
    format: Option<String>,
    factor: f64,
}

impl Rule {
    /// Parses `OP=FACTOR` or `OP:FORMAT=FACTOR`, as in `matmul:Q8_0=1.05`. OP is the name in
    /// profiles ([`Op::name`]).
    ///
    /// # Errors
    ///
    /// A message with the expected form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (what, factor) = text.split_once('=')?;
            let (op, format) = match what.split_once(':') {
                Some((op, format)) => (op, Some(format.to_owned())),
                None => (what, None),
            };
            // The upper bound avoids runs that appear to hang.
            let factor = factor.parse().ok().filter(|f| (1.0..=1000.0).contains(f))?;
            let is_named = !op.is_empty() && format.as_deref() != Some("");
            is_named.then(|| Self { op: op.to_owned(), format, factor })
        };
        parsed().ok_or_else(|| {
            format!("'{text}' is not OP=FACTOR or OP:FORMAT=FACTOR with a factor of at least 1")
        })
    }

    /// Returns true if the program has ops of this name, all of them in the format.
    fn applies(&self, program: &Program) -> bool {
        let mut ops = program.graph.ops().iter().filter(|op| op.name() == self.op).peekable();
        ops.peek().is_some() && ops.all(|op| self.matches(op, program))
    }

    fn matches(&self, op: &Op, program: &Program) -> bool {
        let Some(format) = &self.format else { return true };
        let has =
            |id: &WeightId| program.weights[id.index()].dtype().name().eq_ignore_ascii_case(format);
        match op {
            Op::Embed { table, .. } => has(table),
            Op::MatMul(matmul) => matmul.projections.iter().all(|one| has(&one.weight)),
            Op::ExpertMatMul(m) => m.projections.iter().flat_map(|p| &p.weights).all(has),
            Op::Attention { .. } | Op::KvAppend { .. } | Op::RopeAppend { .. } => {
                program.kv.dtype.name().eq_ignore_ascii_case(format)
            }
            _ => false,
        }
    }
}

/// A backend whose programs run the ops of a rule more slowly.
pub(crate) struct Planted {
    inner: Box<dyn Backend>,
    rule: Rule,
}

impl Planted {
    /// Decorates a backend.
    pub(crate) fn new(inner: Box<dyn Backend>, rule: Rule) -> Self {
        Self { inner, rule }
    }
}

impl Backend for Planted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn description(&self) -> String {
        let Rule { op, format, factor } = &self.rule;
        let format = format.as_deref().unwrap_or("all formats");
        format!(
            "{}; planted: {op} of {format} takes {factor} times as long",
            self.inner.description()
        )
    }

    fn fusions(&self) -> Fusions {
        self.inner.fusions()
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.inner.available_memory_bytes()
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        self.inner.memory_need(program)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let applies = self.rule.applies(&program);
        let mut inner = self.inner.compile(program, progress)?;
        if !applies {
            return Ok(inner);
        }
        let Some(telemetry) = inner.telemetry() else {
            return Err(BackendError::Device("the backend measures no time per op".to_owned()));
        };
        telemetry.profile(true);
        let rule = self.rule.clone();
        Ok(Box::new(Slowed { inner, rule, seen: Duration::ZERO, added: Duration::ZERO }))
    }
}

/// An executor that waits after each batch for the time that the slow-down adds.
struct Slowed {
    inner: Box<dyn Executor>,
    rule: Rule,
    /// Time of the slowed ops in the profile so far.
    seen: Duration,
    /// Time waited since the profile began.
    added: Duration,
}

impl Slowed {
    fn time_of_ops(&mut self) -> Duration {
        let summaries = self.inner.telemetry().map_or_else(Vec::new, Telemetry::summaries);
        let op = summaries.iter().find_map(|summary| summary.ops.get(self.rule.op.as_str()));
        op.map_or(Duration::ZERO, |op| op.time)
    }

    fn wait(&mut self) {
        let start = Instant::now();
        let now = self.time_of_ops();
        let until = start + now.saturating_sub(self.seen).mul_f64(self.rule.factor - 1.0);
        while Instant::now() < until {
            spin_loop();
        }
        self.seen = now;
        self.added += start.elapsed();
    }
}

impl Executor for Slowed {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        self.inner.forward(batch, output)?;
        self.wait();
        Ok(())
    }

    fn max_top_k(&self) -> usize {
        self.inner.max_top_k()
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        self.inner.copy_pages(copies)
    }

    fn memory(&self) -> MemoryUse {
        self.inner.memory()
    }

    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        Some(self)
    }
}

impl Telemetry for Slowed {
    /// The profile is always on: the slow-down depends on it.
    fn profile(&mut self, on: bool) {
        if on {
            if let Some(inner) = self.inner.telemetry() {
                inner.profile(true);
            }
            (self.seen, self.added) = (Duration::ZERO, Duration::ZERO);
        }
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        self.inner.telemetry().is_some_and(|inner| inner.record_timeline(max_events))
    }

    fn timelines(&mut self) -> Vec<Timeline> {
        self.inner.telemetry().map_or_else(Vec::new, Telemetry::timelines)
    }

    /// The inner executor has one backend.
    fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        let mut summaries = self.inner.telemetry().map_or_else(Vec::new, Telemetry::summaries);
        for summary in &mut summaries {
            summary.time += self.added;
            if let Some(op) = summary.ops.get_mut(self.rule.op.as_str()) {
                op.time += self.added;
            }
        }
        summaries
    }
}
