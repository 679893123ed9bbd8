//! The cycles of files that rule *circles* accepts.

/// A set of files that may form a cycle.
pub(in crate::tidy) struct Exception {
    /// Paths from the root of the checkout.
    pub(in crate::tidy) files: &'static [&'static str],
    /// The reason for the exception, in the words of ARCHITECTURE.md.
    pub(in crate::tidy) reason: &'static str,
}

pub(in crate::tidy) const EXCEPTIONS: &[Exception] = &[
    Exception {
        files: &[
            "crates/rf-cpu/src/exec/attention.rs",
            "crates/rf-cpu/src/exec/experts.rs",
            "crates/rf-cpu/src/exec/heads.rs",
            "crates/rf-cpu/src/exec/matmul.rs",
            "crates/rf-cpu/src/exec/memory.rs",
            "crates/rf-cpu/src/exec.rs",
            "crates/rf-cpu/src/exec/phases.rs",
            "crates/rf-cpu/src/exec/recurrent.rs",
            "crates/rf-cpu/src/exec/reduce.rs",
            "crates/rf-cpu/src/exec/rows.rs",
            "crates/rf-cpu/src/exec/steps.rs",
        ],
        reason: "the steps are methods of one type, the parallel region, in one file per kind of op",
    },
    Exception {
        files: &[
            "crates/rf-emu-hip/src/runtime/capture.rs",
            "crates/rf-emu-hip/src/runtime/copy.rs",
            "crates/rf-emu-hip/src/runtime/event.rs",
            "crates/rf-emu-hip/src/runtime/graph.rs",
            "crates/rf-emu-hip/src/runtime/launch.rs",
            "crates/rf-emu-hip/src/runtime.rs",
            "crates/rf-emu-hip/src/runtime/module.rs",
            "crates/rf-emu-hip/src/runtime/stream.rs",
        ],
        reason: "the calls are methods of one type, the runtime, in one file per kind of object",
    },
];
