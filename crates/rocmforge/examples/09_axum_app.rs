//! A model in your own web application: a route that answers a question.
//!
//! The program asks itself one question and ends. The crate `rf-server` has the APIs of
//! `OpenAI`, Anthropic and Ollama.

#![expect(clippy::print_stdout, reason = "an example")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use rocmforge::Model;

async fn ask(State(model): State<Model>, question: String) -> Result<String, (StatusCode, String)> {
    let chat = model.chat().user(question).seed(4).max_tokens(40);
    let refused = |error: rocmforge::Error| (StatusCode::BAD_REQUEST, error.to_string());
    // Dropping the future, as when the client is gone, cancels the answer.
    Ok(chat.answer_async().await.map_err(refused)?.content)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Loading blocks, so an application with other work does it in `spawn_blocking`.
    let app = Router::new().route("/ask", post(ask)).with_state(Model::demo()?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let question = "Tell me a story about a fox.";
    let reply = tokio::task::spawn_blocking(move || {
        let mut client = TcpStream::connect(address)?;
        let length = question.len();
        write!(
            client,
            "POST /ask HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{question}"
        )?;
        let mut reply = String::new();
        client.read_to_string(&mut reply)?;
        Ok::<_, std::io::Error>(reply)
    });
    println!("{}", reply.await??);
    server.abort();
    Ok(())
}
