//! The op vocabulary of ROCmForge: the ops of a model, and what all backends share.
//!
//! A model writes its layers with [`GraphBuilder`]. [`fuse()`] rewrites the graph into the fused
//! ops that a backend supports, [`Plan`] assigns buffers, and a [`Backend`] compiles the program
//! into an [`Executor`]. [`split()`] divides a program, so that several backends share it.
//! `rf-oracle` defines what each op computes, and checks backends against that.
//!
//! Start reading at [`Op`]. The crate depends on rf-quant and rf-kv; backends and rf-model depend
//! on it.
//!
//! Invariants: this crate names no backend, no file format and no model architecture; a fused op
//! computes the same as the ops that it replaces.
//!
//! A graph that looks up embeddings, normalises them and multiplies them by a matrix:
//!
//! ```
//! use rf_graph::{Fusions, GraphBuilder, Op, Plan, Weight, fuse};
//!
//! let mut g = GraphBuilder::new();
//! let table = g.weight(Weight::f32("embedding", 3, 2, [1.0, 1.0, 3.0, -3.0, 0.0, 2.0]));
//! let norm = g.weight(Weight::f32("norm", 1, 2, [1.0, 1.0]));
//! let output = g.weight(Weight::f32("output", 1, 2, [2.0, 1.0]));
//! let x = g.embed(table, 1.0);
//! let x = g.rms_norm(x, norm, 0.0);
//! let logits = g.matmul(x, output);
//! let (graph, _weights) = g.finish(logits);
//!
//! let graph = fuse(graph, Fusions::PROLOGUES);
//! let names: Vec<_> = graph.ops().iter().map(Op::name).collect();
//! assert_eq!(names, ["embed", "rms_norm+matmul"]);
//! // Room for the embedding and the logits of each row; the norm is part of the matmul.
//! assert_eq!(Plan::new(&graph).floats_per_row(), 3);
//! ```

mod backend;
mod batch;
mod collective;
mod cost;
mod error;
mod fuse;
mod graph;
mod input;
mod kv;
pub mod layer;
mod memory;
mod observe;
mod op;
mod op_cost;
mod operand_format;
mod output;
mod plan;
mod program;
mod split;
mod telemetry;
pub mod tensor;
mod value;
mod weight;

pub use backend::{Backend, Executor, Progress};
pub use batch::{Batch, BatchLimits, Media, Span};
pub use collective::{Collective, Member, QueuedSummands, Reduction, Rendezvous, Summands};
pub use cost::Costs;
pub use error::BackendError;
pub use fuse::{Fusions, WeightRule, fuse};
pub use graph::{Graph, Stage};
pub use input::{Input, QueuedRows};
pub use kv::{KvLayer, KvLayout, KvType, StateShape};
pub use memory::{MemoryNeed, MemoryUse};
pub use observe::{Observation, Observed, observe};
pub use op::{
    Activation, Attention, CausalConv, Combine, DeltaDecay, DeltaHeads, DeltaNet, Epilogue,
    ExpertGroups, ExpertMatMul, ExpertProjection, Function, GateFunction, Gating, GraphBuilder,
    LowRank, MatMul, Op, Operand, Position, PositionScale, Projection, Prologue, QkNorm, Rope,
    RopeAppend, RopeAxis, RopeStyle, Router, RowNorm, SelectiveScan, StateSpace, StateSpaceHeads,
    Xielu, combine_experts, text_position,
};
pub use op_cost::{OpCost, Peak};
pub use operand_format::OperandFormat;
pub use output::{Candidate, Output, OutputRows};
pub use plan::Plan;
pub use program::Program;
pub use rf_kv::{CopyPage, PageCounts, PageGroup, PageId};
pub use rf_quant::DType;
pub use split::{Layout, Side, Split, SplitError, Turn, split};
pub use telemetry::{
    BackendExecutionSummary, OpSummary, Telemetry, Timeline, TimelineEvent, TimelineTrack,
    TrackKind,
};
pub use value::{RowKind, Storage, ValueId, ValueShape, WeightId};
pub use weight::{NonFiniteWeight, Weight, WeightBytes, WeightShape};
