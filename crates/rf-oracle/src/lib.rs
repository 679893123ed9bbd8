//! The oracle of backends: what each op computes, and the check of a backend against it.
//!
//! [`ReferenceBackend`] defines every op of [`rf_graph`] with scalar code and f64 sums, by the
//! formulas in [`mod@reference`]. [`case`] is the only table of small programs: [`conformance`]
//! checks backends with it, benchmarks and `rf-cli selftest` time it.
//!
//! Start reading at [`case`]. The crate depends on rf-graph. The tests of all backends use it, and
//! the parts of rf-kernels and rf-device that check and tune a user's card.
//!
//! Invariants: no backend is named here; the definition of an op has one loop per formula and no
//! regard for speed; a case is the same program with the same numbers on every machine.
//!
//! The cost of a case of the table, and the check of a backend against the reference:
//!
//! ```
//! use rf_graph::DType;
//! use rf_oracle::ReferenceBackend;
//! use rf_oracle::case::{Schedule, matmul};
//! use rf_oracle::conformance::{CaseOutcome, check};
//!
//! let case = matmul(DType::Q8_0, 64, 256, Schedule::batches(&[1, 5]));
//! assert_eq!(case.cost().int8_operations, 2 * 5 * 64 * 256);
//! assert!(matches!(check(&ReferenceBackend, &case), Ok(CaseOutcome::Passed { .. })));
//! ```
//!
//! A program that looks up embeddings, normalises them and multiplies them by a matrix:
//!
//! ```
//! use rf_graph::{
//!     Backend, Batch, Fusions, GraphBuilder, KvLayout, KvType, Op, Output, Program, Span, Weight,
//!     fuse,
//! };
//! use rf_oracle::ReferenceBackend;
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
//! let batch = Batch {
//!     ids: &[0, 1],
//!     spans: &[Span { tokens: 0..2, pages: &pages, ..Span::default() }],
//!     output_rows: &[],
//!     input: None,
//! };
//! let mut out = [0.0; 2];
//! executor.forward(&batch, Output::rows(&mut out))?;
//! assert_eq!(out, [3.0, 1.0]);
//! # Ok::<(), rf_graph::BackendError>(())
//! ```

pub mod case;
pub mod conformance;
pub mod reference;

pub use reference::ReferenceBackend;
/// The crates of the programs and the formats in the types of this one.
pub use {rf_graph, rf_quant};
