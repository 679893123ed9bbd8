//! Scales of matrices: a factor beside a matrix has the effect of a factor in it.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_engine::{Engine, EngineOptions, Model, Outputs, SequenceInput};
use rf_gguf::{Gguf, GgufWriter};
use rf_oracle::ReferenceBackend;
use rf_quant::DType;

/// The test model in F32, with a factor on a matrix: in its values, or as a tensor beside it.
fn logits(stem: &str, factor: f32, beside: bool) -> Vec<f32> {
    let gguf = Gguf::open(rf_testing::tiny_model()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter() {
        writer.add(key, value.clone()).unwrap();
    }
    for tensor in gguf.tensors() {
        writer.add_tensor(tensor.name(), tensor.shape(), DType::F32).unwrap();
    }
    let scale = format!("{stem}.scale");
    if beside {
        writer.add_tensor(&scale, &[1], DType::F32).unwrap();
    }
    let mut file = Vec::new();
    writer
        .write_to(&mut file, |plan, out| {
            if plan.name() == scale {
                return Ok(out.write_all(&factor.to_le_bytes())?);
            }
            let tensor = gguf.required_tensor(plan.name())?;
            let mut values = vec![0.0; plan.size_bytes() as usize / 4];
            rf_quant::dequantize(tensor.dtype()?, &gguf.data(tensor), &mut values)?;
            let is_scaled = !beside && plan.name() == format!("{stem}.weight");
            let factor = if is_scaled { factor } else { 1.0 };
            let bytes: Vec<u8> = values.iter().flat_map(|v| (v * factor).to_le_bytes()).collect();
            Ok(out.write_all(&bytes)?)
        })
        .unwrap();
    let model = Model::from_gguf(Gguf::from_bytes(file).unwrap()).unwrap();
    let options = EngineOptions::default().with_context_tokens(Some(64));
    let mut engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ()).unwrap();
    let mut session = engine.session();
    let feed = SequenceInput { session: &mut session, ids: &[1, 5, 9, 2], outputs: Outputs::Last };
    engine.forward(&mut [feed]).unwrap()
}

#[test]
fn a_scale_beside_a_matrix_is_applied() {
    for stem in ["blk.0.attn_v", "blk.0.attn_output", "blk.0.ffn_down", "blk.0.ffn_gate"] {
        let inside = logits(stem, 0.5, false);
        let beside = logits(stem, 0.5, true);
        let plain = logits(stem, 1.0, false);
        let distance =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(distance(&inside, &beside) < 1e-5, "{stem}");
        assert!(distance(&inside, &plain) > 1e-4, "{stem}");
    }
}
