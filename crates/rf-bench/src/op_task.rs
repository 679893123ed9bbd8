//! Tasks of the case table: one op, timed by the executor.

use rf_oracle::case::{Case, CaseShape, Timer};
use rf_oracle::rf_graph::{OpCost, OperandFormat};

use crate::{Clock, Error, Prepared, Suite, Target, Task};

/// Bytes of all copies of an operand that decode reads once per token. No cache of a host or a
/// device holds as much.
const COLD_BYTES: u64 = 256 << 20;

/// The most copies of an operand.
const MAX_COPIES: u64 = 256;

/// Tokens of a batch up to which an op is bound by reading its weights or its cache, as in decode.
const DECODE_TOKENS: usize = 8;

/// An op of the case table.
#[derive(Clone, Debug)]
pub(crate) struct OpTask {
    name: String,
    suite: Suite,
    case: Case,
}

impl OpTask {
    pub(crate) fn new(name: String, suite: Suite, case: Case) -> Self {
        Self { name, suite, case }
    }

    /// In decode a model reads each of its weights and caches from memory once per token. A run
    /// reads as many copies as it takes to exceed every cache; its time is that of one copy.
    fn copies(&self) -> usize {
        let is_decode = self.case.timed_batch().tokens() <= DECODE_TOKENS
            && matches!(self.case.shape(), CaseShape::Matrix { .. } | CaseShape::Heads { .. });
        if !is_decode {
            return 1;
        }
        COLD_BYTES.div_ceil(self.case.cost().bytes.max(1)).clamp(1, MAX_COPIES) as usize
    }
}

impl Task for OpTask {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn suite(&self) -> Suite {
        self.suite
    }

    fn cost(&self) -> OpCost {
        self.case.cost()
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        let copies = self.copies();
        let program = self.case.timed_program(copies);
        target.backend().check_memory(&program)?;
        let backend = target.backend();
        let mut timer = Timer::new(backend, &self.case, program)?;
        if !timer.profile() {
            let name = backend.name();
            return Err(Error::Unsupported(format!("the {name} backend does not time ops")));
        }
        Ok(Prepared::new(Clock::Op, move || Ok(timer.op_time()? / copies as u32)))
    }
}

/// The format of a case as a word in names: `q4_k`.
pub(crate) fn format_name(case: &Case) -> String {
    case.format().map_or("", OperandFormat::name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use rf_oracle::case::{Schedule, attention, embed, kv_append, matmul};
    use rf_oracle::conformance::{CaseOutcome, check};
    use rf_oracle::rf_graph::{DType, KvType};

    use super::*;

    fn task(case: Case) -> OpTask {
        OpTask::new("a test".to_owned(), Suite::Matmul, case)
    }

    #[test]
    fn decode_reads_more_than_caches_hold_and_prefill_reads_once() {
        let decode = |dtype, tokens| task(matmul(dtype, 4096, 4096, Schedule::single(tokens)));
        // 64 MiB and the rows of x and y.
        assert_eq!(decode(DType::F32, 1).copies(), 4);
        assert_eq!(decode(DType::Q4_0, 8).copies(), 28);
        assert_eq!(decode(DType::Q4_0, 512).copies(), 1);
        let heads = [32, 8, 128];
        let attention =
            |past, tokens| task(attention(KvType::F16, heads, Schedule::at_depth(past, tokens)));
        assert_eq!(attention(4096, 1).copies(), 16);
        assert_eq!(attention(0, 128).copies(), 1);
        let append = kv_append(KvType::F16, [2, 2, 32], Schedule::single(1));
        assert_eq!(task(append).copies(), 1);
    }

    #[test]
    fn timed_cases_conform_on_the_cpu_and_are_timed() {
        let target = Target::cpu(Some(2), None).unwrap();
        let mut cases = vec![kv_append(KvType::F16, [3, 2, 32], Schedule::single(40))];
        for dtype in DType::ALL {
            cases.push(embed(dtype, 40, 256));
            cases.push(matmul(dtype, 64, 256, Schedule::single(20)));
        }
        for kv in KvType::ALL {
            cases.push(attention(kv, [4, 2, 32], Schedule::single(40)));
            cases.push(attention(kv, [4, 2, 32], Schedule::at_depth(600, 9)));
        }
        for case in cases {
            let outcome = check(target.backend(), &case).unwrap();
            assert!(matches!(outcome, CaseOutcome::Passed { .. }), "{case:?}");
            let mut prepared = task(case.clone()).prepare(&target).unwrap();
            assert_eq!(prepared.clock(), Clock::Op);
            assert!(!prepared.run().unwrap().is_zero(), "{case:?}");
        }
    }
}
