//! The tensors that files of latent attention may have: a matrix per head for keys and one for
//! values, or, in older files, both in one tensor with the keys the other way round.

use rf_engine::{EngineOptions, Model};
use rf_gguf::{Gguf, GgufWriter, Value};
use rf_graph::KvType;
use rf_quant::DType;
use rf_testing::engine::load_model;
use rf_testing::golden_model;

use crate::models::all_logits;

const LAYERS: usize = 2;
const HEADS: usize = 2;
const LATENT: usize = 32;
/// Elements of a key without RoPE, and of a value.
const KEYS: usize = 32;
const VALUES: usize = 16;
/// Elements of a key with RoPE.
const ROTATED: usize = 16;
const TOKENS: usize = 40;

/// The logits of the golden model with the matrices of its heads in a format, as older files have
/// them or as newer ones do.
fn logits(is_older: bool, dtype: DType) -> Vec<f32> {
    let gguf = Gguf::open(golden_model("deepseek2_groups")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter() {
        let value = match key.strip_prefix("deepseek2.attention.") {
            Some("key_length_mla" | "value_length_mla") if is_older => continue,
            Some("key_length") if is_older => Value::U32((KEYS + ROTATED) as u32),
            Some("value_length") if is_older => Value::U32(VALUES as u32),
            Some("head_count_kv") if is_older => Value::U32(HEADS as u32),
            _ => value.clone(),
        };
        writer.add(key, value).unwrap();
    }
    for tensor in gguf.tensors() {
        let is_of_heads = [".attn_k_b.", ".attn_v_b."].iter().any(|n| tensor.name().contains(n));
        if is_of_heads && is_older {
            continue;
        }
        let own = tensor.dtype().unwrap();
        let dtype = if is_of_heads { dtype } else { own };
        writer.add_tensor(tensor.name(), tensor.shape(), dtype).unwrap();
    }
    for layer in 0..if is_older { LAYERS } else { 0 } {
        let shape = [LATENT as u64, (HEADS * (KEYS + VALUES)) as u64];
        writer.add_tensor(format!("blk.{layer}.attn_kv_b.weight"), &shape, dtype).unwrap();
    }
    let values = |name: &str| {
        let tensor = gguf.required_tensor(name).unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        rf_quant::dequantize(tensor.dtype().unwrap(), &gguf.data(tensor), &mut values).unwrap();
        values
    };
    let mut file = Vec::new();
    writer
        .write_to(&mut file, |plan, out| {
            let name = plan.name();
            let values = if name.contains(".attn_kv_b.") {
                let [keys, of_values] =
                    ["attn_k_b", "attn_v_b"].map(|stem| values(&name.replace("attn_kv_b", stem)));
                one_tensor(&keys, &of_values)
            } else if name.contains("_b.weight") && !name.contains("_q_b.") {
                values(name)
            } else {
                return Ok(out.write_all(&gguf.data(gguf.required_tensor(name)?))?);
            };
            Ok(out.write_all(&rf_quant::quantize_to_vec(dtype, &values)?)?)
        })
        .unwrap();
    let model = Model::from_gguf(Gguf::from_bytes(file).unwrap()).unwrap();
    let options = EngineOptions::default().with_context_tokens(Some(64)).with_kv_type(KvType::F32);
    let mut engine = load_model(model, 2, options);
    all_logits(&mut engine, &(0..TOKENS as u32).map(|i| i * 37 % 250).collect::<Vec<_>>())
}

/// Per head the rows of keys, from the latent to the key, and then those of values.
fn one_tensor(keys: &[f32], values: &[f32]) -> Vec<f32> {
    let heads = keys.chunks_exact(LATENT * KEYS).zip(values.chunks_exact(VALUES * LATENT));
    let rows = heads.flat_map(|(keys, values)| {
        let keys = (0..KEYS).flat_map(move |key| keys.iter().skip(key).step_by(KEYS));
        keys.chain(values)
    });
    rows.copied().collect()
}

#[test]
fn one_tensor_for_keys_and_values_gives_the_same_logits_as_two() {
    assert!(logits(true, DType::F16) == logits(false, DType::F16));
}

#[test]
fn the_matrices_of_heads_may_be_quantised() {
    let exact = logits(false, DType::F16);
    let vocab_size = exact.len() / TOKENS;
    let square = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let cases = [(false, DType::Q8_0, 0.01), (true, DType::Q8_0, 0.01), (false, DType::Q5_0, 0.2)];
    for (is_older, dtype, bound) in cases {
        let found = logits(is_older, dtype);
        let tokens = found.chunks(vocab_size).zip(exact.chunks(vocab_size));
        let mut errors: Vec<f64> = tokens
            .map(|(found, exact)| {
                let errors: Vec<f32> = found.iter().zip(exact).map(|(a, b)| a - b).collect();
                square(&errors) / square(exact)
            })
            .collect();
        // The median, since some tokens choose other experts. The random weights of this model
        // multiply an error by about 20: Q8_0 gives 1e-3 and Q5_0 5e-2.
        errors.sort_by(f64::total_cmp);
        let nmse = errors[TOKENS / 2];
        assert!(nmse > 0.0 && nmse < bound, "{is_older}, {dtype}: NMSE {nmse}");
    }
}
