//! Attributes of [`Op::Route`](super::Op::Route).

use crate::value::WeightId;

/// Selection and weighting of experts. Per token, with `pₑ` from [`Self::gate`]:
///
/// 1. score `sₑ = pₑ + biasₑ`; without a bias `sₑ = pₑ`;
/// 2. with groups, only the experts of the best groups stay; the score of a group is the sum of its
///    two largest `sₑ`;
/// 3. the `experts_per_token` experts of the largest `sₑ` are selected, the largest first; the
///    lower index wins a tie;
/// 4. weight `wₑ = pₑ`, or the p of another expert ([`Self::group`]), divided by the sum of these
///    over the selected experts if [`Self::normalize`] (at least the smallest normal f16, as in
///    llama.cpp), times [`Self::scale`], times [`Self::expert_scale`]`ₑ`.
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
    /// The weight of expert `e` is that of expert `e / group`, for experts that groups share
    /// (`GroveMoE`); 1 for its own.
    pub group: usize,
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
            group: 1,
            shared_expert: false,
        }
    }

    /// Experts that compute a token: the selected ones and the shared one.
    pub fn slots(&self) -> usize {
        self.experts_per_token + usize::from(self.shared_expert)
    }

    /// The experts of one token and their weights: indices as f32, then weights. The reference and
    /// the CPU backend compute [`Op::Route`](super::Op::Route) by it.
    ///
    /// Shapes: logits, selection bias and expert scale `[experts]`, result `[2 · slots]`.
    pub fn route(
        &self,
        logits: &[f32],
        shared_gate: Option<f32>,
        [selection_bias, expert_scale]: [Option<&[f32]>; 2],
    ) -> Vec<f32> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exp = |logit: f32| f64::from(logit - max).exp();
        let sum: f64 = logits.iter().map(|l| exp(*l)).sum();
        let p: Vec<f64> = match self.gate {
            GateFunction::Softmax => logits.iter().map(|l| exp(*l) / sum).collect(),
            GateFunction::Sigmoid => {
                logits.iter().map(|l| 1.0 / (1.0 + (-f64::from(*l)).exp())).collect()
            }
            GateFunction::SoftmaxOfSelected => logits.iter().map(|l| exp(*l)).collect(),
        };
        // Probabilities grow with the logits, which do not underflow.
        let score = |e: usize| match selection_bias {
            Some(bias) => p[e] + f64::from(bias[e]),
            None => f64::from(logits[e]),
        };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        if let Some(groups) = self.groups {
            let group_size = logits.len() / groups.count;
            let group_score = |group: usize| {
                let mut scores: Vec<f64> = (group * group_size..(group + 1) * group_size)
                    .map(|e| p[e] + selection_bias.map_or(0.0, |bias| f64::from(bias[e])))
                    .collect();
                scores.sort_by(|a, b| b.total_cmp(a));
                scores.iter().take(2).sum::<f64>()
            };
            let scores: Vec<f64> = (0..groups.count).map(group_score).collect();
            let mut best: Vec<usize> = (0..groups.count).collect();
            best.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            best.truncate(groups.selected);
            order.retain(|e| best.contains(&(e / group_size)));
        }
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        order.truncate(self.experts_per_token);
        let selected: f64 = order.iter().map(|e| p[*e / self.group]).sum();
        let divisor = match self.gate {
            GateFunction::SoftmaxOfSelected => selected,
            _ if self.normalize => selected.max(SMALLEST_SUM),
            _ => 1.0,
        };
        let weights = order.iter().map(|e| {
            let scale = expert_scale.map_or(1.0, |scale| f64::from(scale[*e]));
            (p[*e / self.group] / divisor * f64::from(self.scale) * scale) as f32
        });
        let shared = self.shared_expert.then(|| {
            let weight =
                shared_gate.map_or(1.0, |gate| (1.0 / (1.0 + (-f64::from(gate)).exp())) as f32);
            (logits.len() as f32, weight)
        });
        let ids = order.iter().map(|e| *e as f32).chain(shared.map(|(id, _)| id));
        ids.chain(weights).chain(shared.map(|(_, weight)| weight)).collect()
    }
}

/// The smallest normal f16, which prevents a division by zero, as in llama.cpp.
const SMALLEST_SUM: f64 = 6.103_515_625e-5;

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
