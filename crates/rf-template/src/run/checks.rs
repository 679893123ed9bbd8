//! Tests of values: `is defined`, `is string` and others.

use super::TemplateRun;
use super::arguments::{Arguments, text};
use crate::ast::Comparison;
use crate::error::Error;
use crate::value::Value;

impl TemplateRun<'_> {
    /// Returns true if `value` passes the test `name`.
    pub(super) fn test(
        &mut self,
        name: &str,
        value: &Value,
        arguments: Arguments,
    ) -> Result<bool, Error> {
        self.meter.step(1)?;
        let comparison = match name {
            "eq" | "equalto" => Some(Comparison::Equal),
            "ne" => Some(Comparison::NotEqual),
            "lt" | "lessthan" => Some(Comparison::Less),
            "le" => Some(Comparison::LessOrEqual),
            "gt" | "greaterthan" => Some(Comparison::Greater),
            "ge" => Some(Comparison::GreaterOrEqual),
            "in" => Some(Comparison::In),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let [other] = arguments.bind(name, ["other"])?;
            return self.compare(comparison, value, &other);
        }
        if name == "divisibleby" {
            let [divisor] = arguments.bind(name, ["num"])?;
            return match (value.as_int(), divisor.as_int()) {
                (Some(value), Some(divisor)) if divisor != 0 => {
                    Ok(value.checked_rem(divisor).unwrap_or(0) == 0)
                }
                _ => Err(Error::failed("divisibleby takes integers, and not 0")),
            };
        }
        if matches!(name, "startingwith" | "endingwith" | "sameas") {
            let [other] = arguments.bind(name, ["other"])?;
            return match name {
                "startingwith" => Ok(text(value)?.starts_with(&**text(&other)?)),
                "endingwith" => Ok(text(value)?.ends_with(&**text(&other)?)),
                _ => Ok(value.kind() == other.kind() && value.equals(&other, self.meter)?),
            };
        }
        let [] = arguments.bind(name, [])?;
        Ok(match name {
            "defined" => !matches!(value, Value::Undefined),
            "undefined" => matches!(value, Value::Undefined),
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            // As in Python, a boolean is a number.
            "number" => value.as_float().is_some(),
            "string" => matches!(value, Value::Text(_)),
            "mapping" => matches!(value, Value::Map(_)),
            "sequence" => matches!(value, Value::Text(_) | Value::List(_) | Value::Map(_)),
            "iterable" => {
                matches!(value, Value::Undefined | Value::Text(_) | Value::List(_) | Value::Map(_))
            }
            "callable" => {
                matches!(value, Value::Function(_) | Value::Macro(_) | Value::Caller(_))
            }
            "odd" | "even" => {
                let number = value.as_int();
                let number = number.ok_or_else(|| Error::failed("expected an integer"))?;
                (number & 1 == 1) == (name == "odd")
            }
            "lower" | "upper" => {
                let text = text(value)?;
                self.meter.scan(text.len())?;
                let is_cased = |c: char| c.is_lowercase() || c.is_uppercase();
                let fits =
                    |c: char| if name == "lower" { !c.is_uppercase() } else { !c.is_lowercase() };
                text.chars().any(is_cased) && text.chars().all(fits)
            }
            _ => return Err(Error::failed(format!("unknown test `{name}`"))),
        })
    }
}
