//! Typed access to metadata.

use rf_gguf::{Array, Gguf, GgufWriter, Metadata, StringArray, Value, ValueKind};

#[test]
fn integers_are_read_in_any_width_that_fits() {
    let values: [Value; 8] = [
        200_u8.into(),
        (-5_i8).into(),
        60_000_u16.into(),
        (-300_i16).into(),
        4_000_000_000_u32.into(),
        7_i32.into(),
        u64::MAX.into(),
        i64::MIN.into(),
    ];
    let model = model(values.map(|value| ("n", value)));
    let read = |index: usize| {
        let metadata = model[index].metadata();
        let show =
            |result: Result<String, rf_gguf::Error>| result.unwrap_or_else(|e| e.to_string());
        [
            show(metadata.required_u32("n").map(|n| n.to_string())),
            show(metadata.required_i64("n").map(|n| n.to_string())),
        ]
    };
    assert_eq!(read(0), ["200", "200"]);
    assert_eq!(read(1), ["key 'n' holds -5, which does not fit in u32", "-5"]);
    assert_eq!(read(2), ["60000", "60000"]);
    assert_eq!(read(3), ["key 'n' holds -300, which does not fit in u32", "-300"]);
    assert_eq!(read(4), ["4000000000", "4000000000"]);
    assert_eq!(read(5), ["7", "7"]);
    assert_eq!(
        read(6),
        [
            "key 'n' holds 18446744073709551615, which does not fit in u32",
            "key 'n' holds 18446744073709551615, which does not fit in i64"
        ]
    );
    assert_eq!(
        read(7),
        ["key 'n' holds -9223372036854775808, which does not fit in u32", "-9223372036854775808"]
    );
}

#[test]
fn a_missing_key_is_none_or_an_error_that_names_it() {
    let metadata = Metadata::default();
    assert_eq!(metadata.u32("llama.block_count").unwrap(), None);
    assert_eq!(
        metadata.required_u32("llama.block_count").unwrap_err().to_string(),
        "the metadata has no key 'llama.block_count'"
    );
}

#[test]
fn a_value_of_another_kind_is_an_error_that_says_what_it_is() {
    let strings: StringArray = ["x"].iter().collect();
    let [text, number, array] =
        model([("k", "llama".into()), ("k", 1.5_f32.into()), ("k", strings.into())]);
    let text = text.metadata();
    assert_eq!(text.u32("k").unwrap_err().to_string(), "key 'k' holds string, not an integer");
    assert_eq!(text.bool("k").unwrap_err().to_string(), "key 'k' holds string, not a bool");
    assert_eq!(text.f32("k").unwrap_err().to_string(), "key 'k' holds string, not a number");
    let number = number.metadata();
    assert_eq!(number.u32("k").unwrap_err().to_string(), "key 'k' holds f32, not an integer");
    assert_eq!(number.str("k").unwrap_err().to_string(), "key 'k' holds f32, not a string");
    let array = array.metadata();
    assert_eq!(
        array.i32s("k").unwrap_err().to_string(),
        "key 'k' holds an array of string, not an array of integers"
    );
    assert_eq!(array.strings("k").unwrap().unwrap().get(0), Some("x"));
}

#[test]
fn arrays_convert_between_widths() {
    let [narrow, wide, doubles] = model([
        ("k", vec![1_u8, 255].into()),
        ("k", vec![1_i64, -1].into()),
        ("k", vec![0.5_f64, 2.0].into()),
    ]);
    assert_eq!(*narrow.metadata().required_i32s("k").unwrap(), [1, 255]);
    assert_eq!(*wide.metadata().required_i32s("k").unwrap(), [1, -1]);
    assert_eq!(
        wide.metadata().u32s("k").unwrap_err().to_string(),
        "key 'k' holds -1, which does not fit in u32"
    );
    assert!((*doubles.metadata().required_f32s("k").unwrap() == [0.5, 2.0]));
}

#[test]
fn strings_of_an_array_are_found_by_index_and_in_order() {
    let words = ["<s>", "", "été", "▁the", ""];
    let strings: StringArray = words.iter().collect();
    let [model] = model([("k", strings.into())]);
    let strings = model.metadata().required_strings("k").unwrap();
    assert_eq!(strings.len(), 5);
    assert!(strings.iter().eq(words));
    assert!(strings.iter().rev().eq(words.iter().rev().copied()));
    assert_eq!(strings.get(2), Some("été"));
    assert_eq!(strings.get(5), None);
    assert_eq!(strings.text_bytes(), "<s>été▁the".len());
}

#[test]
fn order_of_the_file_is_kept() {
    let mut writer = GgufWriter::new();
    for key in ["z", "a", "m"] {
        writer.add(key, key.len() as u32).unwrap();
    }
    let model = read(&writer);
    let keys: Vec<&str> = model.metadata().iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["z", "a", "m"]);
    assert!(model.metadata().contains("m"));
    assert!(!model.metadata().contains("b"));
}

#[test]
fn kinds_have_the_ids_of_the_format() {
    for (id, kind) in ValueKind::ALL.into_iter().enumerate() {
        assert_eq!(kind.id(), id as u32);
        assert_eq!(ValueKind::from_id(id as u32), Some(kind));
    }
    assert_eq!(ValueKind::from_id(13), None);
    let nested = Array::Array(vec![Array::U8(vec![1]), Array::Bool(Vec::new())]);
    assert_eq!((nested.element_kind(), nested.len()), (ValueKind::Array, 2));
}

/// One file for each entry.
fn model<const N: usize>(entries: [(&str, Value); N]) -> [Gguf; N] {
    entries.map(|(key, value)| {
        let mut writer = GgufWriter::new();
        writer.add(key, value).unwrap();
        read(&writer)
    })
}

fn read(writer: &GgufWriter) -> Gguf {
    let mut file = Vec::new();
    writer.write_to(&mut file, |_, _| Ok(())).unwrap();
    Gguf::from_bytes(file).unwrap()
}

#[test]
fn values_can_be_overridden_in_memory() {
    let mut writer = GgufWriter::new();
    writer.add("b", 1_u32).unwrap().add("d", "x").unwrap();
    let mut file = Vec::new();
    writer.write_to(&mut file, |_, _| Ok(())).unwrap();
    let mut gguf = Gguf::from_bytes(file).unwrap();
    gguf.override_metadata("b", Value::F32(2.5));
    gguf.override_metadata("c", Value::Bool(true));
    gguf.override_metadata("a", Value::U64(7));
    // Those of the file are not among them, and clones know what was looked up.
    assert!(gguf.metadata().unused_overrides().eq(["c", "a"]));
    assert!(gguf.metadata().clone().contains("c"));
    assert!(gguf.metadata().unused_overrides().eq(["a"]));
    let metadata = gguf.metadata();
    assert_eq!(metadata.f32("b").unwrap(), Some(2.5));
    assert_eq!(metadata.bool("c").unwrap(), Some(true));
    assert_eq!(metadata.u64("a").unwrap(), Some(7));
    assert_eq!(metadata.str("d").unwrap(), Some("x"));
    assert_eq!(metadata.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "d", "c", "a"]);
}
