//! The operations of the server's own document, and requests with the marker in each of their
//! fields: a new route is covered without a change here.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Map, Value, json};

use crate::markers::MARKER;
use crate::server::TestServer;

/// Objects within objects that a value of a schema has.
const MAX_DEPTH: usize = 6;
/// Values of a whole schema that are sent. Each has other alternatives.
const NUM_CHOICES: usize = 5;

/// A method of a path, and what it reads.
pub(crate) struct Operation {
    document: Value,
    method: String,
    /// The path with the marker as its parameters.
    path: String,
    /// The names of the parameters in the query.
    query: Vec<String>,
    /// The schema of a JSON body.
    json: Option<Value>,
    /// The schema of a form.
    form: Option<Value>,
    /// True for a stream of events that never ends.
    is_endless: bool,
}

/// Returns the operations of the `OpenAPI` document.
pub(crate) fn operations(server: &TestServer) -> Vec<Operation> {
    let document = server.get("/openapi.json").ok();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let mut query = Vec::new();
            let mut marked = path.clone();
            for parameter in parameters {
                let name = parameter["name"].as_str().unwrap();
                match parameter["in"].as_str().unwrap() {
                    "path" => marked = marked.replace(&format!("{{{name}}}"), MARKER),
                    _ => query.push(name.to_owned()),
                }
            }
            assert!(!marked.contains('{'), "{path}");
            let content = &operation["requestBody"]["content"];
            let answers = operation["responses"]["200"]["content"].as_object().unwrap();
            let schema = |media_type: &str| content[media_type].get("schema").cloned();
            operations.push(Operation {
                document: document.clone(),
                method: method.to_uppercase(),
                path: marked,
                query,
                json: schema("application/json"),
                form: schema("multipart/form-data"),
                is_endless: answers.keys().all(|media_type| media_type == "text/event-stream"),
            });
        }
    }
    assert!(operations.len() > 50, "{}", operations.len());
    operations
}

impl Operation {
    /// Sends the marker in each part of a request.
    pub(crate) fn send_all(&self, server: &TestServer) {
        let queries = self.query.iter().map(|name| format!("{name}={MARKER}"));
        for query in queries.chain([format!("{MARKER}={MARKER}")]) {
            self.send(server, &format!("?{query}"), &[], "");
        }
        let broken = format!("{{{MARKER}");
        self.send(server, "", &[], &broken);
        for header in ["authorization", "content-type", "content-encoding", "cookie", "x-api-key"] {
            self.send(server, "", &[(header, MARKER)], &broken);
        }
        if let Some(schema) = &self.json {
            for body in self.bodies(schema) {
                self.send(server, "", &[], &body.to_string());
            }
        }
        if let Some(schema) = &self.form {
            self.send_forms(server, schema);
        }
    }

    fn send(&self, server: &TestServer, query: &str, headers: &[(&str, &str)], body: &str) {
        let path = format!("{}{query}", self.path);
        // What a route does not read would take its answer with it.
        let body = if self.method == "GET" { "" } else { body };
        // The marker is in the way to what a number in the path leads to.
        for path in [path.replace(MARKER, "0"), path] {
            if self.is_endless {
                let mut stream = TcpStream::connect(server.address).unwrap();
                let head = format!("{} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n", self.method);
                stream.write_all(head.as_bytes()).unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
                return;
            }
            let response = server.send(&self.method, &path, headers, body);
            assert_ne!(response.status, 500, "{} {path} {body}", self.method);
            if !self.path.contains(MARKER) && query.is_empty() {
                break;
            }
        }
    }

    /// Bodies with the marker in each text, and in the place of each value.
    fn bodies(&self, schema: &Value) -> Vec<Value> {
        let mut bodies: Vec<_> =
            (0..NUM_CHOICES).map(|choice| self.value(schema, choice, MAX_DEPTH)).collect();
        let named: Vec<_> = bodies.clone();
        for mut body in named {
            if let Some(body) = body.as_object_mut() {
                // The model is not unknown, so that the other fields are read.
                body.remove("model");
            }
            bodies.push(body);
        }
        let user = json!([{ "role": "user", "content": MARKER }]);
        let properties = self.properties(schema);
        let mut base = Map::new();
        for (name, value) in [
            ("messages", user),
            ("prompt", json!(MARKER)),
            ("input", json!(MARKER)),
            ("content", json!(MARKER)),
            ("query", json!(MARKER)),
            ("documents", json!([MARKER])),
            ("text_1", json!(MARKER)),
            ("text_2", json!(MARKER)),
            ("max_tokens", json!(1)),
            ("options", json!({ "num_predict": 1 })),
        ] {
            if properties.contains_key(name) {
                base.insert(name.to_owned(), value);
            }
        }
        for name in properties.keys() {
            for value in [
                json!(MARKER),
                json!([MARKER]),
                json!({ MARKER: MARKER, "type": MARKER }),
                json!([{ MARKER: [MARKER], "type": MARKER }]),
            ] {
                let mut body = base.clone();
                body.insert(name.clone(), value);
                bodies.push(Value::Object(body));
            }
        }
        bodies.extend([json!(MARKER), json!([MARKER]), json!([{ MARKER: MARKER }])]);
        bodies
    }

    fn send_forms(&self, server: &TestServer, schema: &Value) {
        let boundary = ("content-type", "multipart/form-data; boundary=b");
        let part = |name: &str, more: &str| {
            format!(
                "--b\r\ncontent-disposition: form-data; name=\"{name}\"{more}\r\n\r\n{MARKER}\r\n"
            )
        };
        let properties = self.properties(schema);
        let all: String = properties.keys().map(|name| part(name, "")).collect();
        for name in properties.keys().map(String::as_str).chain([MARKER]) {
            let file = part(name, &format!("; filename=\"{MARKER}\""));
            let sound = part("file", "; filename=\"a.wav\"");
            for body in [part(name, "") + &sound, file, part(name, ""), all.clone()] {
                self.send(server, "", &[boundary], &(body.clone() + "--b--\r\n"));
                self.send(server, "", &[boundary], &body);
            }
        }
    }

    /// The schema that a reference leads to.
    fn resolved<'a>(&'a self, mut schema: &'a Value) -> &'a Value {
        while let Some(path) = schema["$ref"].as_str() {
            schema = self.document.pointer(path.trim_start_matches('#')).unwrap();
        }
        schema
    }

    /// The properties of an object with those of all its parts.
    fn properties(&self, schema: &Value) -> Map<String, Value> {
        let schema = self.resolved(schema);
        let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
        for part in ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()) {
            properties.extend(part.iter().flat_map(|schema| self.properties(schema)));
        }
        properties
    }

    /// A value of a schema with the marker in each of its texts. `choice` tells which alternatives
    /// it has.
    fn value(&self, schema: &Value, choice: usize, depth: usize) -> Value {
        let schema = self.resolved(schema);
        let chosen = |list: &Vec<Value>| list[choice % list.len()].clone();
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            return chosen(values);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(schemas) = schema[key].as_array() {
                return self.value(&chosen(schemas), choice, depth);
            }
        }
        let kind = schema["type"].as_array().map_or_else(|| schema["type"].clone(), chosen);
        match kind.as_str() {
            Some("array") => json!([self.value(&schema["items"], choice, depth)]),
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(choice % 2 == 1),
            Some("null") => Value::Null,
            Some("string") => json!(MARKER),
            _ if depth > 0 && (kind == "object" || schema.get("allOf").is_some()) => {
                let properties = self.properties(schema).into_iter();
                let filled = properties.map(|(name, schema)| {
                    let value = self.value(&schema, choice, depth - 1);
                    (name, value)
                });
                filled.chain([(MARKER.to_owned(), json!(MARKER))]).collect()
            }
            _ => json!(MARKER),
        }
    }
}
