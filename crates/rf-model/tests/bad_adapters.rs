//! Adapters that are none, are damaged, or belong to another model: the error names the file, what
//! was expected and what was found.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_gguf::{Gguf, GgufWriter, TensorPlan, Value};
use rf_model::{Adapter, AdapterSet, ControlVector, Error, Head, ModelConfig, build_with_adapters};
use rf_quant::DType;
use rf_testing::{Lcg, golden_adapters, golden_model, tiny_model};

/// An adapter whose values are all the same.
struct File {
    keys: Vec<(&'static str, Value)>,
    tensors: Vec<(&'static str, Vec<u64>)>,
    value: f32,
}

impl File {
    /// An adapter of the tiny model.
    fn new() -> Self {
        Self {
            keys: vec![
                ("general.type", "adapter".into()),
                ("general.architecture", "smollm3".into()),
                ("adapter.type", "lora".into()),
                ("adapter.lora.alpha", Value::F32(4.0)),
            ],
            tensors: Vec::new(),
            value: 0.5,
        }
        .pair(["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"], |q| {
            [vec![q[0], 2], vec![2, q[1]]]
        })
    }

    fn pair(
        mut self,
        names: [&'static str; 2],
        shapes: impl FnOnce(&[u64]) -> [Vec<u64>; 2],
    ) -> Self {
        let base = Gguf::open(tiny_model()).unwrap();
        let of = names[0].strip_suffix(".lora_a").unwrap();
        let shape = base.tensor(of).map(|tensor| tensor.shape().to_vec()).unwrap_or(vec![64, 64]);
        self.tensors.extend(names.into_iter().zip(shapes(&shape)));
        self
    }

    fn key(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.keys.retain(|(name, _)| *name != key);
        self.keys.push((key, value.into()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.keys {
            writer.add(*key, value.clone()).unwrap();
        }
        for (name, shape) in &self.tensors {
            writer.add_tensor(*name, shape, DType::F32).unwrap();
        }
        let mut bytes = Vec::new();
        let write = |plan: &TensorPlan, out: &mut dyn std::io::Write| {
            let count = plan.shape().iter().product::<u64>() as usize;
            Ok(out.write_all(&self.value.to_le_bytes().repeat(count))?)
        };
        writer.write_to(&mut bytes, write).unwrap();
        bytes
    }

    fn open(&self) -> Result<Adapter, String> {
        let gguf = Gguf::from_bytes(self.bytes()).unwrap();
        Adapter::from_gguf(gguf, "a.gguf").map_err(|error| error.to_string())
    }

    /// The error of the adapter with the tiny model, and that the model computes logits.
    fn error(&self, head: Head) -> Option<String> {
        let base = Gguf::open(tiny_model()).unwrap();
        let built = || -> Result<(), Error> {
            let adapter = Adapter::from_gguf(Gguf::from_bytes(self.bytes())?, "a.gguf")?;
            let set = AdapterSet::new(vec![adapter], &base)?;
            let config = ModelConfig::from_gguf(&base)?;
            build_with_adapters(&base, &config, &set, 64, head).map(drop)
        };
        built().err().map(|error| error.to_string())
    }
}

#[track_caller]
fn assert_refused(file: &File, message: &str) {
    let error = file.error(Head::Logits).unwrap_or_else(|| "no error".into());
    assert!(error.contains(message), "{error}");
}

#[test]
fn an_adapter_of_the_model_is_accepted() {
    let file = File::new();
    assert_eq!(file.error(Head::Logits), None);
    let adapter = file.open().unwrap();
    assert_eq!((adapter.architecture(), adapter.alpha()), ("smollm3", 4.0));
    assert_eq!(adapter.ranks().iter().next(), Some((&"blk.0.attn_q.weight".to_owned(), &2)));
}

#[test]
fn files_that_are_no_lora_adapters_are_refused() {
    let model = Adapter::open(tiny_model()).unwrap_err().to_string();
    assert!(model.contains("smollm3.gguf' is not a LoRA adapter: general.type is"), "{model}");
    for (file, message) in [
        (File::new().key("general.type", "model"), "general.type is 'model', expected 'adapter'"),
        (File::new().key("adapter.type", "ia3"), "adapter.type is 'ia3', expected 'lora'"),
        (
            File::new().key("adapter.alora.invocation_tokens", Value::U32(3)),
            "is an activated LoRA (aLoRA)",
        ),
        (File::new().key("adapter.lora.alpha", f32::NAN), "adapter.lora.alpha = NaN"),
        (File { tensors: Vec::new(), ..File::new() }, "has no tensors"),
    ] {
        assert_refused(&file, message);
    }
    let missing = Adapter::open("no such file").unwrap_err().to_string();
    assert!(missing.contains("no such file"), "{missing}");
}

#[test]
fn adapters_of_other_models_are_refused() {
    const Q: [&str; 2] = ["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"];
    const FAR: [&str; 2] = ["blk.99.attn_q.weight.lora_a", "blk.99.attn_q.weight.lora_b"];
    let pair = |names, shapes: [[u64; 2]; 2]| {
        let file = File { tensors: Vec::new(), ..File::new() };
        file.pair(names, |_| shapes.map(|shape| shape.to_vec()))
    };
    let base = Gguf::open(tiny_model()).unwrap();
    let &[columns, rows] = base.tensor("blk.0.attn_q.weight").unwrap().shape() else { panic!() };
    let shape_of_a = format!("'blk.0.attn_q.weight.lora_a' has shape [{columns}, 2]");
    let shape_of_b = format!("'blk.0.attn_q.weight.lora_b' has shape [2, {}]", rows - 1);
    for (file, message) in [
        (
            File::new().key("general.architecture", "llama"),
            "is for the architecture 'llama', and the model has 'smollm3'",
        ),
        (
            pair(FAR, [[columns, 2], [2, rows]]),
            "'blk.99.attn_q.weight', which the model does not have",
        ),
        (pair(Q, [[7, 2], [2, rows]]), "'blk.0.attn_q.weight.lora_a' has shape [7, 2]"),
        (pair(Q, [[columns, 2], [3, rows]]), &shape_of_a),
        (pair(Q, [[columns, 2], [2, rows - 1]]), &shape_of_b),
    ] {
        assert_refused(&file, message);
    }
}

#[test]
fn tensors_that_are_no_pairs_of_matrices_are_refused() {
    let mut unpaired = File::new();
    unpaired.tensors.truncate(1);
    assert_refused(&unpaired, "has the tensor 'blk.0.attn_q.weight.lora_a' but not");
    let mut other = File::new();
    other.tensors.push(("blk.0.attn_norm.weight", vec![64]));
    assert_refused(&other, "changes the tensor 'blk.0.attn_norm.weight'");
    let norm = ["blk.0.attn_norm.weight.lora_a", "blk.0.attn_norm.weight.lora_b"];
    let norm = File::new().pair(norm, |shape| [vec![shape[0], 1], vec![1, 1]]);
    assert_refused(&norm, "'blk.0.attn_norm.weight', which is not supported for the architecture");
    let infinite = File { value: f32::INFINITY, ..File::new() };
    assert_refused(&infinite, "'blk.0.attn_q.weight.lora_a' has a value that is not a number");
}

#[test]
fn adapters_are_refused_with_a_block_for_drafts() {
    let base = Gguf::open(golden_model("glm4moe")).unwrap();
    let mut file = File::new().key("general.architecture", "glm4moe");
    let q = base.tensor("blk.0.attn_q.weight").unwrap().shape();
    file.tensors[0].1 = vec![q[0], 2];
    file.tensors[1].1 = vec![2, q[1]];
    let adapters = AdapterSet::new(vec![file.open().unwrap()], &base).unwrap();
    let config = ModelConfig::from_gguf(&base).unwrap();
    assert!(build_with_adapters(&base, &config, &adapters, 64, Head::Logits).is_ok());
    let error = build_with_adapters(&base, &config, &adapters, 64, Head::LogitsAndMtp);
    assert!(error.unwrap_err().to_string().contains("turn these drafts off"));
}

#[test]
fn an_adapter_is_no_model() {
    let error = ModelConfig::from_gguf(&Gguf::from_bytes(File::new().bytes()).unwrap());
    assert!(error.unwrap_err().to_string().starts_with("the file is an adapter, not a model"));
}

#[test]
fn files_that_are_no_control_vectors_are_refused() {
    let open = |names: &[&str], values: u64, value: f32| {
        let mut writer = GgufWriter::new();
        writer.add("general.architecture", "controlvector").unwrap();
        for name in names {
            writer.add_tensor(*name, &[values], DType::F32).unwrap();
        }
        let mut bytes = Vec::new();
        let write = |_: &TensorPlan, out: &mut dyn std::io::Write| {
            Ok(out.write_all(&value.to_le_bytes().repeat(values as usize))?)
        };
        writer.write_to(&mut bytes, write).unwrap();
        ControlVector::from_gguf(&Gguf::from_bytes(bytes).unwrap(), "c.gguf")
    };
    for (names, value, message) in [
        (&["direction.0"][..], 1.0, "tensor 'direction.0' is not direction.N"),
        (&["direction.1", "other"], 1.0, "tensor 'other' is not direction.N"),
        (&["direction.1"], f32::NAN, "'direction.1' has a value that is not a number"),
        (&[], 1.0, "'c.gguf' has no tensors"),
    ] {
        let error = open(names, 8, value).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let vector = (open(&["direction.1"], 8, 1.0).unwrap(), 1.0);
    let set = AdapterSet::default().with_control_vectors(&[vector], &(0..=9), 64);
    let error = set.unwrap_err().to_string();
    assert!(error.contains("'direction.1' has shape [8], and this model needs [64]"), "{error}");
}

/// Damaged files end in an error or a graph, never in a panic.
#[test]
fn damaged_adapters_do_not_panic() {
    let mut random = Lcg::new(1);
    for case in golden_adapters().iter().filter(|case| !case.adapters.is_empty()) {
        let base = Gguf::open(case.model.path()).unwrap();
        let config = ModelConfig::from_gguf(&base).unwrap();
        let whole = std::fs::read(&case.adapters[0].0).unwrap();
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..=random.byte() % 4 {
                let at = usize::from(random.byte()) << 8 | usize::from(random.byte());
                // Most of the damage is in the header.
                let at = if random.byte() < 200 { at % 2048 } else { at };
                let len = bytes.len();
                bytes[at % len] = random.byte();
            }
            let Ok(gguf) = Gguf::from_bytes(bytes) else { continue };
            let Ok(adapter) = Adapter::from_gguf(gguf, "damaged") else { continue };
            if let Ok(set) = AdapterSet::new(vec![adapter], &base) {
                drop(build_with_adapters(&base, &config, &set, 64, Head::Logits));
            }
        }
    }
}
