//! Audio projectors against llama.cpp: spectrograms, text around sounds, numbers of rows and
//! embeddings.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod set;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::Backend;
use rf_kernels::{GpuBackend, GpuOptions};
use rf_oracle::ReferenceBackend;
use rf_vision::{Chunk, Piece, Sound, SoundEncoder, SoundLimits, SoundProjector, decode_sound};
use serde_json::Value;
use set::{Golden, largest_difference, media};

/// The families of audio projectors, each with its file.
fn families(golden: &Golden) -> Vec<(&Value, SoundProjector)> {
    let families = golden.families("clip.has_audio_encoder").into_iter();
    families.map(|family| (family, SoundProjector::open(&golden.mmproj(family)).unwrap())).collect()
}

fn file(golden: &Golden, name: &str) -> Sound {
    let path = golden.folder.join(golden.index["audio"][name]["wav"].as_str().unwrap());
    decode_sound(&std::fs::read(path).unwrap(), &SoundLimits::default()).unwrap()
}

/// The samples that the encoder of the reference got: resampling differs.
fn sound(golden: &Golden, name: &str) -> Sound {
    let Some(resampled) = golden.index["audio"][name]["resampled"].as_str() else {
        return file(golden, name);
    };
    let bytes = std::fs::read(golden.folder.join(resampled)).unwrap();
    let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    Sound::new(floats.collect()).unwrap()
}

#[test]
fn files_are_decoded_and_resampled() {
    let Some(golden) = Golden::shared() else { return };
    let short = file(&golden, "short");
    assert_eq!(short.samples().len(), 11_200);
    // The reference interpolates between samples, and its filter delays them by one.
    let (ours, theirs) = (file(&golden, "stereo"), sound(&golden, "stereo"));
    assert_eq!(ours.samples().len(), theirs.samples().len());
    let power = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
    let pairs = ours.samples().iter().zip(&theirs.samples()[1..]);
    let difference: Vec<f32> = pairs.map(|(a, b)| a - b).collect();
    let share = power(&difference) / power(theirs.samples());
    assert!(share < 0.05, "{share}");
}

#[test]
fn spectrograms_match_golden() {
    let Some(golden) = Golden::shared() else { return };
    let mut checked = 0;
    for (family, projector) in families(&golden) {
        for (input, chunks) in media(family, "audio") {
            let pieces = projector.spectrograms(&sound(&golden, input));
            let chunks = chunks.iter().filter(|chunk| chunk["type"] == "audio");
            for (piece, chunk) in pieces.iter().zip(chunks) {
                let what = format!("{} {input}", family["name"]);
                let mel = &chunk["mel"];
                assert_eq!(piece.frames() as u64, mel["frames"], "{what}");
                assert_eq!(piece.bins as u64, mel["bins"], "{what}");
                if let Some(rest) = mel["rest"].as_f64() {
                    let last = piece.values[piece.values.len() - 1];
                    assert!((last - rest as f32).abs() < 2e-4, "{what}: {last} {rest}");
                }
                if mel["shape"].is_null() {
                    continue;
                }
                // Stored bin by bin.
                let frames = mel["shape"][1].as_u64().unwrap() as usize;
                let stored = golden.floats(family, chunk, "mel");
                let bins = (0..piece.bins)
                    .flat_map(|bin| piece.values[bin..].iter().step_by(piece.bins).take(frames));
                let ours: Vec<f32> = bins.copied().collect();
                assert_eq!(ours.len(), stored.len(), "{what}");
                let error = largest_difference(&ours, &stored);
                eprintln!("{what}: {error:.1e}");
                assert!(error < 2e-4, "{what}: {error}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn rows_and_text_around_them_match_golden() {
    let Some(golden) = Golden::shared() else { return };
    for (family, projector) in families(&golden) {
        let gguf =
            rf_gguf::Gguf::open(golden.folder.join(family["model"].as_str().unwrap())).unwrap();
        let tokens = gguf.metadata().required_strings("tokenizer.ggml.tokens").unwrap();
        for (input, chunks) in media(family, "audio") {
            let pieces = projector.pieces(sound(&golden, input).samples().len());
            let ours = pieces.into_iter().map(|piece| match piece {
                Piece::Text(text) => Ok(text),
                Piece::Rows(group) => Err((group.rows as u64, group.non_causal)),
            });
            let expected = chunks.iter().map(|chunk| match chunk["tokens"].as_array() {
                Some(ids) => {
                    let text = |id: &Value| tokens.get(id.as_u64().unwrap() as usize).unwrap();
                    Ok(ids.iter().map(text).collect::<String>())
                }
                None => Err((chunk["n_tokens"].as_u64().unwrap(), chunk["non_causal"] == true)),
            });
            let name = &family["name"];
            assert_eq!(ours.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{name} {input}");
        }
    }
}

/// Checks the embeddings of all sounds of at most so many rows.
fn check_embeddings(backend: &dyn Backend, tolerance: f32, max_rows: usize) {
    let Some(golden) = Golden::shared() else { return };
    let (mut failures, mut checked) = (Vec::new(), 0);
    for (family, projector) in families(&golden) {
        let mut encoder = SoundEncoder::new(projector, backend, &mut |_| ()).unwrap();
        for (input, chunks) in media(family, "audio") {
            let sound = sound(&golden, input);
            let pieces = encoder.projector().pieces(sound.samples().len());
            let is_large = |piece: &Piece| matches!(piece, Piece::Rows(g) if g.rows > max_rows);
            if pieces.iter().any(is_large) {
                continue;
            }
            let encoded = encoder.encode(&sound).unwrap().into_iter();
            let rows = encoded.filter_map(|chunk| match chunk {
                Chunk::Rows(rows) => Some(rows),
                Chunk::Text(_) => None,
            });
            let chunks = chunks.iter().filter(|chunk| chunk["type"] == "audio");
            for (rows, chunk) in rows.zip(chunks) {
                let failure = golden.failure(family, chunk, &rows, tolerance);
                failures.extend(failure.map(|f| format!("{} {input}{f}", family["name"])));
                checked += 1;
            }
        }
    }
    assert!(failures.is_empty() && checked > 0, "{}: {failures:#?}", backend.name());
}

#[test]
fn embeddings_match_golden_on_the_reference() {
    check_embeddings(&ReferenceBackend, 2e-4, 60);
}

#[test]
fn embeddings_match_golden_on_the_cpu() {
    let backend = CpuBackend::new(CpuOptions::default().with_threads(2)).unwrap();
    check_embeddings(&backend, 2e-2, usize::MAX);
}

/// The sounds are short, because an emulated card is slow.
#[test]
fn embeddings_match_golden_on_the_gpu() {
    match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => check_embeddings(&backend, 2e-2, 20),
        Err(error) => rf_testing::skip!("{error}"),
    }
}
