//! The table of cases: programs of one op, or of a few, with their batches, error bound and cost.
//!
//! A [`Case`] is data until [`Case::program`] builds its program. Four readers share the table:
//! the [conformance](crate::conformance) suite checks [`cases`] against the reference, rf-bench
//! times those of [`speed`], `rf-cli selftest` does both on the user's GPU, and [`measure_peak`]
//! measures the arithmetic throughput of a device with the compute-bound matmuls. So an op has one
//! builder, and a shape one place.
//!
//! To add an op: write its formula into [`reference`](crate::reference), then a case here with the
//! [`ErrorBound`] of its arithmetic.
//!
//! ```
//! use rf_graph::{DType, OperandFormat};
//! use rf_oracle::case::{Schedule, matmul};
//!
//! // x [8, 256] · Wᵀ, W [64, 256] in Q4_K.
//! let case = matmul(DType::Q4K, 64, 256, Schedule::single(8));
//! assert_eq!(case.name(), "matmul/Q4_K/64x256");
//! assert_eq!(case.format(), Some(OperandFormat::Weight(DType::Q4K)));
//! // A multiply-add is two operations.
//! assert_eq!(case.cost().int8_operations, 2 * 8 * 64 * 256);
//! assert_eq!(case.program().weights[1].dtype(), DType::Q4K);
//! ```

mod attention;
mod bound;
mod definition;
mod embed;
mod epilogues;
mod experts;
mod latent;
mod matmul;
mod models;
mod net;
mod numbers;
mod recurrent;
mod rows;
mod schedule;
pub mod speed;
mod timer;

pub use attention::{attention, kv_append};
pub use bound::ErrorBound;
pub use definition::{Case, CaseShape};
pub use embed::embed;
pub use epilogues::feed_forward;
pub use experts::route_of;
pub use matmul::{gated_unit, matmul};
pub use net::blocks_like;
pub use numbers::Numbers;
pub use rows::{layer_norm, rms_norm, rope_of_heads, scale};
pub use schedule::{CaseBatch, Schedule};
pub use timer::{Timer, measure_peak};

/// The cases that every backend passes. Programs and weights are built when a case runs.
pub fn cases() -> Vec<Case> {
    [
        embed::cases(),
        rows::cases(),
        matmul::cases(),
        attention::cases(),
        latent::cases(),
        experts::cases(),
        epilogues::cases(),
        recurrent::cases(),
        models::cases(),
        models::gated::cases(),
        models::latent::cases(),
        models::recurrent::cases(),
    ]
    .concat()
}
