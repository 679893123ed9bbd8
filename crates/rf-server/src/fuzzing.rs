//! The entry of the fuzz targets, which is no part of the API.

use std::sync::LazyLock;

use axum::http::HeaderMap;

use crate::anthropic::input::MessagesFields;
use crate::api::conversation::ConversationFields;
use crate::body::Fields;
use crate::error::ApiError;
use crate::grammar::GrammarFields;
use crate::openai::responses::ResponsesFields;
use crate::openai::responses::store::ResponseStore;
use crate::openapi::Operation;
use crate::router::routes;

/// The routes that read the fields of a body.
static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let operations = routes().into_iter().map(|route| route.operation);
    operations.filter(Operation::takes_fields).collect()
});

/// Reads a body as the route with the number `route` does, and as the conversations and structures
/// of all APIs. Returns the status of the worst error, or 200.
pub fn request_status(route: u8, body: &[u8]) -> u16 {
    let outcomes = match Fields::parse(body) {
        Ok(fields) => outcomes(&OPERATIONS[usize::from(route) % OPERATIONS.len()], &fields),
        Err(error) => vec![Err(error)],
    };
    let errors = outcomes.into_iter().filter_map(Result::err);
    errors.map(|error| error.kind.status().as_u16()).max().unwrap_or(200)
}

fn outcomes(operation: &Operation, fields: &Fields) -> Vec<Result<(), ApiError>> {
    let responses = |fields: ResponsesFields| {
        fields.into_conversation(&ResponseStore::default(), &HeaderMap::new())
    };
    vec![
        fields.check_known("/v1/chat/completions"),
        operation.read(fields),
        fields.read().and_then(ConversationFields::conversation).map(drop),
        fields.read().and_then(MessagesFields::conversation).map(drop),
        fields.read().and_then(|mut fields: MessagesFields| fields.structure()).map(drop),
        fields.read().and_then(responses).map(drop),
        fields.read().and_then(GrammarFields::structure).map(drop),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_status_of_their_worst_error() {
        for (body, status) in [
            (&br#"{"messages":[{"role":"user","content":"x"}],"input":"x"}"#[..], 200),
            (br#"{"messages":[{"role":"user","content":"x"}]}"#, 400),
            (br#"{"input":"x","messages":[{"role":"user"}],"previous_response_id":"y"}"#, 404),
            (b"{", 400),
        ] {
            assert_eq!(request_status(0, body), status, "{}", String::from_utf8_lossy(body));
        }
    }
}
