//! Model files that are split, merged, edited and compared.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;

use program::{changed_demo, demo_model, finish, transcripts};
use rf_gguf::{Array, Gguf, GgufWriter, Value};
use rf_quant::DType;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// A folder with the demo model.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
    folder
}

fn open(folder: &TempDir, name: &str) -> Gguf {
    Gguf::open(folder.path().join(name)).unwrap()
}

fn files(folder: &TempDir) -> Vec<String> {
    let files = fs::read_dir(folder.path()).unwrap();
    let mut files: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    files
}

/// Keys of one file of a split model. The reader checks the keys of the first part only.
fn keys(path: &Path, index: u16) -> Vec<(String, Value)> {
    let mut bytes = fs::read(path).unwrap();
    // The reader takes one part for a whole file if it has no `split.count`, so rename the key.
    let name = b"split.count";
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[place..place + name.len()].copy_from_slice(b"count.split");
    let part = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(part.metadata().get("split.no"), Some(&Value::U16(index)));
    part.metadata().iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// Checks that a folder has these files, and `m.gguf` is the demo model.
fn assert_unchanged(folder: &TempDir, names: &[String]) {
    assert_eq!(files(folder), names);
    let [model, demo] =
        [folder.path().join("m.gguf"), demo_model()].map(|file| fs::read(file).unwrap());
    assert!(model == demo);
}

#[test]
fn a_model_is_split_and_merged_without_a_difference() {
    let folder = folder();
    let lines = [
        &["gguf", "split", "--dry-run", "--split-max-size", "3M", "m.gguf"][..],
        &["gguf", "split", "--split-max-size", "3M", "m.gguf"],
        &["gguf", "diff", "m.gguf", "m-00002-of-00003.gguf"],
        &["gguf", "merge", "m-00003-of-00003.gguf", "merged.gguf"],
        &["gguf", "diff", "m.gguf", "merged.gguf"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli gguf split --dry-run --split-max-size 3M m.gguf
m-00001-of-00003.gguf     24 tensors     2.83 MiB
m-00002-of-00003.gguf     31 tensors     2.83 MiB
m-00003-of-00003.gguf     19 tensors     1.80 MiB
$ rf-cli gguf split --split-max-size 3M m.gguf
m-00001-of-00003.gguf     24 tensors     2.83 MiB
m-00002-of-00003.gguf     31 tensors     2.83 MiB
m-00003-of-00003.gguf     19 tensors     1.80 MiB
$ rf-cli gguf diff m.gguf m-00002-of-00003.gguf
$ rf-cli gguf merge m-00003-of-00003.gguf merged.gguf
merged.gguf: 74 tensors from 3 parts
$ rf-cli gguf diff m.gguf merged.gguf

"#]]
    );
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    assert!(read("m.gguf") == read("merged.gguf"));

    let run = |model| {
        let arguments = ["run", "-m", model, "--raw", "--temp", "0", "-n", "4", "Once"];
        let finished = finish(folder.path(), &arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stdout
    };
    assert_eq!(run("m-00001-of-00003.gguf"), run("m.gguf"));
}

#[test]
fn the_keys_of_parts_are_those_of_llama_gguf_split() {
    let folder = folder();
    let arguments =
        ["gguf", "split", "--split-max-tensors", "40", "--no-tensor-first-split", "m.gguf", "p"];
    assert_eq!(finish(folder.path(), &arguments).code, Some(0));
    let model = open(&folder, "m.gguf");
    let count = model.tensors().len().div_ceil(40) + 1;
    let part = |index: usize| folder.path().join(format!("p-{:05}-of-{count:05}.gguf", index + 1));

    let first = keys(&part(0), 0);
    assert_eq!(first.len(), model.metadata().iter().len() + 3);
    let total = Value::I32(model.tensors().len() as i32);
    for index in 1..count {
        let expected = [
            ("split.no", Value::U16(index as u16)),
            ("count.split", Value::U16(count as u16)),
            ("split.tensors.count", total.clone()),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(keys(&part(index), index as u16), expected);
    }
    let merged = Gguf::open(part(1)).unwrap();
    assert_eq!(merged.tensors().len(), model.tensors().len());
    assert!(Gguf::open(part(0)).unwrap().paths().len() == count);
    // A part that is written in front of the others has no tensors.
    assert!(fs::metadata(part(0)).unwrap().len() < fs::metadata(part(1)).unwrap().len());
}

#[test]
fn metadata_are_edited_with_their_types() {
    let folder = folder();
    let before = fs::read(folder.path().join("m.gguf")).unwrap();
    let lines = [
        &["gguf", "edit", "m.gguf", "--set", "general.name=Fox", "--dry-run"][..],
        &["gguf", "edit", "m.gguf", "--set", "general.name=Fox"],
        &["gguf", "edit", "m.gguf", "--set", "general.name=Fox"],
        &[
            "gguf",
            "edit",
            "m.gguf",
            "--set",
            "llama.context_length=256",
            "--set",
            "x.y=u8[]:[1, 2]",
        ],
        &["gguf", "edit", "m.gguf", "--rename", "x.y=x.z", "--set", "x.z=[3]", "-o", "new.gguf"],
        &["gguf", "edit", "new.gguf", "--remove", "x.z", "--set", "x.z=f32:0.5"],
        &["gguf", "diff", "m.gguf", "new.gguf"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli gguf edit m.gguf --set general.name=Fox --dry-run
general.name: "Demo stories 7M" -> "Fox"
$ rf-cli gguf edit m.gguf --set general.name=Fox
general.name: "Demo stories 7M" -> "Fox"
m.gguf: changed, and the old file is m.gguf.bak
$ rf-cli gguf edit m.gguf --set general.name=Fox
m.gguf: nothing changes, so nothing is written
$ rf-cli gguf edit m.gguf --set llama.context_length=256 --set 'x.y=u8[]:[1, 2]'
llama.context_length: 1024 -> 256
x.y: added, [1,2]
m.gguf: changed, and the old file is m.gguf.bak1
$ rf-cli gguf edit m.gguf --rename x.y=x.z --set 'x.z=[3]' -o new.gguf
x.y -> x.z: [1,2] -> [3]
new.gguf
$ rf-cli gguf edit new.gguf --remove x.z --set x.z=f32:0.5
x.z: [3] -> 0.5
new.gguf: changed, and the old file is new.gguf.bak
$ rf-cli gguf diff m.gguf new.gguf
key x.y: only in A, [1,2]
key x.z: only in B, 0.5
? 1

"#]]
    );
    assert_eq!(files(&folder), ["m.gguf", "m.gguf.bak", "m.gguf.bak1", "new.gguf", "new.gguf.bak"]);
    assert!(fs::read(folder.path().join("m.gguf.bak")).unwrap() == before);
    let (old, new) = (open(&folder, "m.gguf.bak"), open(&folder, "m.gguf"));
    assert_eq!(new.metadata().get("llama.context_length"), Some(&Value::U32(256)));
    assert_eq!(new.metadata().get("x.y"), Some(&Value::Array(Array::U8(vec![1, 2]))));
    for (old, new) in old.tensors().iter().zip(new.tensors()) {
        assert_eq!((old.name(), old.ty(), old.shape()), (new.name(), new.ty(), new.shape()));
        assert!(old.data()[..] == new.data()[..], "{}", old.name());
    }
}

#[test]
fn the_alignment_of_a_file_is_kept() {
    let folder = TempDir::new().unwrap();
    let aligned = changed_demo(&[("general.alignment", Value::U32(256))], |_, _| ());
    fs::write(folder.path().join("m.gguf"), aligned).unwrap();
    let arguments = ["gguf", "edit", "m.gguf", "--set", "general.name=x"];
    assert_eq!(finish(folder.path(), &arguments).code, Some(0));
    let arguments = ["gguf", "split", "--split-max-size", "3M", "m.gguf"];
    assert_eq!(finish(folder.path(), &arguments).code, Some(0));
    for name in ["m.gguf", "m-00002-of-00003.gguf"] {
        let gguf = open(&folder, name);
        assert_eq!(gguf.alignment(), 256);
        assert!(gguf.tensors().iter().all(|tensor| tensor.file_offset().is_multiple_of(256)));
    }
}

/// A folder with the demo model, its two parts, and a link.
fn with_parts() -> TempDir {
    let folder = folder();
    let split = ["gguf", "split", "--split-max-size", "4M", "m.gguf"];
    assert_eq!(finish(folder.path(), &split).code, Some(0));
    std::os::unix::fs::symlink("m.gguf", folder.path().join("link.gguf")).unwrap();
    folder
}

#[test]
fn impossible_changes_are_errors_that_leave_the_files() {
    let folder = with_parts();
    let names = files(&folder);
    let lines = [
        &["gguf", "edit", "m.gguf"][..],
        &["gguf", "edit", "m.gguf", "--set", "llama.context_length=long"],
        &["gguf", "edit", "m.gguf", "--set", "tokenizer.ggml.token_type=0.5"],
        &["gguf", "edit", "m.gguf", "--set", "tokenizer.ggml.token_type=[\"a\"]"],
        &["gguf", "edit", "m.gguf", "--set", "new.key=5"],
        &["gguf", "edit", "m.gguf", "--set", "=5"],
        &["gguf", "edit", "m.gguf", "--set", "general.name=@no.txt"],
        &["gguf", "edit", "m.gguf", "--set", "general.alignment=u32:7"],
        &["gguf", "edit", "m.gguf", "--remove", "new.key"],
        &["gguf", "edit", "m.gguf", "--rename", "general.name=general.architecture"],
        &["gguf", "edit", "m.gguf", "--set", "split.count=u16:2"],
        &["gguf", "edit", "m-00001-of-00002.gguf", "--set", "general.name=x"],
        &["gguf", "edit", "m.gguf", "--set", "general.name=x", "-o", "m.gguf"],
        &["gguf", "edit", "m.gguf", "--set", "general.name=x", "-o", "link.gguf"],
        &["gguf", "edit", "m.gguf", "--set", "general.name=x", "-o", "no/new.gguf"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli gguf edit m.gguf
m.gguf: nothing changes, so nothing is written
$ rf-cli gguf edit m.gguf --set llama.context_length=long
error: cannot change the key 'llama.context_length': a u32 is expected, and 'long' is none
? 2
$ rf-cli gguf edit m.gguf --set tokenizer.ggml.token_type=0.5
error: cannot change the key 'tokenizer.ggml.token_type': a JSON list of i32 is expected, and '0.5' is none
? 2
$ rf-cli gguf edit m.gguf --set 'tokenizer.ggml.token_type=["a"]'
error: cannot change the key 'tokenizer.ggml.token_type': a JSON list of i32 is expected, and '[/"a/"]' is none
? 2
$ rf-cli gguf edit m.gguf --set new.key=5
error: cannot change the key 'new.key': the file does not have it, so its type is needed, as in u32:5 or string:text
? 2
$ rf-cli gguf edit m.gguf --set =5
error: invalid value '=5' for '--set <KEY=VALUE>': expected a key, = and a text, as in general.name=Fox
? 2
$ rf-cli gguf edit m.gguf --set general.name=@no.txt
error: file 'no.txt' does not exist: check the path
? 2
$ rf-cli gguf edit m.gguf --set general.alignment=u32:7
error: cannot write key 'general.alignment': alignment 7 is not a power of two between 1 and 1048576
? 2
$ rf-cli gguf edit m.gguf --remove new.key
error: cannot change the key 'new.key': the file does not have it
? 2
$ rf-cli gguf edit m.gguf --rename general.name=general.architecture
error: cannot change the key 'general.name': the file has 'general.architecture' already
? 2
$ rf-cli gguf edit m.gguf --set split.count=u16:2
error: cannot change the key 'split.count': it counts the parts of a split model, and changes with them only
? 2
$ rf-cli gguf edit m-00001-of-00002.gguf --set general.name=x
error: 'm-00001-of-00002.gguf': the model has 2 parts: merge them first, with `rf-cli gguf merge`
? 2
$ rf-cli gguf edit m.gguf --set general.name=x -o m.gguf
error: 'm.gguf' exists already: give another output
? 2
$ rf-cli gguf edit m.gguf --set general.name=x -o link.gguf
error: 'link.gguf' exists already: give another output
? 2
$ rf-cli gguf edit m.gguf --set general.name=x -o no/new.gguf
error: cannot write 'no/new.gguf': No such file or directory (os error 2)
? 1

"#]]
    );
    assert_unchanged(&folder, &names);
}

#[test]
fn outputs_that_exist_and_wrong_words_are_errors() {
    let folder = with_parts();
    let names = files(&folder);
    let lines = [
        &["gguf", "merge", "m.gguf", "new.gguf"][..],
        &["gguf", "merge", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
        &["gguf", "merge", "m-00001-of-00002.gguf", "m.gguf"],
        &["gguf", "split", "--split-max-size", "4M", "m.gguf"],
        &["gguf", "split", "--split-max-size", "4", "m.gguf"],
        &["gguf", "split", "--split-max-tensors", "0", "m.gguf"],
        &["gguf", "split", "no.gguf"],
        &["gguf", "diff", "m.gguf", "no.gguf"],
        &["gguf", "spilt", "m.gguf"],
        &["gguf", "split", "--tensors", "5", "m.gguf"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli gguf merge m.gguf new.gguf
error: 'm.gguf': the model is one file, so there is nothing to merge
? 2
$ rf-cli gguf merge m-00001-of-00002.gguf m-00002-of-00002.gguf
error: 'm-00002-of-00002.gguf' exists already: give another output
? 2
$ rf-cli gguf merge m-00001-of-00002.gguf m.gguf
error: 'm.gguf' exists already: give another output
? 2
$ rf-cli gguf split --split-max-size 4M m.gguf
error: 'm-00001-of-00002.gguf' exists already: give another output
? 2
$ rf-cli gguf split --split-max-size 4 m.gguf
error: invalid value '4' for '--split-max-size <SIZE>': expected a whole number with M or G, as in 500M or 4G
? 2
$ rf-cli gguf split --split-max-tensors 0 m.gguf
error: invalid value '0' for '--split-max-tensors <N>': expected a whole number of 1 or more
? 2
$ rf-cli gguf split no.gguf
error: file 'no.gguf' does not exist: check the path
? 2
$ rf-cli gguf diff m.gguf no.gguf
error: file 'no.gguf' does not exist: check the path
? 2
$ rf-cli gguf spilt m.gguf
error: 'spilt' is no command of `rf-cli gguf`, did you mean split: `rf-cli gguf --help` lists them
? 2
$ rf-cli gguf split --tensors 5 m.gguf
error: unknown flag '--tensors': `rf-cli gguf split --help` lists the flags, and a text that begins with a dash comes after `--`
? 2

"#]]
    );
    assert_unchanged(&folder, &names);
}

#[test]
fn differences_are_those_of_the_numbers() {
    let folder = folder();
    let changed = changed_demo(&[("general.name", "Fox".into())], |name, bytes| match name {
        "output_norm.weight" => bytes[..4].copy_from_slice(&100.0_f32.to_le_bytes()),
        // A block of Q8_0 is a scale and 32 integers.
        "blk.0.attn_q.weight" => bytes[34 + 2] ^= 1,
        _ => {}
    });
    fs::write(folder.path().join("b.gguf"), changed).unwrap();
    let quantize = ["quantize", "--allow-requantize", "--tensor-type", "attn_k=q4_0"];
    let quantize = [&quantize[..], &["m.gguf", "q.gguf", "q8_0"]].concat();
    assert_eq!(finish(folder.path(), &quantize).code, Some(0));
    let lines = [
        &["gguf", "diff", "m.gguf", "b.gguf"][..],
        &["gguf", "diff", "--no-data", "m.gguf", "b.gguf"],
        &["gguf", "diff", "m.gguf", "q.gguf"],
        &["gguf", "diff", "m.gguf", "m.gguf"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli gguf diff m.gguf b.gguf
key general.name: "Demo stories 7M" -> "Fox"
tensor output_norm.weight: F32 [256], 1 of 256 elements differ, the first is 0, the largest difference 9.770987e1
tensor blk.0.attn_q.weight: Q8_0 [256, 256], 1 of 65536 elements differ, the first is 32, the largest difference 1.3179779e-3
? 1
$ rf-cli gguf diff --no-data m.gguf b.gguf
key general.name: "Demo stories 7M" -> "Fox"
? 1
$ rf-cli gguf diff m.gguf q.gguf
tensor blk.0.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32534 of 32768 elements differ, the first is 0, the largest difference 9.239197e-2
tensor blk.1.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32533 of 32768 elements differ, the first is 0, the largest difference 5.0201416e-2
tensor blk.2.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32507 of 32768 elements differ, the first is 0, the largest difference 3.973198e-2
tensor blk.3.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32510 of 32768 elements differ, the first is 0, the largest difference 6.1645508e-2
tensor blk.4.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32519 of 32768 elements differ, the first is 0, the largest difference 5.4992676e-2
tensor blk.5.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32520 of 32768 elements differ, the first is 0, the largest difference 4.135132e-2
tensor blk.6.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32493 of 32768 elements differ, the first is 0, the largest difference 5.783081e-2
tensor blk.7.attn_k.weight: Q8_0 [256, 128] -> Q4_0 [256, 128], 32555 of 32768 elements differ, the first is 0, the largest difference 5.432129e-2
? 1
$ rf-cli gguf diff m.gguf m.gguf

"#]]
    );

    let json = finish(folder.path(), &["gguf", "diff", "--json", "m.gguf", "b.gguf"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["keys"][0]["b"], serde_json::json!({ "type": "string", "value": "Fox" }));
    assert_eq!(json["tensors"][0]["a"], serde_json::json!({ "type": "F32", "shape": [256] }));
    assert_eq!(json["tensors"][1]["data"]["first"], 32);

    // The largest difference is that of all elements.
    let (m, q) = (open(&folder, "m.gguf"), open(&folder, "q.gguf"));
    let values = |gguf: &Gguf| {
        let tensor = gguf.required_tensor("blk.3.attn_k.weight").unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        rf_quant::dequantize(tensor.dtype().unwrap(), &tensor.data(), &mut values).unwrap();
        values
    };
    let largest = values(&m).iter().zip(values(&q)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let finished = finish(folder.path(), &["gguf", "diff", "m.gguf", "q.gguf"]);
    let line = finished.stdout.lines().find(|line| line.contains("blk.3.attn_k.weight")).unwrap();
    assert!(line.ends_with(&format!("the largest difference {largest:e}")), "{line}");
}

#[test]
fn files_that_go_with_a_model_are_described() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), "A fox and a key. ".repeat(30)).unwrap();
    let imatrix = ["imatrix", "-m", "m.gguf", "-f", "t.txt", "-c", "32", "-o", "i.gguf"];
    assert_eq!(finish(folder.path(), &imatrix).code, Some(0));
    let projector = rf_testing::golden_folder().join("vision/pixtral/mmproj.gguf");
    fs::copy(projector, folder.path().join("mmproj.gguf")).unwrap();
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "controlvector").unwrap();
    writer.add("controlvector.model_hint", "llama").unwrap();
    for layer in [1, 3] {
        writer.add_tensor(format!("direction.{layer}"), &[256], DType::F32).unwrap();
    }
    let control = folder.path().join("control.gguf");
    writer.write_file(control, |_, out| Ok(out.write_all(&[0; 1024])?)).unwrap();
    fs::write(folder.path().join("cut.gguf"), changed_imatrix(&folder)).unwrap();

    let lines = ["i.gguf", "cut.gguf", "mmproj.gguf", "control.gguf"].map(|file| ["info", file]);
    let lines: Vec<&[&str]> = lines.iter().map(|line| &line[..]).collect();
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli info i.gguf
i.gguf (GGUF version 3, 81.38 KiB)
  parameters      18488
  quantisation    F32 (32.00 bits per weight)
  file            importance matrix for 56 tensors, from 6 chunks of 32 tokens of t.txt; give it as quantize --imatrix FILE
  fits            models of 8 layers and width 256
  tensors
    F32              112 tensors    72.22 KiB
$ rf-cli info cut.gguf
cut.gguf (GGUF version 3, 81.38 KiB)
  parameters      18488
  quantisation    F32 (32.00 bits per weight)
  file            importance matrix for 56 tensors, from 0 chunks; give it as quantize --imatrix FILE
  fits            models of 8 layers and width 256
  tensors
    F32              112 tensors    72.22 KiB
problem: 'cut.gguf' is not an importance matrix: 'blk.0.attn_k.weight' has sums and no counts
$ rf-cli info mmproj.gguf
mmproj.gguf (GGUF version 3, 67.66 KiB)
  name            tiny mmproj
  architecture    clip
  parameters      33120
  quantisation    F16 (16.17 bits per weight)
  licence         MIT OR Apache-2.0
  file            projector of type pixtral for pictures; give it as --mmproj FILE
  encoder         2 layers, pictures of 256 pixels in patches of 8
  fits            models of width 64
  tensors
    F16               17 tensors    64.00 KiB
    F32                8 tensors     1.38 KiB
$ rf-cli info control.gguf
control.gguf (GGUF version 3, 2.22 KiB)
  architecture    controlvector
  parameters      512
  quantisation    F32 (32.00 bits per weight)
  file            control vector with 2 directions, layers 1 to 3; give it as --control-vector FILE
  fits            llama models of width 256 with more than 3 layers
  tensors
    F32                2 tensors     2.00 KiB

"#]]
    );
    let companion =
        |file| finish(folder.path(), &["info", "--json", file]).json()["companion"].take();
    let imatrix = companion("i.gguf");
    assert_eq!((&imatrix["type"], &imatrix["layers"]), (&"imatrix".into(), &8.into()));
    assert_eq!(companion("control.gguf")["layers"], serde_json::json!([1, 3]));
    assert_eq!(companion("mmproj.gguf")["supported"], true);
}

/// An importance matrix without the counts of its first tensor.
fn changed_imatrix(folder: &TempDir) -> Vec<u8> {
    let mut bytes = fs::read(folder.path().join("i.gguf")).unwrap();
    let name = b".counts";
    let place = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[place..place + name.len()].copy_from_slice(b".cuonts");
    bytes
}
