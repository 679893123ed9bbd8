//! Translates ops into launches: the kernels for a batch of some shape, in order.
//!
//! For a batch of one row a fused op is one launch. The number of launches bounds the speed of
//! decode. For several rows, a matmul with an epilogue is two launches, the matmul kernel and the
//! kernel of the epilogue, both recorded in [`matmul`]. An unfused matmul of quantised weights
//! first quantises its operand.

pub(super) mod attention;
mod embed;
mod experts;
mod heads;
mod matmul;
mod recurrent;
mod skinny;

use std::ops::Range;

use rf_graph::{
    Fusions, Op, QkNorm, Rope, RopeAppend, RopeStyle, RowNorm, ValueId, WeightId, WeightRule,
};

use super::media::MediaPlaces;
use super::program::BatchProgram;
use crate::error::Error;
use crate::launch::LaunchList;
use crate::params::{
    GATED_NORM_GROUP, KvAppendParams, LatentAppendParams, MAX_SLOTS, NewHeads, RopeAppendParams,
    RopeParams, RopeTable, RowMemory, record_rms_norm, record_row_op,
};

/// The fusions with kernels. Epilogues of one row are part of the matrix-vector kernels for
/// quantised formats, which write whole blocks of output rows. Several rows have gated units of F16
/// and BF16, too.
pub(crate) const FUSIONS: Fusions = {
    let rule = WeightRule { quantized: true, row_multiple: 32 };
    Fusions {
        shared_expert: Some(MAX_SLOTS),
        glu_epilogue: Some(WeightRule { quantized: false, ..rule }),
        gated_norm: Some(GATED_NORM_GROUP),
        combine_epilogue: Some(rule),
        norm_epilogue: Some(rule),
        ..Fusions::EPILOGUES
    }
};

/// Records the launches of a stage of a batch, whose ops are `ops`.
///
/// # Errors
///
/// If the graph has an op or a fusion that this backend does not support.
pub(super) fn record(memory: &BatchProgram<'_>, ops: Range<usize>) -> Result<LaunchList, Error> {
    let mut recorder =
        Recorder { memory: *memory, launches: LaunchList::default(), op: 0, grouped: None };
    for (i, op) in ops.clone().zip(&memory.program.graph.ops()[ops]) {
        recorder.op = i;
        recorder.launches.begin_op(i);
        recorder.record(op)?;
    }
    Ok(recorder.launches)
}

struct Recorder<'a> {
    memory: BatchProgram<'a>,
    launches: LaunchList,
    /// Index of the current op.
    op: usize,
    /// The grouped slots, and the tile for which they are.
    grouped: Option<(Slots, u32)>,
}

/// The origin of the slots of a matmul with several matrices.
#[derive(Clone, Copy, PartialEq)]
enum Slots {
    /// The experts of a route.
    Route(ValueId),
    /// Each head of every token is a slot. The field is the number of heads.
    Heads(usize),
}

impl Recorder<'_> {
    fn record(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            // Sums over parts are between the launches (`SumPlace`).
            Op::AllReduce { norm: Some(norm), out, .. } if self.memory.norm_out(norm).is_none() => {
                self.row_norm(*out, norm);
            }
            // The input is uploaded with the batch, the output is copied after it.
            Op::Input { .. } | Op::Output { .. } | Op::AllReduce { .. } => {}
            Op::Embed { table, scale, takes_media, norm, out } => {
                let media = if *takes_media { self.memory.media } else { MediaPlaces::default() };
                self.embed((*table, *scale), media, norm.as_ref(), *out);
            }
            Op::AddMedia { part, out, .. } => self.add_media(op, *part, *out),
            Op::MatMul(m) => return self.matmul(m),
            Op::Rope { x, rope, out } => self.rope(*x, rope, *out),
            Op::KvAppend { k, v: Some(v), layer } => {
                let (batch, cache) = self.memory.cache(*layer);
                let params = KvAppendParams {
                    batch,
                    cache,
                    k: self.memory.address(*k),
                    v: self.memory.address(*v),
                };
                self.launches.push(params.launch(), params);
            }
            Op::RopeAppend { heads, q_out } => self.rope_append(heads, *q_out),
            Op::KvAppend { k, v: None, layer } => {
                let (batch, cache) = self.memory.cache(*layer);
                let params = LatentAppendParams { batch, cache, k: self.memory.address(*k) };
                self.launches.push(params.launch(), params);
            }
            Op::Attention { append, q, attention, out } => match attention.latent_dim {
                Some(latent_dim) => self.latent_attention(*q, (attention, latent_dim), *out),
                None => return self.attention(append.as_ref(), *q, attention, *out),
            },
            Op::HeadMatMul { x, weights, out } => self.head_matmul(*x, weights, *out),
            Op::EmbedPosition { table, out } => self.embed_position(*table, *out),
            Op::Route { logits, shared_gate, router, out } => {
                let params = self.route(*logits, *shared_gate, router, *out)?;
                self.launches.push(params.launch(), params);
            }
            Op::ExpertMatMul(m) => self.expert_matmul(m),
            Op::ScaleExperts { x, route, out } => {
                let params = self.expert_rows(*x, *route, *out);
                self.launches.push(params.scale(), params);
            }
            Op::CombineExperts { x, route, residual, out } => {
                self.combine_experts(*x, *route, *residual, *out);
            }
            Op::CausalConv(op) => return self.causal_conv(op),
            Op::DeltaNet(op) => return self.delta_net(op),
            Op::StateSpace(op) => return self.state_space(op),
            Op::SelectiveScan(op) => return self.selective_scan(op),
            op if record_row_op(op, &self.memory, &mut self.launches) => {}
            op => return Err(Error::Unsupported { what: op.name().into() }),
        }
        Ok(())
    }

    /// Records the norm of an epilogue as a separate launch.
    fn row_norm(&mut self, x: ValueId, norm: &RowNorm) {
        record_rms_norm(x, norm, &self.memory, &mut self.launches);
    }

    fn rope(&mut self, x: ValueId, rope: &Rope, out: ValueId) {
        let params = RopeParams {
            batch: *self.memory.batch(),
            rope: self.rope_table(rope),
            rows: self.memory.rope_rows,
            x: self.memory.address(x),
            out: self.memory.address(out),
            num_heads: (self.memory.width(x) / rope.head_dim) as u32,
            head_dim: rope.head_dim as u32,
        };
        self.launches.push(params.launch(), params);
    }

    /// Records [`Op::RopeAppend`].
    fn rope_append(&mut self, heads: &RopeAppend, q_out: ValueId) {
        let (batch, cache) = self.memory.cache(heads.layer);
        let params = RopeAppendParams {
            batch,
            cache,
            heads: self.new_heads(heads),
            rows: self.memory.rope_rows,
            q: self.memory.address(heads.q),
            q_out: self.memory.address(q_out),
            num_heads: (self.memory.width(heads.q) / heads.rope.head_dim) as u32,
            reserved: 0,
        };
        self.launches.push(params.launch(), params);
    }

    fn new_heads(&self, heads: &RopeAppend) -> NewHeads {
        let norm = |pick: fn(&QkNorm) -> WeightId| {
            heads.qk_norm.as_ref().map_or(0, |norm| self.memory.vector(pick(norm)))
        };
        NewHeads {
            rope: self.rope_table(&heads.rope),
            k: self.memory.address(heads.k),
            v: self.memory.address(heads.v),
            q_norm: norm(|norm| norm.q),
            k_norm: norm(|norm| norm.k),
            eps: heads.qk_norm.map_or(0.0, |norm| norm.eps),
            reserved: 0,
        }
    }

    fn rope_table(&self, rope: &Rope) -> RopeTable {
        RopeTable {
            table: self.memory.program.ropes[self.op],
            dims: rope.dims() as u32,
            style: match rope.style {
                RopeStyle::Normal => 0,
                RopeStyle::Neox => 1,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::exec::analysis::GraphAnalysis;
    use crate::exec::kv::KvPlan;
    use crate::exec::program::{DeviceProgram, ScratchAddresses};
    use crate::exec::step::StepShape;
    use crate::exec::weights::WeightPlan;
    use crate::params::{Address, Batch, Halves, MatmulDevice};
    use crate::tuning::Knob;
    use rf_graph::{DType, OperandFormat, Plan, Program, fuse};
    use rf_oracle::case::{Case, cases};

    /// The launches for `tokens` tokens of one sequence: index and name of the op, and the kernel.
    /// No device is needed.
    fn launches(
        case: &str,
        fusions: Fusions,
        tokens: usize,
    ) -> Vec<(usize, &'static str, &'static str)> {
        let case = cases().into_iter().find(|each| each.name() == case).unwrap();
        recorded(case.program(), fusions, tokens).unwrap()
    }

    fn recorded(
        program: Program,
        fusions: Fusions,
        tokens: usize,
    ) -> Result<Vec<(usize, &'static str, &'static str)>, Error> {
        recorded_on(MatmulDevice::new(132, "sm_90"), program, fusions, tokens)
    }

    fn recorded_on(
        device: MatmulDevice,
        program: Program,
        fusions: Fusions,
        tokens: usize,
    ) -> Result<Vec<(usize, &'static str, &'static str)>, Error> {
        let Program { graph, weights, kv, .. } = program;
        let graph = fuse(graph, fusions);
        let analysis = GraphAnalysis::new(&graph, device);
        let plan = Plan::with_floats(&graph, |id| analysis.floats(&graph, id));
        let at = |start: Address| move |offset: usize| start + offset as Address;
        let program = DeviceProgram {
            weights: WeightPlan::new(&graph, &weights).places(at(1 << 20)),
            kv: KvPlan::new(&kv).unwrap().places(at(1 << 21)),
            states: KvPlan::new(&kv).unwrap().states(at(1 << 21)),
            ropes: vec![1 << 22; graph.ops().len()],
            head_routes: analysis.head_routes(512, 1 << 24),
            arena: 1 << 23,
            scratch: ScratchAddresses {
                // Null says that there is no operand of f16.
                halves: Halves { x: 1 << 25, scale: 1 << 26 },
                ..ScratchAddresses::default()
            },
            graph,
            analysis,
            plan,
        };
        let shape = StepShape {
            tokens,
            spans: 1,
            outputs: 1,
            shortest_span: tokens,
            longest_span: tokens,
            context: 256,
            has_positions: false,
        };
        let batch =
            Batch { num_tokens: tokens as u32, num_spans: 1, num_outputs: 1, ..Batch::default() };
        let all = 0..program.graph.ops().len();
        let memory = BatchProgram {
            program: &program,
            shape,
            groups: [batch; 3],
            rope_rows: 0,
            media: MediaPlaces::default(),
            summands: &HashMap::new(),
        };
        let list = record(&memory, all)?;
        let name = |op: usize| program.graph.ops()[op].name();
        Ok(list.kernels().map(|(op, kernel)| (op, name(op), kernel)).collect())
    }

    /// The last kernels of the models in the case table: selection, norm and output matmul.
    const TAIL: [&str; 3] = ["copy_rows_f32", "rms_norm_f32_q8", "matvec_q6_k_q8_f32_n1"];

    fn kernels(case: &str, tokens: usize) -> Vec<&'static str> {
        launches(case, FUSIONS, tokens).into_iter().map(|(_, _, kernel)| kernel).collect()
    }

    #[test]
    fn a_layer_of_decode_is_five_launches() {
        let layer = [
            "matvec_mixed_q4_k_q6_k_q8_f32_n1",
            "attention_decode_f16_d64_g1",
            "matvec_q4_k_q8_f32_n1",
            "matvec_glu_q4_k_q8_n1",
            "matvec_q6_k_q8_f32_n1",
        ];
        let mut expected = vec!["embed_rms_norm_q4_k_f32_q8"];
        expected.extend([layer; 2].concat());
        expected.extend(TAIL);
        assert_eq!(kernels("model/llama-q4_k", 1), expected);
    }

    #[test]
    fn an_op_of_decode_is_one_launch() {
        let launches = launches("model/llama-q4_k", FUSIONS, 1);
        let ops: Vec<usize> = launches.iter().map(|(op, _, _)| *op).collect();
        assert_eq!(ops, (0..ops.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_layer_of_few_tokens_has_the_epilogues_of_one() {
        let matmuls = |arch, tokens| {
            let case = cases().into_iter().find(|case| case.name() == "model/llama-q4_k").unwrap();
            let device = MatmulDevice::new(48, arch);
            let launches = recorded_on(device, case.program(), FUSIONS, tokens).unwrap();
            let kernels = launches.into_iter().map(|(_, _, kernel)| kernel).skip(1);
            kernels.filter(|kernel| !kernel.contains("attention")).collect::<Vec<_>>()
        };
        let layer = [
            "matvec_mixed_q4_k_q6_k_q8_f32_n2",
            "rope_append_chunks_f32",
            "matvec_q4_k_q8_f32_n2",
            "matvec_glu_q4_k_q8_n2",
            "matvec_q6_k_q8_f32_n2",
        ];
        let expected = [&[layer; 2].concat()[..], &TAIL].concat();
        assert_eq!(matmuls("sm_90", 2), expected);
        assert_eq!(matmuls("gfx1030", 2), expected);
        // Two columns take a matrix unit of AMD as long as 16.
        assert_eq!(matmuls("gfx1100", 2)[0], "matmul_skinny16_q4_k_f16_f32");
        let layer = [
            "matvec_q4_k_q8_f32_n4",
            "matvec_q6_k_q8_f32_n4",
            "rope_append_chunks_f32",
            "matvec_q4_k_q8_f32_n4",
            "matvec_glu_q4_k_q8_n4",
            "matvec_q6_k_q8_f32_n4",
        ];
        for tokens in [3, 4] {
            let expected = [&[layer; 2].concat()[..], &TAIL].concat();
            assert_eq!(matmuls("gfx1030", tokens), expected);
        }
    }

    #[test]
    fn a_layer_of_a_few_tokens_has_its_epilogues_in_the_matmuls() {
        let layer = [
            "matmul_skinny64_q4_k_f16_f32",
            "matmul_skinny64_q6_k_f16_f32",
            "rope_append_chunks_f32",
            "attention_prefill_f16_d64",
            "matmul_skinny64_q4_k_f16_f32",
            "matmul_skinny64_q4_k_f16_f32",
            "matmul_skinny64_q6_k_f16_f32",
        ];
        let mut expected = vec!["embed_rms_norm_q4_k_f32_q8"];
        expected.extend([layer; 2].concat());
        expected.extend(TAIL);
        assert_eq!(kernels("model/llama-q4_k", 40), expected);
        let few = kernels("model/llama-q4_k", 3);
        assert_eq!(few.len(), expected.len());
        assert_eq!(few[1], "matmul_skinny8_q4_k_f16_f32");
    }

    #[test]
    fn a_layer_of_prefill_has_norms_as_launches() {
        let layer = [
            "matmul_middle_q4_k_f16_f32",
            "matmul_middle_q6_k_f16_f32",
            "rope_append_chunks_f32",
            "attention_prefill_f16_d64",
            "matmul_middle_q4_k_f16_f32",
            "rms_norm_f32_q8",
            "matmul_middle_q4_k_f16_f32",
            "matmul_middle_q6_k_f16_f32",
        ];
        let mut expected = vec!["embed_rms_norm_q4_k_f32_q8"];
        expected.extend(layer);
        expected.push("rms_norm_f32_q8");
        expected.extend(layer);
        expected.extend(TAIL);
        assert_eq!(kernels("model/llama-q4_k", 100), expected);
    }

    #[test]
    fn f16_activations_are_in_natural_order_if_all_their_readers_are_f16() {
        let device = MatmulDevice::new(132, "sm_90a");
        let kernel = |name: &str, tokens| {
            let case = cases().into_iter().find(|case| case.name() == name).unwrap();
            let launches = recorded_on(device, case.program(), FUSIONS, tokens).unwrap();
            launches
                .into_iter()
                .map(|(_, _, kernel)| kernel)
                .find(|name| name.starts_with("matmul"))
        };
        for (tokens, natural, mixed) in [
            (32, "matmul_skinny32_f16_f16_f32", "matmul_skinny32_f16_f16_f32"),
            (64, "matmul_narrow_f16_natural_f16_f32", "matmul_narrow_f16_f16_f32"),
            (100, "matmul_middle_f16_natural_f16_f32", "matmul_middle_f16_f16_f32"),
        ] {
            assert_eq!(kernel("matmul/F16/64x256", tokens), Some(natural));
            assert_eq!(kernel("matmul/F16+Q4_0/projection-0", tokens), Some(mixed));
        }
    }

    #[test]
    fn choices_of_the_card_move_the_switches_between_kernels() {
        let kernels = |arch: &str, choices: &[(Knob, DType, u32)], tokens| {
            let mut device = MatmulDevice::new(132, arch);
            for (knob, dtype, value) in choices {
                assert!(device.tuning.set(*knob, OperandFormat::Weight(*dtype), Some(*value)));
            }
            let case = cases().into_iter().find(|case| case.name() == "model/llama-q4_k").unwrap();
            let launches = recorded_on(device, case.program(), FUSIONS, tokens).unwrap();
            launches.into_iter().map(|(_, _, kernel)| kernel).collect::<Vec<_>>()
        };
        let both = |knob, value| [(knob, DType::Q4K, value), (knob, DType::Q6K, value)];
        let skinny = both(Knob::SkinnyTokens, 32);
        assert_eq!(kernels("sm_90", &skinny, 40), kernels("sm_90", &[], 100));
        assert_eq!(kernels("sm_90", &skinny, 32), kernels("sm_90", &[], 32));
        // All formats of the model must have the choice, and tiles for it.
        assert_eq!(kernels("sm_90", &skinny[..1], 40), kernels("sm_90", &[], 40));
        let int8 = [skinny.as_slice(), &both(Knob::PrefillBits, 8)].concat();
        assert_eq!(kernels("sm_90", &int8, 40), kernels("sm_90", &[], 40));

        let matvec = both(Knob::MatvecTokens, 2);
        assert!(kernels("gfx1030", &[], 3).contains(&"matvec_q4_k_q8_f32_n4"));
        assert!(kernels("gfx1030", &matvec, 3).contains(&"matmul_slim16_q4_k_q8_f32"));
        assert_eq!(kernels("gfx1030", &matvec, 2), kernels("gfx1030", &[], 2));
    }

    #[test]
    fn the_experts_of_decode_are_a_launch_for_gate_and_up_and_one_for_down() {
        let expected =
            ["route_f32", "quantize_f32_q8", "matvec_glu_q4_k_q8_n1", "matvec_sum_q4_k_q8_f32_n1"];
        assert_eq!(kernels("experts/Q4_K/Silu", 1)[2..], expected);
    }

    #[test]
    fn norms_routing_and_the_sum_of_experts_have_no_launch_in_decode() {
        let expected = [
            "quantize_f32_q8",
            "matvec_q4_k_q8_f32_n1",
            "router_f32_f32_n1",
            "matvec_glu_q4_k_q8_n1",
            "matvec_sum_q4_k_q8_f32_n1",
            "matvec_q4_k_q8_f32_n1",
        ];
        let launches = kernels("experts/Q4_K/layer", 1);
        assert!(launches.ends_with(&expected), "{launches:?}");
        // Several rows have a launch for each epilogue.
        let prompt = kernels("experts/Q4_K/layer", 40);
        let separate = ["rms_norm_f32_q8", "route_f32", "combine_experts_f32", "rms_norm_f32_q8"];
        let kept: Vec<&str> = prompt.into_iter().filter(|name| separate.contains(name)).collect();
        assert_eq!(kept, separate);
    }

    #[test]
    fn the_experts_of_a_prompt_are_one_matmul_over_groups() {
        let expected = [
            "route_f32",
            "quantize_f32_q8",
            "group_experts",
            "matmul_narrow_q4_k_q8_f32",
            "glu_f32_q8",
            "matmul_narrow_q4_k_q8_f32",
            "combine_experts_f32",
        ];
        assert_eq!(kernels("experts/Q4_K/Silu", 40)[2..], expected);
    }

    #[test]
    fn many_slots_per_expert_have_f16_tiles_and_a_gated_unit_in_their_epilogue() {
        let kernels = |arch, tokens| {
            let case = cases().into_iter().find(|case| case.name() == "experts/Q4_K/Silu").unwrap();
            let device = MatmulDevice::new(132, arch);
            let launches = recorded_on(device, case.program(), FUSIONS, tokens).unwrap();
            launches.into_iter().map(|(_, _, kernel)| kernel).skip(2).collect::<Vec<_>>()
        };
        let expected = |tile| {
            ["route_f32", "halve_f32_f16", "group_experts", tile, tile, "combine_experts_f32"]
        };
        assert_eq!(kernels("sm_90a", 40), expected("matmul_narrow_q4_k_f16_f32"));
        assert_eq!(kernels("sm_90a", 800), expected("matmul_middle_q4_k_f16_f32"));
        for arch in ["gfx1100", "gfx1201", "sm_90"] {
            assert_eq!(kernels(arch, 200), expected("matmul_middle_q4_k_f16_f32"), "{arch}");
            assert_eq!(kernels(arch, 2000), expected("matmul_wide_q4_k_f16_f32"), "{arch}");
        }
        assert!(kernels("gfx1030", 800).iter().any(|kernel| kernel.ends_with("_q4_k_q8_f32")));
    }

    #[test]
    fn every_op_has_a_kernel() {
        let named = |case: &Case, part: &str| case.name().starts_with(part);
        for case in cases() {
            // Formats of matmuls differ in names of kernels only.
            if named(&case, "matmul/") || named(&case, "epilogue/") || named(&case, "embed/") {
                continue;
            }
            for fusions in [Fusions::NONE, FUSIONS] {
                for tokens in [1, 40] {
                    let launches = recorded(case.program(), fusions, tokens);
                    assert!(launches.is_ok(), "{case:?}: {launches:?}");
                }
            }
        }
    }

    /// The kernels of a case without those that compute its inputs.
    fn kernels_of_op(case: &str, tokens: usize) -> Vec<&'static str> {
        let all = kernels(case, tokens).into_iter();
        all.filter(|kernel| !kernel.starts_with("embed_")).collect()
    }

    #[test]
    fn latent_attention_has_a_launch_for_each_length_of_spans() {
        let expected = ["latent_append_f32", "attention_latent_q8_0_d576"];
        for tokens in [1, 40] {
            assert_eq!(kernels_of_op("latent_attention/20x576:512/32/q8_0", tokens), expected);
        }
    }

    #[test]
    fn the_matrices_of_heads_are_one_launch() {
        let few = ["quantize_f32_q8", "matvec_q4_0_q8_f32_n1"];
        assert_eq!(kernels_of_op("head_matmul/Q4_0/3x37x256", 1), few);
        let many = ["quantize_f32_q8", "group_experts", "matmul_narrow_q4_0_q8_f32"];
        assert_eq!(kernels_of_op("head_matmul/Q4_0/3x37x256", 40), many);
    }

    #[test]
    fn the_norm_after_a_sum_over_parts_is_a_launch_for_many_rows_only() {
        let kernels = |tokens| kernels_of_op("all_reduce/Q4_K/rms_norm", tokens);
        let matvec = "matvec_q4_k_q8_f32_n1";
        assert_eq!(kernels(1), ["quantize_f32_q8", matvec, matvec]);
        for (tokens, norms) in [(2, 0), (33, 0), (70, 1)] {
            let launches = kernels(tokens).into_iter();
            assert_eq!(launches.filter(|name| *name == "rms_norm_f32_q8").count(), norms);
        }
    }

    #[test]
    fn attention_appends_only_if_every_sequence_has_one_token() {
        let name = "attention/rope+norm/q8_0";
        assert_eq!(kernels_of_op(name, 1), ["attention_decode_q8_0_d64_g1"]);
        for (tokens, kernel) in
            [(2, "attention_decode_q8_0_d64_g1"), (40, "attention_prefill_q8_0_d64")]
        {
            assert_eq!(kernels_of_op(name, tokens), ["rope_append_chunks_f32", kernel]);
        }
    }

    #[test]
    fn heads_without_a_prefill_kernel_decode_spans_of_any_length() {
        for tokens in [1, 40] {
            let launches = launches("attention/head-dim-512/f16", Fusions::NONE, tokens);
            let attention = launches.iter().filter(|(_, op, _)| *op == "attention");
            let kernels: Vec<&str> = attention.map(|(_, _, kernel)| *kernel).collect();
            assert_eq!(kernels, ["attention_decode_f16_d512_g2"]);
        }
    }

    #[test]
    fn an_unfused_matmul_quantises_its_operand() {
        let launches = launches("model/llama-q4_k", Fusions::NONE, 1);
        let quantised = launches.iter().filter(|(_, op, _)| *op == "matmul");
        assert_eq!(quantised.count(), 2 * (2 * 7 + 1));
    }
}
