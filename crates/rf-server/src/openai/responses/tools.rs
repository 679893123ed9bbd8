//! The tools of a request, under the names that the model sees.

use std::collections::HashMap;

use rocmforge::messages::Tool;
use serde_json::Value;

use crate::api::custom_tools;
use crate::error::{ApiError, check_count};
use crate::known_fields::note_left_out;
use crate::prompt::{MAX_TOOLS, tool};

/// The functions that the model may call, and what each of them is for the client.
#[derive(Debug, Default)]
pub(super) struct OfferedTools {
    pub(super) tools: Vec<Tool>,
    /// Those that are no plain functions.
    origins: HashMap<String, Called>,
}

/// A tool as the client names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    /// The group of the function, if it is in one.
    pub(super) namespace: Option<String>,
    /// True if the tool takes a text instead of arguments.
    pub(super) is_custom: bool,
}

impl OfferedTools {
    /// Offers functions, those of namespaces, and custom tools. The others run on servers of
    /// `OpenAI` only.
    pub(super) fn of(definitions: &[Value]) -> Result<Self, ApiError> {
        let mut offered = Self::default();
        for (index, definition) in definitions.iter().enumerate() {
            let path = format!("tools[{index}].");
            match kind(definition) {
                "namespace" => {
                    let namespace = text(definition, "name");
                    let nested = definition["tools"].as_array().map_or(&[][..], Vec::as_slice);
                    for (index, nested) in nested.iter().enumerate() {
                        let path = format!("{path}tools[{index}].");
                        offered.add(nested, Some(namespace), &path)?;
                    }
                }
                _ => offered.add(definition, None, &path)?,
            }
        }
        Ok(offered)
    }

    fn add(
        &mut self,
        definition: &Value,
        namespace: Option<&str>,
        path: &str,
    ) -> Result<(), ApiError> {
        let mut tool = match kind(definition) {
            "function" => tool(definition, path)?,
            "custom" => tool(&custom_tools::as_function(definition), path)?,
            kind => {
                note_left_out("a tool", kind);
                return Ok(());
            }
        };
        let is_custom = kind(definition) == "custom";
        if namespace.is_some() || is_custom {
            let namespace = namespace.map(str::to_owned);
            let called = Called { name: tool.name.clone(), namespace, is_custom };
            tool.name = called.offered_name();
            self.origins.insert(tool.name.clone(), called);
        }
        self.tools.push(tool);
        check_count("tools", self.tools.len(), MAX_TOOLS)
    }

    /// The tool that the model calls by this name.
    pub(super) fn called(&self, name: &str) -> Called {
        let plain = || Called { name: name.to_owned(), namespace: None, is_custom: false };
        self.origins.get(name).cloned().unwrap_or_else(plain)
    }
}

impl Called {
    /// The name that the model sees.
    pub(super) fn offered_name(&self) -> String {
        match self.namespace.as_deref() {
            None | Some("") => self.name.clone(),
            Some(namespace) => format!("{}__{}", namespace.trim_end_matches("__"), self.name),
        }
    }

    /// The arguments of a call, or its text if the tool takes one.
    pub(super) fn input(&self, arguments: String) -> String {
        if self.is_custom { custom_tools::input(arguments) } else { arguments }
    }
}

fn kind(definition: &Value) -> &str {
    text(definition, "type")
}

fn text<'a>(definition: &'a Value, field: &str) -> &'a str {
    definition.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_and_custom_tools_are_functions_and_keep_their_names() {
        let definitions = [
            json!({ "type": "web_search" }),
            json!({ "type": "function", "name": "plain" }),
            json!({ "type": "custom", "name": "apply_patch", "format": { "type": "grammar" } }),
            json!({ "type": "namespace", "name": "mcp__fs", "tools": [
                { "type": "function", "name": "read", "parameters": { "type": "object" } },
            ]}),
        ];
        let offered = OfferedTools::of(&definitions).unwrap();
        let names: Vec<_> = offered.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["plain", "apply_patch", "mcp__fs__read"]);
        let read = offered.called("mcp__fs__read");
        assert_eq!((read.name.as_str(), read.namespace.as_deref()), ("read", Some("mcp__fs")));
        let patch = offered.called("apply_patch");
        assert_eq!(patch.input("{\"input\": \"a\\nb\"}".to_owned()), "a\nb");
        assert_eq!(offered.called("plain").input("{}".to_owned()), "{}");
        let nameless = [json!({ "type": "namespace", "tools": [{ "type": "function" }] })];
        let error = OfferedTools::of(&nameless).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tools[0].tools[0].name"));
    }
}
