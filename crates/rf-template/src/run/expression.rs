//! Expressions.

use std::sync::Arc;

use indexmap::IndexMap;

use super::TemplateRun;
use super::arguments::Arguments;
use crate::ast::{Call, Comparison, Expr, NodeKind, Operator};
use crate::error::Error;
use crate::meter::Text;
use crate::print;
use crate::value::{Key, Value};

impl<'t> TemplateRun<'t> {
    pub(super) fn value(&mut self, expr: &'t Expr) -> Result<Value, Error> {
        self.deeper(|run| run.evaluate(expr))
    }

    fn evaluate(&mut self, expr: &'t Expr) -> Result<Value, Error> {
        match &*expr.kind {
            NodeKind::Constant(value) => Ok(value.clone()),
            NodeKind::Name(name) => Ok(self.named(name)),
            NodeKind::List(items) => Value::list(self.all(items)?),
            NodeKind::Tuple(items) => Value::tuple(self.all(items)?),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Not(value) => Ok(Value::Bool(!self.value(value)?.is_true())),
            NodeKind::Negate(value) => negate(&self.value(value)?),
            NodeKind::Plus(value) => number(self.value(value)?),
            NodeKind::And(left, right) => {
                let left = self.value(left)?;
                if left.is_true() { self.value(right) } else { Ok(left) }
            }
            NodeKind::Or(left, right) => {
                let left = self.value(left)?;
                if left.is_true() { Ok(left) } else { self.value(right) }
            }
            NodeKind::Binary(operator, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                self.binary(*operator, &left, &right)
            }
            NodeKind::Compare(first, others) => self.comparisons(first, others),
            NodeKind::Ternary(value, condition, otherwise) => {
                if self.value(condition)?.is_true() {
                    self.value(value)
                } else {
                    otherwise.as_ref().map_or(Ok(Value::Undefined), |expr| self.value(expr))
                }
            }
            NodeKind::Field(value, name) => {
                let value = self.value(value)?;
                self.field(&value, name)
            }
            NodeKind::Item(value, index) => {
                let value = self.value(value)?;
                let index = self.value(index)?;
                self.item(&value, &index)
            }
            NodeKind::Slice(value, parts) => self.slice_of(value, parts),
            NodeKind::Call(callee, call) => {
                let callee = self.value(callee)?;
                let arguments = self.arguments(call)?;
                self.call(&callee, arguments, None)
            }
            NodeKind::Method(value, call) => {
                let value = self.value(value)?;
                let arguments = self.arguments(call)?;
                self.method(&value, &call.name, arguments, None)
            }
            NodeKind::Filter(value, call) => {
                let value = self.value(value)?;
                self.apply_filter(value, call)
            }
            NodeKind::Test(value, call, negated) => {
                let value = self.value(value)?;
                let arguments = self.arguments(call)?;
                Ok(Value::Bool(self.test(&call.name, &value, arguments)? != *negated))
            }
        }
    }

    /// Evaluates a call whose macro gets `caller`.
    pub(super) fn value_with_caller(
        &mut self,
        expr: &'t Expr,
        caller: Value,
    ) -> Result<Value, Error> {
        match &*expr.kind {
            NodeKind::Call(callee, call) => {
                let callee = self.value(callee)?;
                let arguments = self.arguments(call)?;
                self.call(&callee, arguments, Some(caller))
            }
            NodeKind::Method(value, call) => {
                let value = self.value(value)?;
                let arguments = self.arguments(call)?;
                self.method(&value, &call.name, arguments, Some(caller))
            }
            _ => Err(Error::failed("a call block must call a macro")),
        }
    }

    pub(super) fn apply_filter(&mut self, value: Value, call: &'t Call) -> Result<Value, Error> {
        let arguments = self.arguments(call)?;
        self.filter(&call.name, value, arguments)
    }

    pub(super) fn arguments(&mut self, call: &'t Call) -> Result<Arguments, Error> {
        let positional = call.positional.iter().map(|expr| self.value(expr));
        let positional = positional.collect::<Result<_, _>>()?;
        let named = call.named.iter().map(|(name, expr)| Ok((Arc::clone(name), self.value(expr)?)));
        let named = named.collect::<Result<_, Error>>()?;
        Ok(Arguments { positional, named })
    }

    fn named(&self, name: &str) -> Value {
        self.variable(name).or_else(|| super::call::function(name)).unwrap_or(Value::Undefined)
    }

    fn all(&mut self, items: &'t [Expr]) -> Result<Vec<Value>, Error> {
        self.meter.allocate_list(items.len())?;
        items.iter().map(|item| self.value(item)).collect()
    }

    fn map(&mut self, entries: &'t [(Expr, Expr)]) -> Result<Value, Error> {
        self.meter.allocate_list(entries.len() * 3)?;
        let mut map = IndexMap::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.value(key)?.to_key()?;
            map.insert(key, self.value(value)?);
        }
        Value::map(map)
    }

    fn comparisons(
        &mut self,
        first: &'t Expr,
        others: &'t [(Comparison, Expr)],
    ) -> Result<Value, Error> {
        let mut left = self.value(first)?;
        for (comparison, right) in others {
            let right = self.value(right)?;
            if !self.compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn compare(
        &self,
        comparison: Comparison,
        left: &Value,
        right: &Value,
    ) -> Result<bool, Error> {
        let meter = self.meter;
        Ok(match comparison {
            Comparison::Equal => left.equals(right, meter)?,
            Comparison::NotEqual => !left.equals(right, meter)?,
            Comparison::Less => left.compare(right, meter)?.is_lt(),
            Comparison::LessOrEqual => left.compare(right, meter)?.is_le(),
            Comparison::Greater => left.compare(right, meter)?.is_gt(),
            Comparison::GreaterOrEqual => left.compare(right, meter)?.is_ge(),
            Comparison::In => self.contains(right, left)?,
            Comparison::NotIn => !self.contains(right, left)?,
        })
    }

    fn contains(&self, container: &Value, value: &Value) -> Result<bool, Error> {
        match container {
            Value::Undefined => Ok(false),
            Value::Text(text) => {
                let Some(part) = value.as_text() else {
                    let message = format!("a string contains strings, not a {}", value.kind());
                    return Err(Error::failed(message));
                };
                self.meter.scan(text.len())?;
                Ok(text.contains(&**part))
            }
            Value::List(list) => {
                for item in &list.items {
                    if item.equals(value, self.meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::Map(_) if matches!(value, Value::Undefined) => Ok(false),
            Value::Map(map) => Ok(map.entries.contains_key(&value.to_key()?)),
            Value::Namespace(index) => {
                Ok(value.as_text().is_some_and(|name| self.namespaces[*index].contains_key(name)))
            }
            _ => Err(Error::failed(format!("a {} contains nothing", container.kind()))),
        }
    }

    fn binary(&self, operator: Operator, left: &Value, right: &Value) -> Result<Value, Error> {
        let meter = self.meter;
        match (operator, left, right) {
            (Operator::Concat, ..) => {
                let mut text = Text::new(meter);
                print::print(left, &mut text)?;
                print::print(right, &mut text)?;
                Ok(Value::text(text.finish()))
            }
            (Operator::Add, Value::Text(left), Value::Text(right)) => {
                let mut text = Text::new(meter);
                text.push(left)?;
                text.push(right)?;
                Ok(Value::text(text.finish()))
            }
            (Operator::Add, Value::List(left), Value::List(right)) => {
                meter.allocate_list(left.items.len() + right.items.len())?;
                let items = left.items.iter().chain(&right.items).cloned().collect();
                if left.is_tuple { Value::tuple(items) } else { Value::list(items) }
            }
            (Operator::Multiply, Value::Text(text), count)
            | (Operator::Multiply, count, Value::Text(text))
                if count.as_int().is_some() =>
            {
                let mut repeated = Text::new(meter);
                repeated.push_repeated(text, repetitions(count))?;
                Ok(Value::text(repeated.finish()))
            }
            (Operator::Multiply, Value::List(list), count)
            | (Operator::Multiply, count, Value::List(list))
                if count.as_int().is_some() =>
            {
                let count = if list.items.is_empty() { 0 } else { repetitions(count) };
                meter.allocate_list(list.items.len().saturating_mul(count))?;
                Value::list(std::iter::repeat_n(&list.items, count).flatten().cloned().collect())
            }
            (Operator::Remainder, Value::Text(pattern), value) => {
                self.percent_format(pattern, value)
            }
            _ => arithmetic(operator, left, right),
        }
    }

    pub(super) fn field(&self, value: &Value, name: &Arc<str>) -> Result<Value, Error> {
        let found = match value {
            Value::Undefined => {
                let message = format!("an undefined value has no field `{name}`");
                return Err(Error::failed(message));
            }
            Value::Map(map) => map.entries.get(&Key::Text(Arc::clone(name))).cloned(),
            Value::Namespace(index) => self.namespaces[*index].get(name).cloned(),
            Value::Loop(index) => self.loop_field(*index, name),
            _ => None,
        };
        Ok(found.unwrap_or(Value::Undefined))
    }

    pub(super) fn item(&self, value: &Value, index: &Value) -> Result<Value, Error> {
        let found = match (value, index) {
            (Value::Undefined, _) => {
                return Err(Error::failed("an undefined value has no items"));
            }
            (Value::List(list), _) => {
                let at = index.as_int().and_then(|index| position(index, list.items.len()));
                at.map(|at| list.items[at].clone())
            }
            (Value::Text(text), _) if index.as_int().is_some() => {
                self.meter.scan(text.len())?;
                let count = text.chars().count();
                let at = index.as_int().and_then(|index| position(index, count));
                at.and_then(|at| text.chars().nth(at)).map(|c| Value::text(c.to_string()))
            }
            // As in jinja2, what cannot be a key is none of the mapping.
            (Value::Map(map), _) => {
                index.to_key().ok().and_then(|key| map.entries.get(&key)).cloned()
            }
            (_, Value::Text(name)) => return self.field(value, name),
            _ => None,
        };
        Ok(found.unwrap_or(Value::Undefined))
    }

    fn slice_of(&mut self, value: &'t Expr, parts: &'t [Option<Expr>; 3]) -> Result<Value, Error> {
        let value = self.value(value)?;
        let mut bounds = [None; 3];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            let Some(part) = part else { continue };
            *bound = match self.value(part)? {
                Value::None => None,
                number => Some(number.as_int().ok_or_else(|| {
                    Error::failed(format!("a {} cannot be the bound of a slice", number.kind()))
                })?),
            };
        }
        match &value {
            Value::Undefined => Value::list(Vec::new()),
            Value::List(list) => {
                let (start, count, step) = slice(bounds, list.items.len())?;
                self.meter.allocate_list(count)?;
                let items = indices(start, count, step).map(|at| list.items[at].clone());
                Value::list(items.collect())
            }
            Value::Text(text) => {
                self.meter.scan(text.len())?;
                self.meter.allocate(text.len().saturating_mul(5))?;
                let chars: Vec<char> = text.chars().collect();
                let (start, count, step) = slice(bounds, chars.len())?;
                let text: String = indices(start, count, step).map(|at| chars[at]).collect();
                Ok(Value::text(text))
            }
            _ => Err(Error::failed(format!("a {} has no slices", value.kind()))),
        }
    }
}

/// The position of a Python index, which counts from the end if negative.
fn position(index: i128, len: usize) -> Option<usize> {
    let len = len as i128;
    let index = if index < 0 { index + len } else { index };
    (0..len).contains(&index).then_some(index as usize)
}

/// Start, number of elements and step of a Python slice.
fn slice(bounds: [Option<i128>; 3], len: usize) -> Result<(usize, usize, i64), Error> {
    let [start, end, step] = bounds;
    let step = step.unwrap_or(1).clamp(i64::MIN.into(), i64::MAX.into());
    if step == 0 {
        return Err(Error::failed("the step of a slice is 0"));
    }
    let len = len as i128;
    let bound = |value: i128, low, high| {
        (if value < 0 { value.saturating_add(len) } else { value }).clamp(low, high)
    };
    let (start, span) = if step > 0 {
        let start = start.map_or(0, |value| bound(value, 0, len));
        (start, end.map_or(len, |value| bound(value, 0, len)) - start)
    } else {
        let start = start.map_or(len - 1, |value| bound(value, -1, len - 1));
        (start, start - end.map_or(-1, |value| bound(value, -1, len - 1)))
    };
    let size = step.unsigned_abs() as i128;
    let count = if span > 0 { (span + size - 1) / size } else { 0 };
    Ok((start.max(0) as usize, count as usize, step as i64))
}

fn indices(start: usize, count: usize, step: i64) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| (start as i128 + index as i128 * i128::from(step)) as usize)
}

fn repetitions(count: &Value) -> usize {
    let count = count.as_int().unwrap_or(0).max(0);
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn number(value: Value) -> Result<Value, Error> {
    match value {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => Ok(value),
        _ => Err(Error::failed(format!("a {} is not a number", value.kind()))),
    }
}

fn negate(value: &Value) -> Result<Value, Error> {
    match (value.as_int(), value.as_float()) {
        (Some(value), _) => value.checked_neg().map(Value::Int).ok_or_else(too_large),
        (None, Some(value)) => Ok(Value::Float(-value)),
        _ => Err(Error::failed(format!("a {} is not a number", value.kind()))),
    }
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        let by_zero = || Error::failed("division by zero");
        let exact = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::FloorDivide | Operator::Divide | Operator::Remainder if b == 0 => {
                return Err(by_zero());
            }
            // Python rounds towards negative infinity.
            Operator::FloorDivide => {
                let is_exact = a.checked_rem(b).is_none_or(|remainder| remainder == 0);
                let adjust = i128::from(!is_exact && (a < 0) != (b < 0));
                a.checked_div(b).map(|quotient| quotient - adjust)
            }
            Operator::Remainder => {
                let remainder = a.checked_rem(b).ok_or_else(too_large)?;
                let adjust = remainder != 0 && (remainder < 0) != (b < 0);
                Some(if adjust { remainder + b } else { remainder })
            }
            Operator::Divide => return Ok(Value::Float(a as f64 / b as f64)),
            Operator::Power if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
            Operator::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            Operator::Concat => None,
        };
        return exact.map(Value::Int).ok_or_else(too_large);
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        let message = format!("cannot calculate with {} and {}", left.kind(), right.kind());
        return Err(Error::failed(message));
    };
    Ok(Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide | Operator::FloorDivide | Operator::Remainder if b == 0.0 => {
            return Err(Error::failed("division by zero"));
        }
        Operator::Divide => a / b,
        Operator::FloorDivide => (a / b).floor(),
        Operator::Remainder => a - b * (a / b).floor(),
        Operator::Power => a.powf(b),
        Operator::Concat => return Err(too_large()),
    }))
}

fn too_large() -> Error {
    Error::failed("a number is too large")
}
