//! The server as its clients see it: every API, errors and faults, keys, several models, operation,
//! structured output, tools, and the chat page. One program, since each would link the server.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

#[path = "../fixed/answers.rs"]
mod answers;
#[path = "../fixed/mod.rs"]
mod fixed;
#[path = "../server/mod.rs"]
mod server;

mod adapters;
mod apis;
mod bodies;
mod clients;
mod embeddings;
mod errors;
mod faults;
mod fuzzed;
mod keys;
mod lora;
mod manage;
mod models;
mod mounted;
mod openai;
mod openapi;
mod operation;
mod page;
mod render;
mod replay;
mod rerank;
mod responses;
mod slots;
mod structured;
mod tls;
mod token_rules;
mod tools;
