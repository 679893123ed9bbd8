//! The op vocabulary of ROCmForge: what a model asks for and what a backend must compute.
//!
//! A model (rf-model) writes its layers with [`GraphBuilder`]; [`fuse()`] rewrites the graph into the
//! fused forms that a backend takes; [`Plan`] assigns buffers; a [`Backend`] compiles the whole into
//! an [`Executor`]. [`ReferenceBackend`] is the definition of every op (f64 sums, no cleverness).
//! [`case`] is the one table of small programs: [`conformance`] checks backends with it, benchmarks
//! time it.
//!
//! Start reading at [`Op`]. In the layering this crate stands above rf-quant and rf-kv and below
//! every backend and rf-model.
//!
//! Invariants: this crate names no backend, no file format and no model architecture; a fused op
//! computes what its unfused ops compute.
//!
//! ```
//! use rf_graph::{DType, GraphBuilder, Weight};
//!
//! let mut g = GraphBuilder::new();
//! let table = g.weight(Weight::f32("embedding", 4, 2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
//! let norm = g.weight(Weight::f32("norm", 1, 2, vec![1.0, 1.0]));
//! let x = g.embed(table, 1.0);
//! let y = g.rms_norm(x, norm, 1e-5);
//! let (graph, weights) = g.finish(y);
//! assert_eq!(graph.ops().len(), 2);
//! assert_eq!(weights[0].dtype(), DType::F32);
//! ```
//!
//! A case of the table: its cost, and a check of a backend against the reference.
//!
//! ```
//! use rf_graph::case::{Schedule, matmul};
//! use rf_graph::conformance::{Outcome, check};
//! use rf_graph::{DType, ReferenceBackend};
//!
//! let case = matmul(DType::Q8_0, 64, 256, Schedule::batches(&[1, 5]));
//! assert_eq!(case.cost().int8_operations, 2 * 5 * 64 * 256);
//! assert!(matches!(check(&ReferenceBackend, &case), Ok(Outcome::Passed { .. })));
//! ```

mod backend;
pub mod case;
pub mod conformance;
mod cost;
mod fuse;
mod graph;
mod op;
mod op_cost;
mod plan;
pub mod reference;
mod split;
mod telemetry;
mod weight;

pub use backend::{
    Backend, BackendError, Batch, BatchLimits, Candidate, Executor, KvLayout, KvType, MemoryUse,
    Program, Progress, Span,
};
pub use cost::Costs;
pub use fuse::{Fusions, fuse};
pub use graph::{Graph, GraphBuilder, RowKind, Value};
pub use op::{
    Activation, Attention, MatMul, Op, Projection, Prologue, QkNorm, Rope, RopeStyle, ValueId,
    WeightId,
};
pub use op_cost::{OpCost, Peak};
pub use plan::Plan;
pub use reference::ReferenceBackend;
pub use rf_quant::DType;
pub use split::{Split, SplitError, split};
pub use telemetry::{
    BackendExecutionSummary, OpSummary, Timeline, TimelineEvent, TimelineTrack, TrackKind,
};
pub use weight::{Weight, WeightBytes};
