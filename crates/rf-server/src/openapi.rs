//! The description of all routes: an `OpenAPI` 3.1 document, made from the types of requests and
//! responses.

use std::collections::{BTreeMap, HashSet};

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::body::Fields;
use crate::error::{ApiError, ErrorBody};

/// The requests and answers of a route.
#[derive(Clone)]
pub(crate) struct Operation {
    summary: &'static str,
    /// The types that the body of a request is read as, one after the other.
    takes: Vec<Taken>,
    /// The file of a form. The body is JSON without one.
    file: Option<&'static str>,
    /// Optional fields of the query, all of which are texts.
    query: &'static [&'static str],
    /// The media type of each kind of answer, with its schema.
    answers: Vec<(&'static str, SchemaOf)>,
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A type that the body of a request is read as.
#[derive(Clone)]
struct Taken {
    schema: SchemaOf,
    read: fn(&Fields) -> Result<(), ApiError>,
}

impl Operation {
    /// A route that answers with text of this type.
    pub(crate) fn text(summary: &'static str, media_type: &'static str) -> Self {
        let answers: Vec<(_, SchemaOf)> = vec![(media_type, SchemaGenerator::subschema_for::<str>)];
        Self { summary, takes: Vec::new(), file: None, query: &[], answers }
    }

    /// A route that answers with this JSON.
    pub(crate) fn json<T: JsonSchema>(summary: &'static str) -> Self {
        let answers: Vec<(_, SchemaOf)> = vec![(JSON, SchemaGenerator::subschema_for::<T>)];
        Self { summary, takes: Vec::new(), file: None, query: &[], answers }
    }

    /// A route that answers with a stream of these objects.
    pub(crate) fn events<T: JsonSchema>(summary: &'static str) -> Self {
        let answers: Vec<(_, SchemaOf)> = vec![(EVENTS, SchemaGenerator::subschema_for::<T>)];
        Self { summary, takes: Vec::new(), file: None, query: &[], answers }
    }

    /// Reads the body of the request as `T`, too.
    pub(crate) fn takes<T: JsonSchema + DeserializeOwned>(mut self) -> Self {
        self.takes.push(Taken {
            schema: SchemaGenerator::subschema_for::<T>,
            read: |fields| fields.read::<T>().map(drop),
        });
        self
    }

    /// Reads the body as a form with a file of this name.
    pub(crate) fn takes_file(mut self, name: &'static str) -> Self {
        self.file = Some(name);
        self
    }

    /// Reads these fields of the query.
    pub(crate) fn query(mut self, fields: &'static [&'static str]) -> Self {
        self.query = fields;
        self
    }

    /// Answers with a stream of these objects, if the request asks for one.
    pub(crate) fn streams<T: JsonSchema>(mut self, media_type: &'static str) -> Self {
        self.answers.push((media_type, SchemaGenerator::subschema_for::<T>));
        self
    }
}

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";
/// The media type of server-sent events. The schema is that of the data of one event.
pub(crate) const EVENTS: &str = "text/event-stream";
/// The media type of one JSON object per line. The schema is that of one line.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The document.
#[derive(Serialize)]
pub(crate) struct Document {
    openapi: &'static str,
    info: Info,
    security: [BTreeMap<&'static str, Vec<&'static str>>; 2],
    paths: BTreeMap<String, BTreeMap<&'static str, OperationJson>>,
    components: Components,
}

#[derive(Serialize)]
struct Info {
    title: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Components {
    schemas: Map<String, Value>,
    #[serde(rename = "securitySchemes")]
    security_schemes: BTreeMap<&'static str, SecurityScheme>,
}

#[derive(Serialize)]
struct SecurityScheme {
    #[serde(rename = "type")]
    kind: &'static str,
    scheme: &'static str,
}

#[derive(Serialize)]
struct OperationJson {
    summary: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Parameter>,
    #[serde(rename = "requestBody", skip_serializing_if = "Option::is_none")]
    request_body: Option<Body>,
    responses: BTreeMap<&'static str, Body>,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    #[serde(rename = "in")]
    place: &'static str,
    required: bool,
    schema: Schema,
}

/// The body of a request or of a response.
#[derive(Serialize)]
struct Body {
    description: &'static str,
    content: BTreeMap<&'static str, Content>,
}

#[derive(Serialize)]
struct Content {
    schema: Schema,
}

/// Describes routes: the path of each as the router has it, its method, and what it does.
pub(crate) fn document<'a>(
    routes: impl IntoIterator<Item = (&'a str, &'static str, &'a Operation)>,
) -> Document {
    let (mut requests, mut answers) = generators();
    let mut paths: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (path, method, operation) in routes {
        let described = operation.describe(path, &mut requests, &mut answers);
        // axum marks a parameter that may have slashes.
        paths.entry(path.replace("{*", "{")).or_default().insert(method, described);
    }
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers.take_definitions(true));
    let bearer = SecurityScheme { kind: "http", scheme: "bearer" };
    Document {
        openapi: "3.1.0",
        info: Info { title: "ROCmForge", version: env!("CARGO_PKG_VERSION") },
        security: [BTreeMap::new(), BTreeMap::from([("key", Vec::new())])],
        paths,
        components: Components { schemas, security_schemes: BTreeMap::from([("key", bearer)]) },
    }
}

/// What makes the schemas of requests, and what makes those of answers: fields with defaults may be
/// absent in a request, and never are in an answer.
fn generators() -> (SchemaGenerator, SchemaGenerator) {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    (settings().into_generator(), settings().for_serialize().into_generator())
}

/// The properties of an object, also of one that may be absent.
fn properties<'a>(
    schema: &'a Value,
    definitions: &'a Map<String, Value>,
) -> Vec<(&'a String, &'a Value)> {
    // The schema of a type is a reference to its definition.
    let reference = schema.get("$ref").and_then(Value::as_str);
    let definition = reference.and_then(|path| definitions.get(path.rsplit('/').next()?));
    let schema = definition.unwrap_or(schema);
    let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let alternatives = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    own.chain(alternatives.flat_map(|schema| properties(schema, definitions))).collect()
}

impl Operation {
    /// Returns true if the route reads the fields of a body.
    pub(crate) fn takes_fields(&self) -> bool {
        !self.takes.is_empty()
    }

    /// Reads a body as all types of the route.
    pub(crate) fn read(&self, fields: &Fields) -> Result<(), ApiError> {
        self.takes.iter().try_for_each(|taken| (taken.read)(fields))
    }

    /// The names of the fields that the body of a request may have. Those within a field have its
    /// name before theirs, as in `options.temperature`.
    pub(crate) fn field_names(&self) -> HashSet<String> {
        let (mut requests, _) = generators();
        let mut names = HashSet::new();
        for taken in &self.takes {
            let schema = (taken.schema)(&mut requests).to_value();
            for (name, schema) in properties(&schema, requests.definitions()) {
                let inner = properties(schema, requests.definitions()).into_iter();
                names.extend(inner.map(|(inner, _)| format!("{name}.{inner}")));
                names.insert(name.clone());
            }
        }
        names
    }

    fn describe(
        &self,
        path: &str,
        requests: &mut SchemaGenerator,
        answers: &mut SchemaGenerator,
    ) -> OperationJson {
        let text = || json_schema!({ "type": "string" });
        let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = in_path.map(|name| Parameter {
            name: name.trim_start_matches('*').to_owned(),
            place: "path",
            required: true,
            schema: text(),
        });
        let in_query = self.query.iter().map(|&name| Parameter {
            name: name.to_owned(),
            place: "query",
            required: false,
            schema: text(),
        });
        let body = |description, content| Body { description, content };
        let request = match self.takes.as_slice() {
            [] => None,
            [only] => Some((only.schema)(requests)),
            all => {
                let all: Vec<_> = all.iter().map(|taken| (taken.schema)(requests)).collect();
                Some(json_schema!({ "allOf": all }))
            }
        };
        let request_body = request.map(|schema| {
            let (media_type, schema) = match self.file {
                Some(file) => (FORM, with_file(&schema, file)),
                None => (JSON, schema),
            };
            body("The fields of the request.", BTreeMap::from([(media_type, Content { schema })]))
        });
        let content = self.answers.iter().map(|(media_type, schema)| {
            let schema = schema(answers);
            (*media_type, Content { schema })
        });
        let content = content.collect();
        let error = Content { schema: answers.subschema_for::<ErrorBody<'_>>() };
        OperationJson {
            summary: self.summary,
            parameters: in_path.chain(in_query).collect(),
            request_body,
            responses: BTreeMap::from([
                ("200", body("The answer.", content)),
                ("default", body("Why there is no answer.", BTreeMap::from([(JSON, error)]))),
            ]),
        }
    }
}

/// The schema of a form that has the fields of `schema` and a file.
fn with_file(schema: &Schema, name: &str) -> Schema {
    let file = json_schema!({
        "type": "object",
        "properties": { name: { "type": "string", "format": "binary" } },
        "required": [name],
    });
    json_schema!({ "allOf": [schema, file] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::routes;

    #[test]
    fn each_schema_has_a_name_of_its_own() {
        let (mut requests, mut answers) = generators();
        for route in routes() {
            route.operation.describe(route.path, &mut requests, &mut answers);
        }
        let (requests, answers) = (requests.take_definitions(true), answers.take_definitions(true));
        assert!(requests.contains_key("SamplingFields") && answers.contains_key("Usage"));
        for (name, schema) in requests.iter().chain(&answers) {
            assert!(requests.get(name).is_none_or(|request| request == schema), "{name}");
            // Types of the same name get numbers.
            assert!(!name.ends_with(|last: char| last.is_ascii_digit()), "{name}");
        }
    }
}
