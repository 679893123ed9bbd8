//! The op vocabulary of ROCmForge: the ops of a model and their definition for every backend.
//!
//! A model writes its layers with [`GraphBuilder`]. [`fuse()`] rewrites the graph into the fused
//! ops that a backend supports, [`Plan`] assigns buffers, and a [`Backend`] compiles the program
//! into an [`Executor`]. [`HybridBackend`] runs one program on several backends.
//! [`ReferenceBackend`] defines every op with scalar code and f64 sums.
//! [`case`] is the only table of small programs: [`conformance`] checks backends with it, and
//! benchmarks time it.
//!
//! Start reading at [`Op`]. The crate depends on rf-quant and rf-kv; backends and rf-model depend
//! on it.
//!
//! Invariants: this crate names no backend, no file format and no model architecture; a fused op
//! computes the same as the ops that it replaces.
//!
//! A program that looks up embeddings, normalises them and multiplies them by a matrix:
//!
//! ```
//! use rf_graph::{
//!     Backend, Batch, Fusions, GraphBuilder, KvLayout, KvType, Op, Output, Program,
//!     ReferenceBackend, Span, Weight, fuse,
//! };
//!
//! let mut g = GraphBuilder::new();
//! let table = g.weight(Weight::f32("embedding", 3, 2, [1.0, 1.0, 3.0, -3.0, 0.0, 2.0]));
//! let norm = g.weight(Weight::f32("norm", 1, 2, [1.0, 1.0]));
//! let output = g.weight(Weight::f32("output", 1, 2, [2.0, 1.0]));
//! let x = g.embed(table, 1.0);
//! let x = g.rms_norm(x, norm, 0.0);
//! let logits = g.matmul(x, output);
//! let (graph, weights) = g.finish(logits);
//!
//! let graph = fuse(graph, Fusions::PROLOGUES);
//! let names: Vec<_> = graph.ops().iter().map(Op::name).collect();
//! assert_eq!(names, ["embed", "rms_norm+matmul"]);
//!
//! let kv = KvLayout::new(vec![], 16, 1, KvType::F16);
//! let program = Program { graph, weights, kv, max_batch_tokens: 2, max_output_rows: 2 };
//! let mut executor = ReferenceBackend.compile(program, &mut |_| ())?;
//! let pages = [rf_kv::PageId::new(0)];
//! let (window_pages, state) = (&[][..], None);
//! let batch = Batch {
//!     ids: &[0, 1],
//!     spans: &[Span { tokens: 0..2, past_tokens: 0, pages: &pages, window_pages, state }],
//!     output_rows: &[],
//!     input: None,
//! };
//! let mut out = [0.0; 2];
//! executor.forward(&batch, Output::rows(&mut out))?;
//! assert_eq!(out, [3.0, 1.0]);
//! # Ok::<(), rf_graph::BackendError>(())
//! ```
//!
//! The cost of a case of the table, and the check of a backend against the reference:
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
mod batch;
pub mod case;
pub mod conformance;
mod cost;
mod error;
mod fuse;
mod graph;
mod hybrid;
mod input;
mod kv;
pub mod layer;
mod memory;
mod observe;
mod op;
mod op_cost;
mod output;
mod plan;
mod program;
pub mod reference;
mod split;
mod telemetry;
mod value;
mod weight;

pub use backend::{Backend, Executor, Progress};
pub use batch::{Batch, BatchLimits, Span};
pub use cost::Costs;
pub use error::BackendError;
pub use fuse::{Fusions, WeightRule, fuse};
pub use graph::{Graph, Stage};
pub use hybrid::HybridBackend;
pub use input::{Input, QueuedRows};
pub use kv::{KvLayer, KvLayout, KvType, StateShape};
pub use memory::{MemoryNeed, MemoryUse};
pub use observe::{Observation, Observed, observe};
pub use op::{
    Activation, Attention, CausalConv, Combine, DeltaHeads, DeltaNet, Epilogue, ExpertGroups,
    ExpertMatMul, ExpertProjection, Function, GateFunction, GraphBuilder, MatMul, Op, Operand,
    PositionScale, Projection, Prologue, QkNorm, Rope, RopeAppend, RopeStyle, Router, RowNorm,
    StateSpace, StateSpaceHeads,
};
pub use op_cost::{OpCost, Peak};
pub use output::{Candidate, Output, OutputRows};
pub use plan::Plan;
pub use program::Program;
pub use reference::ReferenceBackend;
pub use rf_kv::{CopyPage, PageCounts, PageGroup, PageId};
pub use rf_quant::DType;
pub use split::{Layout, Side, Split, SplitError, Turn, split};
pub use telemetry::{
    BackendExecutionSummary, OpSummary, Telemetry, Timeline, TimelineEvent, TimelineTrack,
    TrackKind,
};
pub use value::{RowKind, Storage, Value, ValueId, WeightId};
pub use weight::{NonFiniteWeight, Weight, WeightBytes, WeightShape};
