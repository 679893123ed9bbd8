//! The choice of formats against files that llama-quantize wrote.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::Path;

use rf_convert::{Conversion, Error, Imatrix, Mix, Options};
use rf_gguf::{Gguf, GgufWriter};
use rf_quant::DType;

fn imatrix(chunk_tokens: u32, num_chunks: u32) -> Imatrix {
    let mut imatrix = Imatrix::default();
    (imatrix.chunk_tokens, imatrix.num_chunks) = (chunk_tokens, num_chunks);
    imatrix
}

/// An importance matrix in which all columns of a model count the same.
fn ones(gguf: &Gguf) -> Imatrix {
    let mut imatrix = imatrix(1, 1);
    for tensor in gguf.tensors().iter().filter(|tensor| tensor.shape().len() > 1) {
        let length = |axis: usize| tensor.shape().get(axis).map_or(1, |&length| length as usize);
        let squares = vec![1.0; length(0) * length(2)];
        imatrix.add(tensor.name(), &squares, &vec![1.0; length(2)]).unwrap();
    }
    imatrix
}

/// The mixes do not depend on the formats of the input, so the file itself serves as input.
#[test]
fn mixes_choose_the_formats_of_llama_quantize() {
    let files = [
        "llama_IQ4_NL",
        "llama_IQ4_XS",
        "llama_IQ3_S",
        "llama_IQ3_XXS",
        "llama_IQ2_S",
        "llama_IQ2_XS",
        "llama_IQ2_XXS",
        "llama_IQ1_M",
        "llama_IQ1_S",
        "llama_TQ1_0",
        "llama_TQ2_0",
        "moe_IQ1_M",
        "moe_IQ2_XS",
        "moe_IQ3_S",
        "moe_IQ3_XXS",
    ];
    let Some(models) = rf_testing::shared("golden/iq") else { return };
    for name in files {
        let gguf = Gguf::open(models.join(format!("iq_{name}.gguf"))).unwrap();
        let mix: Mix = name.split_once('_').unwrap().1.parse().unwrap();
        assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), mix.file_type());
        let folder = tempfile::tempdir().unwrap();
        let imatrix = ones(&gguf);
        let options = Options::default().with_allow_requantize(true).with_imatrix(&imatrix);
        let conversion =
            Conversion::plan(&gguf, folder.path().join("out.gguf"), mix, &options).unwrap();
        for row in conversion.tensors() {
            assert_eq!(row.dtype, row.tensor.dtype().unwrap(), "{name}: {}", row.tensor.name());
        }
        assert_eq!(conversion.output_bytes(), conversion.input_bytes(), "{name}");
    }
}

/// Two experts of 256 columns and 2 rows, with different values in each row.
fn experts(folder: &Path) -> Gguf {
    let path = folder.join("experts.gguf");
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "llama").unwrap();
    writer.add_tensor("blk.0.ffn_up_exps.weight", &[256, 2, 2], DType::F32).unwrap();
    let values = (0..1024u32).map(|i| ((i * i * 31 + 7 * i) as f32 * 0.37).sin());
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    writer.write_file(&path, |_, out| Ok(out.write_all(&bytes)?)).unwrap();
    Gguf::open(&path).unwrap()
}

/// Sums for the experts: the first one needs its even columns, the second one its odd columns.
fn parities() -> Imatrix {
    let squares: Vec<f32> = (0..512)
        .map(|i| match (i / 256, i % 2) {
            (0, 0) => 400.0,
            (1, 1) => 800.0,
            _ => 1.0,
        })
        .collect();
    let mut imatrix = imatrix(4, 2);
    imatrix.add("blk.0.ffn_up_exps.weight", &squares, &[4.0, 8.0]).unwrap();
    imatrix
}

/// Sums of an expert that no token selected, or of one whose columns count the same.
fn second_expert(square: f32, count: f32) -> Imatrix {
    let squares: Vec<f32> = (0..512).map(|i| if i < 256 { 1.0 } else { square }).collect();
    let mut imatrix = imatrix(4, 2);
    imatrix.add("blk.0.ffn_up_exps.weight", &squares, &[4.0, count]).unwrap();
    imatrix
}

/// The restored values of the experts, quantised with an importance matrix.
fn quantized(gguf: &Gguf, folder: &Path, mix: &str, imatrix: Option<&Imatrix>) -> Vec<f32> {
    let out = folder.join("out.gguf");
    let options = Options::default().with_imatrix(imatrix).with_pure(true);
    let conversion = Conversion::plan(gguf, &out, mix.parse().unwrap(), &options).unwrap();
    conversion.write(1, |_| std::ops::ControlFlow::Continue(())).unwrap();
    let gguf = Gguf::open(&out).unwrap();
    let tensor = &gguf.tensors()[0];
    let mut values = vec![0.0; 1024];
    rf_quant::dequantize(tensor.dtype().unwrap(), &gguf.data(tensor), &mut values).unwrap();
    values
}

/// Each expert is quantised with its own columns: those that count have less error than without
/// importance.
#[test]
fn each_expert_has_its_own_importance() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = experts(folder.path());
    let mut original = vec![0.0; 1024];
    rf_quant::dequantize(DType::F32, &gguf.data(&gguf.tensors()[0]), &mut original).unwrap();
    let plain = quantized(&gguf, folder.path(), "Q2_K", None);
    let path = folder.path().join("imatrix.gguf");
    parities().write_file(&path).unwrap();
    let imatrix = Imatrix::open(&path).unwrap();
    assert_eq!(imatrix, parities());
    let weighted = quantized(&gguf, folder.path(), "Q2_K", Some(&imatrix));
    for row in 0..4 {
        let parity = row / 2;
        let error = |values: &[f32]| -> f32 {
            let errors = values.iter().zip(&original).skip(row * 256 + parity).step_by(2);
            errors.take(128).map(|(a, b)| (a - b).powi(2)).sum()
        };
        let (weighted, plain) = (error(&weighted), error(&plain));
        assert!(weighted < plain, "row {row}: {weighted}, without importance {plain}");
    }
    let quantized = |imatrix| quantized(&gguf, folder.path(), "Q4_0", Some(imatrix));
    assert_eq!(quantized(&second_expert(0.0, 0.0)), quantized(&second_expert(3.0, 1.0)));
}

#[test]
fn coarse_formats_need_an_importance_matrix_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = experts(folder.path());
    let plan = |mix: &str, imatrix: Option<&Imatrix>| {
        let options = Options::default().with_imatrix(imatrix);
        let out = folder.path().join("out.gguf");
        Conversion::plan(&gguf, out, mix.parse().unwrap(), &options).map(drop)
    };
    for mix in ["IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "Q2_K_S"] {
        let error = plan(mix, None).unwrap_err();
        assert!(matches!(error, Error::NeedsImatrix { is_missing: false, .. }), "{mix}: {error}");
        let error = plan(mix, Some(&Imatrix::default())).unwrap_err();
        assert!(matches!(error, Error::NeedsImatrix { is_missing: true, .. }), "{mix}: {error}");
        plan(mix, Some(&parities())).unwrap();
    }
    for mix in ["IQ3_M", "IQ3_S", "Q2_K", "TQ1_0"] {
        plan(mix, None).unwrap();
    }
    let mut other = Imatrix::default();
    other.add("blk.0.ffn_up_exps.weight", &[1.0; 128], &[1.0]).unwrap();
    let message = "the importance matrix has 128 values for 'blk.0.ffn_up_exps.weight', but 512 \
                   are needed: use the importance matrix of this model";
    assert_eq!(plan("Q4_K_M", Some(&other)).unwrap_err().to_string(), message);
}

/// The older form of the file holds `calls × mean`.
#[test]
fn the_older_form_is_read_and_damage_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imatrix.dat");
    let text = |text: &str| [&(text.len() as i32).to_le_bytes()[..], text.as_bytes()].concat();
    let values = [6.0_f32, 2.0].map(f32::to_le_bytes).concat();
    let mut bytes = 1_i32.to_le_bytes().to_vec();
    bytes.extend(text("blk.0.attn_q.weight"));
    bytes.extend([2_i32, 2].map(i32::to_le_bytes).concat());
    bytes.extend(&values);
    let whole = bytes.len();
    bytes.extend(7_i32.to_le_bytes());
    bytes.extend(text("text.txt"));
    std::fs::write(&path, &bytes).unwrap();
    let old = Imatrix::open(&path).unwrap();
    assert_eq!((old.datasets.as_slice(), old.num_chunks), (&["text.txt".to_owned()][..], 7));

    // Two calls of 512 tokens each, with means 3 and 1, and one token with squares 5 and 9.
    let mut merged = imatrix(512, 1);
    merged.add("blk.0.attn_q.weight", &[5.0, 9.0], &[1.0]).unwrap();
    merged.merge(&old).unwrap();
    let mut expected = imatrix(512, 8);
    expected.datasets = vec!["text.txt".to_owned()];
    expected.add("blk.0.attn_q.weight", &[3077.0, 1033.0], &[1025.0]).unwrap();
    assert_eq!(merged, expected);

    for len in 0..whole {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let error = Imatrix::open(&path).unwrap_err();
        assert!(matches!(error, Error::NotImatrix { .. }), "{len} bytes: {error}");
    }
}
