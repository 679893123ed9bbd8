//! Documents in the order of their relevance, with a small reranker.

use crate::server::{Setup, TestServer, demo, load, serving};
use rf_server::ModelEntry;
use rocmforge::engine::scheduler::SchedulerOptions;
use rocmforge::engine::{EngineOptions, Pooling};
use serde_json::{Value, json};

const DOCUMENTS: [&str; 3] = ["c d", "a b", "e"];

/// A server of a model that generates and one that scores.
fn server() -> TestServer {
    let options = EngineOptions::default().with_pooling(Some(Pooling::Rank));
    let reranker = load(&rf_testing::golden_model("bert_rank"), options);
    let generator = load(&demo(), EngineOptions::default());
    let models = vec![
        ModelEntry::loaded("demo", serving(generator, SchedulerOptions::default())),
        ModelEntry::loaded("reranker", serving(reranker, SchedulerOptions::default())),
    ];
    TestServer::of(models, Setup::default().server)
}

/// The scores of the engine, in the order of the documents.
fn expected() -> Vec<f64> {
    let options = EngineOptions::default().with_pooling(Some(Pooling::Rank));
    let mut engine = load(&rf_testing::golden_model("bert_rank"), options);
    let ids = DOCUMENTS.map(|document| engine.model().rank_ids("a b", document).unwrap());
    let ids: Vec<_> = ids.iter().map(Vec::as_slice).collect();
    engine.embed(&ids).unwrap().iter().map(|scores| f64::from(scores[0])).collect()
}

fn scores(results: &Value, name: &str) -> Vec<(usize, f64)> {
    let result = |result: &Value| {
        (result["index"].as_u64().unwrap() as usize, result[name].as_f64().unwrap())
    };
    results.as_array().unwrap().iter().map(result).collect()
}

#[test]
fn every_route_ranks_by_the_scores_of_the_engine() {
    let server = server();
    let mut ranked: Vec<_> = expected().into_iter().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    // One text of Cohere's clients is an object.
    let documents = json!([{ "text": DOCUMENTS[0] }, DOCUMENTS[1], DOCUMENTS[2]]);
    let body = json!({ "model": "reranker", "query": "a b", "documents": documents });
    for path in ["/v1/rerank", "/rerank", "/v2/rerank"] {
        let answer = server.post(path, &body).ok();
        assert_eq!(answer["model"], "reranker");
        assert_eq!(scores(&answer["results"], "relevance_score"), ranked);
        assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 3);
        assert!(answer["results"][0].get("document").is_none());
    }
    let mut body = body;
    body["top_n"] = json!(1);
    body["return_documents"] = json!(true);
    let answer = server.post("/v1/rerank", &body).ok();
    assert_eq!(scores(&answer["results"], "relevance_score"), ranked[..1]);
    assert_eq!(answer["results"][0]["document"]["text"], DOCUMENTS[ranked[0].0]);
    // The form of text-embeddings-inference; no model is named, so the first reranker answers.
    let texts = json!({ "query": "a b", "texts": DOCUMENTS, "return_text": true });
    let answer = server.post("/rerank", &texts).ok();
    assert_eq!(scores(&answer, "score"), ranked);
    assert_eq!(answer[0]["text"], DOCUMENTS[ranked[0].0]);
}

#[test]
fn scores_have_the_order_of_their_pairs() {
    let server = server();
    let expected = expected();
    let in_order: Vec<_> = expected.iter().copied().enumerate().collect();
    let body = json!({ "text_1": "a b", "text_2": DOCUMENTS });
    assert_eq!(scores(&server.post("/score", &body).ok()["data"], "score"), in_order);
    let body = json!({ "queries": ["a b", "a b"], "documents": &DOCUMENTS[..2] });
    assert_eq!(scores(&server.post("/score", &body).ok()["data"], "score"), in_order[..2]);
    let body = json!({ "text_1": ["a", "b"], "text_2": DOCUMENTS });
    let error = server.post("/score", &body);
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("text_2")));
}

#[test]
fn a_reranker_makes_no_embeddings_and_others_rank_nothing() {
    let server = server();
    for (path, body) in [
        ("/v1/embeddings", json!({ "model": "reranker", "input": "x" })),
        ("/api/embed", json!({ "model": "reranker", "input": "x" })),
        ("/api/embeddings", json!({ "model": "reranker", "prompt": "x" })),
        ("/v1/completions", json!({ "model": "reranker", "prompt": "x" })),
    ] {
        let error = server.post(path, &body);
        assert_eq!(error.status, 400, "{path}");
        assert!(error.text.contains("/v1/rerank"), "{path}: {}", error.text);
    }
    let body = json!({ "model": "demo", "query": "x", "documents": ["y"] });
    let error = server.post("/v1/rerank", &body);
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("model")));
}

#[test]
fn bad_rankings_name_their_field() {
    let server = server();
    let many: Vec<_> = (0..2049).map(|_| "x").collect();
    for (body, field) in [
        (json!({ "documents": ["x"] }), "query"),
        (json!({ "query": "x" }), "documents"),
        (json!({ "query": "x", "documents": [] }), "documents"),
        (json!({ "query": "x", "documents": ["x", 1] }), "documents[1]"),
        (json!({ "query": "x", "documents": many }), "documents"),
        (json!({ "query": "x", "documents": ["x"], "texts": ["x"] }), "texts"),
    ] {
        let error = server.post("/v1/rerank", &body);
        assert_eq!(error.status, 400, "{}", error.text);
        assert_eq!(error.json()["error"]["param"], field);
    }
    // A text that cannot fit is refused by its bytes, and one that does not fit by its tokens.
    for words in [200, 1_000_000] {
        let body = json!({ "query": "x", "documents": ["a ".repeat(words)] });
        let error = server.post("/v1/rerank", &body);
        assert_eq!(error.json()["error"]["code"], "context_length_exceeded", "{}", error.text);
    }
}
