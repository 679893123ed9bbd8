//! Projectors against llama.cpp: text around pictures, numbers of rows, pixels and embeddings.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod set;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_gguf::Gguf;
use rf_graph::Backend;
use rf_kernels::{GpuBackend, GpuOptions};
use rf_oracle::ReferenceBackend;
use rf_vision::{Chunk, DecodeLimits, Encoder, Piece, Projector, Rgb, decode};
use serde_json::Value;
use set::{Golden, media};
use sha2::{Digest, Sha256};

/// The merged token of the golden vocabularies that texts around rows have.
const MERGED_LINE_FEEDS: (u64, &str) = (263, "\n\n");

/// The projector in the repository.
fn own() -> Golden {
    Golden::open(&rf_testing::golden_folder().join("vision"))
}

/// The families of supported projectors, each with its file.
fn families(golden: &Golden) -> Vec<(&Value, Projector)> {
    let families = golden.families("clip.has_vision_encoder").into_iter();
    families.map(|family| (family, Projector::open(&golden.mmproj(family)).unwrap())).collect()
}

fn picture(golden: &Golden, name: &str) -> Rgb {
    let path = golden.folder.join(golden.index["images"][name]["png"].as_str().unwrap());
    decode(&std::fs::read(path).unwrap(), &DecodeLimits::default()).unwrap()
}

#[test]
fn sizes_and_pixels_match_golden() {
    let Some(golden) = Golden::shared() else { return };
    for (family, projector) in families(&golden) {
        for (input, chunks) in media(family, "image") {
            let what = format!("{} {input}", family["name"]);
            let picture = picture(&golden, input);
            let pieces = projector.pieces(picture.size(), 0).unwrap();
            let groups = pieces.iter().filter_map(|piece| match piece {
                Piece::Rows(group) => Some(group),
                Piece::Text(_) => None,
            });
            let resized = projector.resized(&picture).unwrap();
            let expected = chunks.iter().filter(|chunk| chunk["type"] == "image");
            let expected: Vec<&Value> = expected.collect();
            assert_eq!(resized.len(), expected.len(), "{what}");
            for ((group, picture), chunk) in groups.zip(&resized).zip(expected) {
                let size = [&chunk["width"], &chunk["height"]].map(|n| n.as_u64().unwrap());
                assert_eq!(picture.size().map(|n| n as u64), size, "{what}");
                let hash = hex(&Sha256::digest(picture.pixels()));
                assert_eq!(hash, chunk["sha256_rgb"], "{what}: pixels");
                assert_eq!(group.rows as u64, chunk["n_tokens"], "{what}: rows");
                assert_eq!(group.positions() as u64, chunk["n_pos"], "{what}: positions");
                assert_eq!(group.non_causal, chunk["non_causal"], "{what}: mask");
                let grid = group.grid.map(|grid| serde_json::json!([grid.columns, grid.rows]));
                assert_eq!(grid.unwrap_or_default(), chunk["grid"], "{what}: grid");
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn text_around_rows_matches_golden() {
    let Some(golden) = Golden::shared() else { return };
    for (family, projector) in families(&golden) {
        let model = golden.folder.join(family["model"].as_str().unwrap());
        let gguf = Gguf::open(model).unwrap();
        let tokens = gguf.metadata().required_strings("tokenizer.ggml.tokens").unwrap();
        let text_of = |id: &Value| {
            let id = id.as_u64().unwrap();
            if id == MERGED_LINE_FEEDS.0 {
                return MERGED_LINE_FEEDS.1.to_owned();
            }
            if let Ok(byte) = u8::try_from(id) {
                return char::from(byte).to_string();
            }
            tokens.get(id as usize).unwrap().to_owned()
        };
        for (input, chunks) in media(family, "image") {
            let size = picture(&golden, input).size();
            let pieces = projector.pieces(size, 0).unwrap().into_iter().map(|piece| match piece {
                Piece::Text(text) => Some(text),
                Piece::Rows(_) => None,
            });
            let expected = chunks.iter().map(|chunk| {
                let tokens = chunk["tokens"].as_array();
                tokens.map(|tokens| tokens.iter().map(text_of).collect::<String>())
            });
            let name = &family["name"];
            assert_eq!(pieces.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{name} {input}");
        }
    }
}

/// Checks the embeddings of all pictures of at most so many rows.
fn check_embeddings(golden: &Golden, backend: &dyn Backend, tolerance: f32, max_rows: u64) {
    let mut failures = Vec::new();
    for (family, projector) in families(golden) {
        let mut encoder = Encoder::new(projector, backend, &mut |_| ()).unwrap();
        for (input, chunks) in media(family, "image") {
            let rows = |chunk: &Value| chunk["n_tokens"].as_u64().unwrap();
            let expected = chunks.iter().filter(|chunk| chunk["type"] == "image");
            let expected: Vec<&Value> = expected.collect();
            if expected.iter().any(|chunk| rows(chunk) > max_rows) {
                continue;
            }
            let encoded = encoder.encode(&picture(golden, input), 0).unwrap().into_iter();
            let encoded = encoded.filter_map(|chunk| match chunk {
                Chunk::Rows(rows) => Some(rows),
                Chunk::Text(_) => None,
            });
            for (index, (rows, chunk)) in encoded.zip(expected).enumerate() {
                assert_eq!(rows.width as u64, family["n_embd_inp"]);
                assert_eq!(rows.values.len(), rows.group.rows * rows.width);
                let what = format!("{} {input} tile {index}", family["name"]);
                failures.extend(golden.failure(family, chunk, &rows, tolerance).map(|f| what + &f));
            }
        }
    }
    assert!(failures.is_empty(), "{}: {failures:#?}", backend.name());
}

#[test]
fn embeddings_match_golden_on_the_reference() {
    let Some(golden) = Golden::shared() else { return };
    check_embeddings(&golden, &ReferenceBackend, 2e-4, 200);
}

#[test]
fn embeddings_match_golden_on_the_cpu() {
    let Some(golden) = Golden::shared() else { return };
    let backend = CpuBackend::new(CpuOptions::default().with_threads(2)).unwrap();
    check_embeddings(&golden, &backend, 2e-2, u64::MAX);
}

/// The pictures are small, because an emulated card is slow.
#[test]
fn embeddings_match_golden_on_the_gpu() {
    let golden = Golden::shared().unwrap_or_else(own);
    match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => check_embeddings(&golden, &backend, 2e-2, 40),
        Err(error) => rf_testing::skip!("{error}"),
    }
}

#[test]
fn the_projector_of_the_repository_matches_golden() {
    let golden = own();
    check_embeddings(&golden, &ReferenceBackend, 2e-4, u64::MAX);
    check_embeddings(
        &golden,
        &CpuBackend::new(CpuOptions::default().with_threads(2)).unwrap(),
        2e-2,
        u64::MAX,
    );
}
