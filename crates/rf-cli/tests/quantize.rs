//! Quantised files: the formats that llama.cpp chooses, its bytes where they are deterministic, and
//! nothing left behind on failure.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;

use program::{TinyModel, demo_model, finish, transcripts};
use rf_convert::Mix;
use rf_gguf::{Gguf, GgufWriter};
use rf_quant::DType;
use rf_testing::shared;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

fn quantize(folder: &Path, arguments: &[&str]) {
    let finished = finish(folder, &[&["quantize"], arguments].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

#[test]
fn mixes_are_those_of_llama_cpp() {
    let Some(models) = shared("models") else { return };
    let folder = TempDir::new().unwrap();
    let original = models.join("stories-7m-F16.gguf");
    for mix in
        ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"]
    {
        quantize(folder.path(), &[original.to_str().unwrap(), "out.gguf", mix]);
        let ours = Gguf::open(folder.path().join("out.gguf")).unwrap();
        let theirs = Gguf::open(models.join(format!("stories-7m-{mix}.gguf"))).unwrap();
        let file_type = |gguf: &Gguf| gguf.metadata().u32("general.file_type").unwrap();
        assert_eq!(file_type(&ours), file_type(&theirs), "{mix}");
        assert_eq!(ours.tensors().len(), theirs.tensors().len(), "{mix}");
        for tensor in theirs.tensors() {
            let name = tensor.name();
            let our_tensor = ours.required_tensor(name).unwrap();
            assert_eq!(our_tensor.ty(), tensor.ty(), "{mix}: {name}");
            assert_eq!(our_tensor.shape(), tensor.shape(), "{mix}: {name}");
            // The search for K-quant scales is our own.
            if tensor.dtype().unwrap().block_elements() < 256 {
                assert!(
                    ours.data(our_tensor)[..] == theirs.data(tensor)[..],
                    "{mix}: {name} differs"
                );
            }
        }
    }
}

/// A matrix of each part that the rules know, with rows of `columns`.
fn tensors(columns: u64) -> Vec<(&'static str, Vec<u64>, DType)> {
    let matrix = |name| (name, vec![columns, 4], DType::F32);
    vec![
        matrix("token_embd.weight"),
        matrix("output.weight"),
        matrix("blk.0.attn_q.weight"),
        matrix("blk.0.attn_v.weight"),
        matrix("blk.0.ffn_down.weight"),
        ("blk.0.attn_norm.weight", vec![columns], DType::F32),
        ("blk.0.ffn_gate_inp.weight", vec![columns, 4], DType::F32),
    ]
}

fn dtypes(folder: &Path, columns: u64, mix: &str) -> Vec<DType> {
    let model = TinyModel { architecture: "llama", tensors: tensors(columns) };
    fs::write(folder.join("in.gguf"), model.bytes()).unwrap();
    quantize(folder, &["in.gguf", "out.gguf", mix]);
    let gguf = Gguf::open(folder.join("out.gguf")).unwrap();
    gguf.tensors().iter().map(|tensor| tensor.dtype().unwrap()).collect()
}

#[test]
fn rows_that_do_not_fill_super_blocks_fall_back() {
    let folder = TempDir::new().unwrap();
    let of = |columns, mix| dtypes(folder.path(), columns, mix);
    let f32 = DType::F32;
    // One layer is the last eighth, so Q4_K_M gives it more bits; rows of 288 do not fill blocks of
    // 256.
    assert_eq!(
        of(256, "Q4_K_M"),
        [DType::Q4K, DType::Q6K, DType::Q4K, DType::Q6K, DType::Q6K, f32, f32]
    );
    assert_eq!(
        of(288, "Q4_K_M"),
        [DType::Q5_0, DType::Q8_0, DType::Q5_0, DType::Q8_0, DType::Q8_0, f32, f32]
    );
    assert_eq!(
        of(288, "Q5_K_S"),
        [DType::Q5_1, DType::Q8_0, DType::Q5_1, DType::Q5_1, DType::Q5_1, f32, f32]
    );
    assert_eq!(
        of(288, "Q2_K"),
        [DType::Q4_0, DType::Q8_0, DType::Q4_0, DType::Q4_0, DType::Q4_0, f32, f32]
    );
    assert_eq!(
        of(288, "Q4_0"),
        [DType::Q4_0, DType::Q8_0, DType::Q4_0, DType::Q4_0, DType::Q4_0, f32, f32]
    );
    let f16 = DType::F16;
    assert_eq!(of(100, "Q4_K_M"), [f16, f16, f16, f16, f16, f32, f32]);
}

#[test]
fn every_format_is_written_and_read_back() {
    let folder = TempDir::new().unwrap();
    let input = demo_model();
    let values = |gguf: &Gguf| {
        let tensor = gguf.required_tensor("blk.0.ffn_up.weight").unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        rf_quant::dequantize(tensor.dtype().unwrap(), &gguf.data(tensor), &mut values).unwrap();
        values
    };
    let original = values(&Gguf::open(&input).unwrap());
    let energy: f32 = original.iter().map(|x| x * x).sum();
    imatrix(folder.path(), &["-f", "story.txt", "-c", "32", "-o", "imatrix.gguf"]);
    for mix in Mix::ALL.iter().map(Mix::name) {
        let input = input.to_str().unwrap();
        let arguments = ["--allow-requantize", "--imatrix", "imatrix.gguf", input, "out.gguf", mix];
        quantize(folder.path(), &arguments);
        let gguf = Gguf::open(folder.path().join("out.gguf")).unwrap();
        let error: f32 = values(&gguf).iter().zip(&original).map(|(a, b)| (a - b).powi(2)).sum();
        let bound = match mix {
            // Made for weights of few values, which these are not.
            "TQ1_0" | "TQ2_0" => 1.5,
            "Q1_0" | "Q2_0" => 0.6,
            _ if mix.starts_with("IQ1") => 0.6,
            _ if mix.starts_with("IQ2") => 0.25,
            _ if mix.starts_with("Q2_") => 0.2,
            _ => 0.1,
        };
        assert!(error < bound * energy, "{mix}: {}", error / energy);
    }
}

/// Runs `imatrix` with the demo model in a folder with a text of more than 128 tokens.
fn imatrix(folder: &Path, arguments: &[&str]) {
    let sentence = "Once upon a time, there lived a shy fox named Marigold in a small house. ";
    fs::write(folder.join("story.txt"), sentence.repeat(12)).unwrap();
    let finished = finish(folder, &[&["imatrix"], arguments].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

/// The sums and the rows of a tensor in an importance matrix.
fn sums(path: &Path, tensor: &str) -> (Vec<f32>, Vec<f32>) {
    let gguf = Gguf::open(path).unwrap();
    let [sums, rows] = ["in_sum2", "counts"].map(|suffix| {
        let tensor = gguf.required_tensor(&format!("{tensor}.{suffix}")).unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        rf_quant::dequantize(DType::F32, &gguf.data(tensor), &mut values).unwrap();
        values
    });
    (sums, rows)
}

#[test]
fn importance_matrices_are_made_and_merged() {
    let folder = TempDir::new().unwrap();
    let arguments = ["-f", "story.txt", "-c", "32", "--chunks", "2", "-o"];
    imatrix(folder.path(), &[&arguments[..], &["two.gguf"]].concat());
    let path = |name| folder.path().join(name);
    let gguf = Gguf::open(path("two.gguf")).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.str("general.type").unwrap(), Some("imatrix"));
    assert_eq!(metadata.u32("imatrix.chunk_count").unwrap(), Some(2));
    assert_eq!(metadata.u32("imatrix.chunk_size").unwrap(), Some(32));
    let datasets = metadata.required_strings("imatrix.datasets").unwrap();
    assert_eq!(datasets.iter().collect::<Vec<_>>(), ["story.txt"]);
    assert_eq!(gguf.tensors().len(), 2 * 7 * 8);
    let (query, rows) = sums(&path("two.gguf"), "blk.7.attn_q.weight");
    assert_eq!((query.len(), rows), (256, vec![64.0]));
    assert_eq!(sums(&path("two.gguf"), "blk.7.attn_v.weight").0, query);
    let (down, _) = sums(&path("two.gguf"), "blk.7.ffn_down.weight");
    assert_eq!(down.len(), 768);
    assert!(query.iter().chain(&down).all(|sum| *sum > 0.0));

    // A text and a file, and files alone.
    let merge = ["--in-file", "two.gguf"];
    imatrix(folder.path(), &[&arguments[..], &["four.gguf"], &merge[..]].concat());
    imatrix(folder.path(), &[&merge[..], &merge[..], &["-o", "twice.gguf"]].concat());
    let doubled: Vec<f32> = query.iter().map(|sum| 2.0 * sum).collect();
    for name in ["four.gguf", "twice.gguf"] {
        assert_eq!(sums(&path(name), "blk.7.attn_q.weight"), (doubled.clone(), vec![128.0]));
        let gguf = Gguf::open(path(name)).unwrap();
        assert_eq!(gguf.metadata().u32("imatrix.chunk_count").unwrap(), Some(4));
    }
}

#[test]
fn missing_importance_is_reported_with_its_cure() {
    let folder = TempDir::new().unwrap();
    fs::copy(demo_model(), folder.path().join("in.gguf")).unwrap();
    fs::write(folder.path().join("short.txt"), "Once upon a time").unwrap();
    let lines = [
        &["quantize", "--allow-requantize", "in.gguf", "out.gguf", "IQ2_XS"][..],
        &["quantize", "--imatrix", "short.txt", "in.gguf", "out.gguf", "Q4_K_M"],
        &["quantize", "--imatrix", "in.gguf", "in.gguf", "out.gguf", "Q4_K_M"],
        &["imatrix", "-f", "short.txt", "-c", "32"],
        &["imatrix"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli quantize --allow-requantize in.gguf out.gguf IQ2_XS
error: tensor 'blk.0.attn_k.weight' cannot become IQ2_XS without an importance matrix: make one of this model with 'rf-cli imatrix' and give it with --imatrix
? 2
$ rf-cli quantize --imatrix short.txt in.gguf out.gguf Q4_K_M
error: 'short.txt' is not an importance matrix: it is no GGUF file, and as a file of the older form it ends within an entry
? 2
$ rf-cli quantize --imatrix in.gguf in.gguf out.gguf Q4_K_M
error: 'in.gguf' is not an importance matrix: it has no tensor whose name ends in '.in_sum2'
? 2
$ rf-cli imatrix -f short.txt -c 32
error: 4 tokens give no chunk of 32: give a longer text, a smaller -c, or more --chunks
? 2
$ rf-cli imatrix
error: the following required arguments were not provided:
  --file <FILE>

Usage: rf-cli imatrix --file <FILE>

For more information, try '--help'.
? 2

"#]]
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn the_number_of_threads_does_not_change_the_file() {
    let folder = TempDir::new().unwrap();
    let input = demo_model();
    let input = input.to_str().unwrap();
    for threads in ["1", "3"] {
        let out = format!("{threads}.gguf");
        quantize(
            folder.path(),
            &["--allow-requantize", "--threads", threads, input, &out, "Q4_K_M"],
        );
    }
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    assert!(read("1.gguf") == read("3.gguf"));
}

#[test]
fn the_input_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let model = TinyModel { architecture: "llama", tensors: tensors(256) };
    fs::write(folder.path().join("in.gguf"), model.bytes()).unwrap();
    fs::hard_link(folder.path().join("in.gguf"), folder.path().join("same.gguf")).unwrap();
    for out in ["in.gguf", "./in.gguf", "same.gguf"] {
        let finished = finish(folder.path(), &["quantize", "in.gguf", out, "Q8_0"]);
        let message = format!("error: '{out}' is the model that is read: write to another file\n");
        assert_eq!((finished.code, finished.stderr), (Some(2), message));
    }
    assert!(fs::read(folder.path().join("in.gguf")).unwrap() == model.bytes());
}

#[test]
fn quantised_input_needs_permission() {
    let folder = TempDir::new().unwrap();
    let input = demo_model();
    let finished =
        finish(folder.path(), &["quantize", input.to_str().unwrap(), "out.gguf", "Q4_0"]);
    let message = "error: tensor 'token_embd.weight' is already quantised (Q8_0), and quantising it \
                   again loses quality: start from an F16, BF16 or F32 file, or give --allow-requantize\n";
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(2), message));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failure_leaves_no_file_and_keeps_the_old_one() {
    let folder = TempDir::new().unwrap();
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "llama").unwrap();
    writer.add_tensor("blk.0.attn_q.weight", &[32, 2], DType::F32).unwrap();
    let mut values = vec![1.0_f32; 64];
    values[40] = f32::NAN;
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let input = folder.path().join("nan.gguf");
    writer.write_file(&input, |_, out| Ok(out.write_all(&data)?)).unwrap();
    fs::write(folder.path().join("old.gguf"), "precious").unwrap();

    for out in ["new.gguf", "old.gguf"] {
        let finished = finish(folder.path(), &["quantize", "nan.gguf", out, "Q8_0"]);
        let message = "error: cannot write the data of tensor 'blk.0.attn_q.weight': value 40 is NaN, \
                       which Q8_0 cannot store: the model is damaged, so download or convert it again\n";
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(1), message));
    }
    let missing = finish(folder.path(), &["quantize", "nan.gguf", "no/out.gguf", "F16"]);
    let message = "error: cannot write 'no/out.gguf': No such file or directory (os error 2)\n";
    assert_eq!((missing.code, missing.stderr.as_str()), (Some(1), message));

    assert_eq!(fs::read(folder.path().join("old.gguf")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let model = TinyModel { architecture: "llama", tensors: tensors(288) };
    fs::write(folder.path().join("in.gguf"), model.bytes()).unwrap();
    let finished =
        finish(folder.path(), &["quantize", "--dry-run", "in.gguf", "out.gguf", "Q4_K_M"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let line = finished.stdout.lines().next().unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..6], ["token_embd.weight", "[288,", "4]", "F32", "->", "Q5_0"]);
    assert!(line.ends_with("(rows do not fit Q4_K)"), "{line}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
