//! The weights of a layer: roles and shapes.

use super::spec::{LayerSpec, QkNormGroup};

/// The role of a weight in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the weights")]
pub enum Role {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    Sinks,
    AttentionOutput,
    /// On the output of attention, before the residual.
    PostAttentionNorm,
    /// After the residual of attention (BERT).
    AttentionResidualNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    /// On the output of the dense layer, before that of the experts is added.
    DenseOutputNorm,
    /// The experts' own norm; without it they read what the dense layer reads.
    ExpertNorm,
    /// A norm of the residual that only the router reads.
    RouterNorm,
    Router,
    SelectionBias,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    /// A factor per expert.
    ExpertScale,
    ExpertOutputNorm,
    SharedGate,
    SharedUp,
    SharedDown,
    /// Gates the output of the shared expert by a sigmoid.
    SharedRouter,
    /// On the output of the feed-forward layer, before the residual.
    PostFeedForwardNorm,
    /// After the residual of the feed-forward layer (BERT).
    FeedForwardResidualNorm,
    PerLayerGate,
    PerLayerProjection,
    PerLayerNorm,
}

/// The shape of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `[len]`.
    Vector(usize),
    /// `[rows, columns]`.
    Matrix([usize; 2]),
    /// A matrix per expert: `[count, rows, columns]`.
    Experts([usize; 3]),
}

impl Shape {
    /// Rows of the matrix, or of each expert's; 1 for a vector.
    pub fn rows(self) -> usize {
        match self {
            Self::Vector(_) => 1,
            Self::Matrix([rows, _]) | Self::Experts([_, rows, _]) => rows,
        }
    }
}

impl Role {
    /// The shape of the weight in a layer.
    pub fn shape(self, layer: &LayerSpec) -> Shape {
        use Shape::{Experts, Matrix, Vector};
        let hidden = layer.hidden_size;
        let a = &layer.attention;
        let (q, kv) = (a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim);
        let by_row = a.qk_norm.is_some_and(|norm| norm.group == QkNormGroup::Row);
        let dense = layer.dense.map_or(0, |dense| dense.intermediate_size);
        let (count, inner, shared) = layer.experts.map_or((0, 0, 0), |e| {
            (e.count, e.intermediate_size, e.shared_intermediate_size.unwrap_or(0))
        });
        let per_layer = layer.per_layer_input.unwrap_or(0);
        match self {
            Self::AttentionNorm
            | Self::PostAttentionNorm
            | Self::AttentionResidualNorm
            | Self::FeedForwardNorm
            | Self::DenseOutputNorm
            | Self::ExpertNorm
            | Self::RouterNorm
            | Self::ExpertOutputNorm
            | Self::PostFeedForwardNorm
            | Self::FeedForwardResidualNorm
            | Self::PerLayerNorm => Vector(hidden),
            Self::Query => Matrix([q, hidden]),
            Self::Key | Self::Value => Matrix([kv, hidden]),
            Self::QueryNorm => Vector(if by_row { q } else { a.head_dim }),
            Self::KeyNorm => Vector(if by_row { kv } else { a.head_dim }),
            Self::Sinks => Vector(a.num_heads),
            Self::AttentionOutput => Matrix([hidden, q]),
            Self::Gate | Self::Up => Matrix([dense, hidden]),
            Self::Down => Matrix([hidden, dense]),
            Self::Router => Matrix([count, hidden]),
            Self::SelectionBias | Self::ExpertScale => Vector(count),
            Self::ExpertGate | Self::ExpertUp => Experts([count, inner, hidden]),
            Self::ExpertDown => Experts([count, hidden, inner]),
            Self::SharedGate | Self::SharedUp => Matrix([shared, hidden]),
            Self::SharedDown => Matrix([hidden, shared]),
            Self::SharedRouter => Matrix([1, hidden]),
            Self::PerLayerGate => Matrix([per_layer, hidden]),
            Self::PerLayerProjection => Matrix([hidden, per_layer]),
        }
    }
}
