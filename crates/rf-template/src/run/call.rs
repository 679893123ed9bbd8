//! Calls: functions, macros, and methods of values that are not text.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::arguments::{Arguments, size, text};
use super::{TemplateRun, VARIABLE_BYTES};
use crate::ast::Macro;
use crate::error::Error;
use crate::meter::Text;
use crate::value::{Key, Value};

const FUNCTIONS: [&str; 5] = ["range", "dict", "namespace", "raise_exception", "strftime_now"];

/// The function called `name`.
pub(super) fn function(name: &str) -> Option<Value> {
    FUNCTIONS.iter().find(|known| **known == name).map(|known| Value::Function(known))
}

impl<'t> TemplateRun<'t> {
    pub(super) fn call(
        &mut self,
        callee: &Value,
        arguments: Arguments,
        caller: Option<Value>,
    ) -> Result<Value, Error> {
        let tree = self.tree;
        match callee {
            Value::Function(name) => self.call_function(name, arguments),
            Value::Macro(index) => self.call_macro(&tree.macros[*index], 0, arguments, caller),
            Value::Caller(index) => {
                let Some(&(index, frame)) = self.callers.get(*index) else {
                    return Err(Error::failed("the call block has ended"));
                };
                self.call_macro(&tree.callers[index], frame, arguments, None)
            }
            _ => Err(Error::failed(format!("a value of type {} is not a function", callee.kind()))),
        }
    }

    fn call_function(&mut self, name: &str, mut arguments: Arguments) -> Result<Value, Error> {
        match name {
            "range" => self.range(arguments),
            "dict" => {
                let mut entries = IndexMap::new();
                for base in std::mem::take(&mut arguments.positional) {
                    let Value::Map(map) = base else {
                        return Err(Error::failed(format!("a {} is not a mapping", base.kind())));
                    };
                    self.meter.allocate_list(map.entries.len() * 3)?;
                    entries.extend(map.entries.iter().map(|(key, v)| (key.clone(), v.clone())));
                }
                self.meter.allocate_list(arguments.named.len() * 3)?;
                let named = arguments.named.into_iter();
                entries.extend(named.map(|(name, value)| (Key::Text(name), value)));
                Value::map(entries)
            }
            "namespace" => {
                let mut fields = HashMap::new();
                for base in std::mem::take(&mut arguments.positional) {
                    let Value::Map(map) = base else {
                        return Err(Error::failed(format!("a {} is not a mapping", base.kind())));
                    };
                    self.meter.allocate(map.entries.len().saturating_mul(VARIABLE_BYTES))?;
                    for (key, value) in &map.entries {
                        if let Key::Text(name) = key {
                            fields.insert(Arc::clone(name), value.clone());
                        }
                    }
                }
                self.meter.allocate((arguments.named.len() + 1) * VARIABLE_BYTES)?;
                fields.extend(arguments.named);
                self.namespaces.push(fields);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
            "raise_exception" => {
                let [message] = arguments.bind(name, ["message"])?;
                let mut refusal = Text::new(self.meter);
                crate::print::print(&message, &mut refusal)?;
                Err(Error::Refused(refusal.finish()))
            }
            _ => {
                let [format] = arguments.bind(name, ["format"])?;
                let format = text(&format)?;
                self.meter.scan(format.len())?;
                // A directive of two bytes writes fewer than 64.
                self.meter.allocate(format.len().saturating_mul(64))?;
                let bad = || Error::failed("the format of strftime_now is malformed");
                (self.clock)(format).map(Value::text).ok_or_else(bad)
            }
        }
    }

    fn range(&self, arguments: Arguments) -> Result<Value, Error> {
        let [first, second, step] = arguments.bind("range", ["start", "stop", "step"])?;
        let int = |value: &Value| {
            let wrong = || Error::failed(format!("range takes integers, not a {}", value.kind()));
            value.as_int().ok_or_else(wrong)
        };
        let (start, end) = match second {
            Value::Undefined => (0, int(&first)?),
            end => (int(&first)?, int(&end)?),
        };
        let step = if matches!(step, Value::Undefined) { 1 } else { int(&step)? };
        let too_long = || Error::failed("the range is too long");
        let span = if step > 0 { end.checked_sub(start) } else { start.checked_sub(end) };
        let span = span.ok_or_else(too_long)?.max(0);
        let size = i128::try_from(step.unsigned_abs()).ok().filter(|&size| size > 0);
        let size = size.ok_or_else(|| Error::failed("the step of a range is 0"))?;
        let count = usize::try_from(span / size + i128::from(span % size != 0));
        let count = count.map_err(|_| too_long())?;
        self.meter.allocate_list(count)?;
        Value::list((0..count as i128).map(|index| Value::Int(start + index * step)).collect())
    }

    /// Runs a macro in a frame below `parent`.
    fn call_macro(
        &mut self,
        definition: &'t Macro,
        parent: usize,
        arguments: Arguments,
        caller: Option<Value>,
    ) -> Result<Value, Error> {
        self.deeper(|run| {
            run.in_frame_below(parent, |run| {
                run.bind_parameters(definition, arguments)?;
                if let Some(caller) = caller {
                    run.set("caller".into(), caller)?;
                }
                run.captured(&definition.body).map(Value::text)
            })
        })
    }

    fn bind_parameters(&mut self, definition: &'t Macro, given: Arguments) -> Result<(), Error> {
        let Macro { name, parameters, has_varargs, has_kwargs, .. } = definition;
        if given.positional.len() > parameters.len() && !has_varargs {
            let (most, found) = (parameters.len(), given.positional.len());
            return Err(Error::failed(format!("{name} takes {most} arguments, found {found}")));
        }
        let known = |name: &Arc<str>| parameters.iter().any(|(known, _)| known == name);
        let mut unknown = given.named.iter().filter(|(name, _)| !known(name)).peekable();
        if let Some((unknown, _)) = unknown.peek().filter(|_| !has_kwargs) {
            return Err(Error::failed(format!("{name} has no argument `{unknown}`")));
        }
        if *has_kwargs {
            self.meter.allocate_list(given.named.len().saturating_mul(3))?;
            let entries = unknown.map(|(name, value)| (Key::Text(Arc::clone(name)), value.clone()));
            let entries = Value::map(entries.collect())?;
            self.set("kwargs".into(), entries)?;
        }
        let mut positional = given.positional.into_iter();
        for (parameter, default) in parameters {
            let named = given.named.iter().find(|(name, _)| name == parameter);
            let value = match (positional.next(), named, default) {
                (Some(value), ..) => value,
                (None, Some((_, value)), _) => value.clone(),
                (None, None, Some(default)) => self.value(default)?,
                (None, None, None) => Value::Undefined,
            };
            self.set(Arc::clone(parameter), value)?;
        }
        if *has_varargs {
            self.meter.allocate_list(positional.len())?;
            self.set("varargs".into(), Value::tuple(positional.collect())?)?;
        }
        Ok(())
    }

    pub(super) fn method(
        &mut self,
        value: &Value,
        name: &Arc<str>,
        arguments: Arguments,
        caller: Option<Value>,
    ) -> Result<Value, Error> {
        let own = match value {
            Value::Namespace(_) => self.field(value, name)?,
            Value::Map(map) => {
                map.entries.get(&Key::Text(Arc::clone(name))).cloned().unwrap_or(Value::Undefined)
            }
            _ => Value::Undefined,
        };
        if matches!(own, Value::Function(_) | Value::Macro(_) | Value::Caller(_)) {
            return self.call(&own, arguments, caller);
        }
        match value {
            Value::Text(text) => self.text_method(text, name, arguments),
            Value::Map(_) => self.map_method(value, name, arguments),
            Value::List(list) => match &**name {
                "count" => {
                    let [wanted] = arguments.bind(name, ["value"])?;
                    let mut count = 0;
                    for item in &list.items {
                        count += i128::from(item.equals(&wanted, self.meter)?);
                    }
                    Ok(Value::Int(count))
                }
                "index" => {
                    let [wanted] = arguments.bind(name, ["value"])?;
                    for (index, item) in list.items.iter().enumerate() {
                        if item.equals(&wanted, self.meter)? {
                            return Ok(Value::Int(index as i128));
                        }
                    }
                    Err(Error::failed("the value is not in the list"))
                }
                _ => Err(no_method(value, name)),
            },
            Value::Loop(index) => self.loop_method(*index, name, arguments),
            _ => Err(no_method(value, name)),
        }
    }

    fn map_method(
        &self,
        value: &Value,
        name: &Arc<str>,
        arguments: Arguments,
    ) -> Result<Value, Error> {
        let Value::Map(map) = value else { return Err(no_method(value, name)) };
        match &**name {
            "get" => {
                let [key, default] = arguments.bind(name, ["key", "default"])?;
                let found = match key {
                    Value::Undefined => None,
                    key => map.entries.get(&key.to_key()?).cloned(),
                };
                let default = if let Value::Undefined = default { Value::None } else { default };
                Ok(found.unwrap_or(default))
            }
            "keys" | "values" | "items" => {
                let [] = arguments.bind(name, [])?;
                self.pairs(value, name)
            }
            _ => Err(no_method(value, name)),
        }
    }

    /// The items, keys or values of a mapping.
    pub(super) fn pairs(&self, value: &Value, part: &str) -> Result<Value, Error> {
        let Value::Map(map) = value else {
            return Err(Error::failed(format!("a {} is not a mapping", value.kind())));
        };
        let per_entry = if part == "items" { 4 } else { 1 };
        self.meter.allocate_list(map.entries.len().saturating_mul(per_entry))?;
        let part = |(key, value): (&Key, &Value)| match part {
            "keys" => Ok(key.to_value()),
            "values" => Ok(value.clone()),
            _ => Value::tuple(vec![key.to_value(), value.clone()]),
        };
        Value::list(map.entries.iter().map(part).collect::<Result<_, _>>()?)
    }

    pub(super) fn loop_field(&self, index: usize, name: &str) -> Option<Value> {
        let state = self.loops.get(index)?;
        let (at, len) = (state.index, state.items.items.len());
        let int = |value: usize| Some(Value::Int(value as i128));
        match name {
            "index" => int(at + 1),
            "index0" => int(at),
            "revindex" => int(len - at),
            "revindex0" => int(len - at - 1),
            "length" => int(len),
            "depth" => int(state.depth + 1),
            "depth0" => int(state.depth),
            "first" => Some(Value::Bool(at == 0)),
            "last" => Some(Value::Bool(at + 1 == len)),
            "previtem" => state.items.items.get(at.checked_sub(1)?).cloned(),
            "nextitem" => state.items.items.get(at + 1).cloned(),
            _ => None,
        }
    }

    fn loop_method(
        &mut self,
        index: usize,
        name: &str,
        arguments: Arguments,
    ) -> Result<Value, Error> {
        let meter = self.meter;
        let ended = || Error::failed("the loop has ended");
        let state = self.loops.get_mut(index).ok_or_else(ended)?;
        match name {
            "cycle" if !arguments.positional.is_empty() => {
                let at = state.index % arguments.positional.len();
                Ok(arguments.positional[at].clone())
            }
            "changed" => {
                meter.allocate_list(arguments.positional.len())?;
                let now = Value::list(arguments.positional)?;
                let changed = match &state.seen {
                    Some(seen) => !seen.equals(&now, meter)?,
                    None => true,
                };
                state.seen = Some(now);
                Ok(Value::Bool(changed))
            }
            _ => Err(Error::failed(format!("a loop has no method `{name}`"))),
        }
    }

    /// The width of an argument, which must be small enough to charge.
    pub(super) fn width(&self, value: &Value, default: usize) -> Result<usize, Error> {
        let width = size(value, default)?;
        self.meter.allocate(width)?;
        Ok(width)
    }
}

fn no_method(value: &Value, name: &str) -> Error {
    Error::failed(format!("a {} has no method `{name}`", value.kind()))
}
