//! The routes in an application of axum.

use crate::server::{Setup, load, send, serving};
use axum::Router;
use axum::routing::get;
use rf_server::{ModelEntry, ServerOptions};
use rocmforge::engine::scheduler::SchedulerOptions;
use serde_json::json;

#[test]
fn an_application_has_routes_of_its_own_beside_those_of_the_server() {
    let setup = Setup::default();
    let model = serving(load(&setup.model, setup.engine), SchedulerOptions::default());
    let models = [ModelEntry::loaded("demo", model)];
    let routes = rf_server::routes(models, ServerOptions::default()).unwrap();
    let app = Router::new().route("/hello", get(async || "hello")).fallback_service(routes);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, app).await });

    assert_eq!(send(address, "GET", "/hello", &[], "").text, "hello");
    let request = json!({ "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0 });
    let answer = send(address, "POST", "/v1/completions", &[], &request.to_string()).ok();
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    assert_eq!(send(address, "GET", "/v1/unknown", &[], "").status, 404);
    runtime.shutdown_background();
}
