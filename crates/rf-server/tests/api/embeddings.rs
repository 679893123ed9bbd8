//! Embeddings with the demo model, which makes them of its last layer.

use crate::server::{Setup, TestServer, demo, load};
use rocmforge::engine::{EngineOptions, Normalization, Pooling};
use serde_json::{Value, json};

fn server() -> TestServer {
    TestServer::with(Setup { embedder: true, ..Setup::default() })
}

fn numbers(embedding: &Value) -> Vec<f32> {
    embedding.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

#[test]
fn embeddings_are_those_of_the_engine_with_length_one() {
    let server = server();
    let texts = ["Once upon a time", "a fox"];
    let body = json!({ "model": "embedder", "input": texts, "encoding_format": "float" });
    let answer = server.post("/v1/embeddings", &body).ok();
    let options = EngineOptions::default().with_pooling(Some(Pooling::Mean));
    let mut engine = load(&demo(), options);
    let ids: Vec<_> = texts.iter().map(|text| engine.model().text_ids(text)).collect();
    let ids: Vec<_> = ids.iter().map(Vec::as_slice).collect();
    for (index, mut expected) in engine.embed(&ids).unwrap().into_iter().enumerate() {
        Normalization::Norm(2).apply(&mut expected);
        let entry = &answer["data"][index];
        assert_eq!(entry["index"], index);
        assert_eq!(numbers(&entry["embedding"]), expected);
    }
    assert_eq!(answer["usage"]["prompt_tokens"], ids.iter().map(|ids| ids.len()).sum::<usize>());

    let ollama = server.post("/api/embed", &json!({ "model": "embedder", "input": texts })).ok();
    assert_eq!(ollama["embeddings"][1], answer["data"][1]["embedding"]);
    let old = json!({ "model": "embedder", "prompt": texts[1] });
    let old = server.post("/api/embeddings", &old).ok();
    assert_eq!(old["embedding"], answer["data"][1]["embedding"]);
    for (path, body, expected) in [
        ("/api/embed", json!({ "input": [] }), json!([])),
        ("/api/embeddings", json!({ "prompt": "" }), json!([])),
    ] {
        let answer = server.post(path, &body).ok();
        assert_eq!(*answer.get("embeddings").unwrap_or(&answer["embedding"]), expected);
    }
    let by_ids = json!({ "model": "embedder", "input": [ids[0]] });
    let by_ids = server.post("/v1/embeddings", &by_ids).ok();
    assert_eq!(by_ids["data"][0], answer["data"][0]);
    let short = json!({ "model": "embedder", "input": "a fox", "dimensions": 8 });
    let short = server.post("/v1/embeddings", &short).ok();
    let length: f32 = numbers(&short["data"][0]["embedding"]).iter().map(|x| x * x).sum();
    assert_eq!(short["data"][0]["embedding"].as_array().unwrap().len(), 8);
    assert!((length - 1.0).abs() < 1e-5);
    let body = json!({ "input": "a fox", "encoding_format": "base64" });
    let base64 = server.post("/v1/embeddings", &body).ok();
    // 256 numbers of 4 bytes, 3 bytes in 4 characters.
    assert_eq!(base64["data"][0]["embedding"].as_str().unwrap().len(), 1368);
}

#[test]
fn each_model_does_what_it_is_for() {
    let server = server();
    assert_eq!(server.get("/v1/models").ok()["data"][1]["id"], "embedder");
    let wrong = json!({ "model": "demo", "input": "x", "prompt": "x" });
    assert_eq!(server.post("/v1/embeddings", &wrong).status, 400);
    let wrong = json!({ "model": "embedder", "prompt": "x" });
    assert_eq!(server.post("/v1/completions", &wrong).status, 400);
    for (input, field) in [
        (json!([]), "input"),
        (json!(""), "input[0]"),
        (json!(["x", [999_999]]), "input[1]"),
        (json!([[]]), "input[0]"),
        (json!(["x", true]), "input[1]"),
    ] {
        let response = server.post("/v1/embeddings", &json!({ "input": input }));
        assert_eq!(response.status, 400, "{input}");
        assert_eq!(response.json()["error"]["param"], field, "{input}");
    }
    let long = server.post("/v1/embeddings", &json!({ "input": "word ".repeat(3000) }));
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
    server.post("/api/embed", &json!({ "input": "word ".repeat(3000) })).ok();
    // What cannot fit is refused by its bytes, or cut before it is tokenized.
    let huge = json!({ "input": " ".repeat(4 << 20) });
    let error = server.post("/v1/embeddings", &huge);
    assert_eq!(error.json()["error"]["code"], "context_length_exceeded");
    server.post("/api/embed", &huge).ok();
    let many: Vec<_> = (0..2049).map(|_| "x").collect();
    let error = server.post("/v1/embeddings", &json!({ "input": many }));
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("input")));
}

#[test]
fn the_list_of_models_says_what_they_make() {
    let models = server().get("/v1/models").ok();
    let capabilities: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|m| &m["capabilities"]).collect();
    assert_eq!(capabilities, [&json!(["completion"]), &json!(["embedding"])]);
}
