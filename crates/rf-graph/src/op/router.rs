//! Attributes of [`Op::Route`](super::Op::Route).

use crate::value::WeightId;

/// Selection and weighting of experts. Per token, with `pₑ` from [`Self::gate`]:
///
/// 1. score `sₑ = pₑ + biasₑ`; without a bias `sₑ = pₑ`;
/// 2. with groups, only the experts of the best groups stay; the score of a group is the sum of its
///    two largest `sₑ`;
/// 3. the `experts_per_token` experts of the largest `sₑ` are selected, the largest first; the
///    lower index wins a tie;
/// 4. weight `wₑ = pₑ`, divided by `Σ p` of the selected experts if [`Self::normalize`] (at least
///    the smallest normal f16, as in llama.cpp), times [`Self::scale`], times
///    [`Self::expert_scale`]`ₑ`.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Selected experts per token.
    pub experts_per_token: usize,
    /// Probabilities from logits.
    pub gate: GateFunction,
    /// `[experts]`: is added to the probabilities for the selection only (GLM 4.5).
    pub selection_bias: Option<WeightId>,
    /// Selection limited to groups.
    pub groups: Option<ExpertGroups>,
    /// True if the weights of the selected experts are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
    /// `[experts]`: a factor on the weight of each expert (Gemma 4).
    pub expert_scale: Option<WeightId>,
    /// Fused: the shared expert follows the others, and every token selects it last. Its weight is
    /// `σ(gate)`, or 1 without a gate.
    pub shared_expert: bool,
}

impl Router {
    /// The common form: softmax over all experts, weights that sum up to 1.
    pub fn softmax(experts_per_token: usize) -> Self {
        Self {
            experts_per_token,
            gate: GateFunction::Softmax,
            selection_bias: None,
            groups: None,
            normalize: true,
            scale: 1.0,
            expert_scale: None,
            shared_expert: false,
        }
    }

    /// Experts that compute a token: the selected ones and the shared one.
    pub fn slots(&self) -> usize {
        self.experts_per_token + usize::from(self.shared_expert)
    }
}

/// The function from the logits of a router to the probabilities of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GateFunction {
    /// Softmax over all experts.
    Softmax,
    /// `σ(logit)`.
    Sigmoid,
    /// Selection by logits, then softmax over the selected experts (gpt-oss).
    SoftmaxOfSelected,
}

/// Groups of adjacent experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups; divides the number of experts.
    pub count: usize,
    /// Groups from which experts are selected.
    pub selected: usize,
}
