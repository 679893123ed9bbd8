//! Expressions, by precedence from `if` down to names and constants.

use std::sync::Arc;

use super::{MAX_HEIGHT, Parser};
use crate::ast::{Call, Comparison, Expr, NodeKind, Operator};
use crate::error::Error;
use crate::lexer::Token;
use crate::value::Value;

impl Parser {
    /// An expression, or several with commas, which are a list.
    pub(super) fn expression_list(&mut self) -> Result<Expr, Error> {
        let first = self.expression()?;
        self.list_after(first, Self::expression)
    }

    /// An expression, or several with commas, without `if`, which filters the items of a loop.
    pub(super) fn expression_list_without_condition(&mut self) -> Result<Expr, Error> {
        let first = self.deeper(Self::or)?;
        self.list_after(first, |parser| parser.deeper(Self::or))
    }

    fn list_after(
        &mut self,
        first: Expr,
        mut element: impl FnMut(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        if !matches!(self.token(), Token::Sign(",")) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.accept_sign(",") {
            if matches!(self.token(), Token::Sign(")") | Token::TagEnd | Token::PrintEnd) {
                break;
            }
            items.push(element(self)?);
        }
        let height = highest(&items);
        self.node(NodeKind::Tuple(items), height)
    }

    pub(super) fn expression(&mut self) -> Result<Expr, Error> {
        self.deeper(Self::ternary)
    }

    fn ternary(&mut self) -> Result<Expr, Error> {
        let mut value = self.or()?;
        while self.accept_name("if") {
            let condition = self.or()?;
            let otherwise = if self.accept_name("else") { Some(self.expression()?) } else { None };
            let height = value.height.max(condition.height);
            let height = height.max(otherwise.as_ref().map_or(0, |expr| expr.height));
            value = self.node(NodeKind::Ternary(value, condition, otherwise), height)?;
        }
        Ok(value)
    }

    fn or(&mut self) -> Result<Expr, Error> {
        let mut left = self.and()?;
        while self.accept_name("or") {
            let right = self.and()?;
            let height = left.height.max(right.height);
            left = self.node(NodeKind::Or(left, right), height)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, Error> {
        let mut left = self.not()?;
        while self.accept_name("and") {
            let right = self.not()?;
            let height = left.height.max(right.height);
            left = self.node(NodeKind::And(left, right), height)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, Error> {
        if !self.accept_name("not") {
            return self.comparison();
        }
        let value = self.deeper(Self::not)?;
        let height = value.height;
        self.node(NodeKind::Not(value), height)
    }

    fn comparison(&mut self) -> Result<Expr, Error> {
        let first = self.sum()?;
        let mut others = Vec::new();
        while let Some(comparison) = self.accept_comparison() {
            others.push((comparison, self.sum()?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        let height = others.iter().map(|(_, expr)| expr.height).max().unwrap_or(0);
        let height = first.height.max(height);
        self.node(NodeKind::Compare(first, others), height)
    }

    fn accept_comparison(&mut self) -> Option<Comparison> {
        let comparison = match self.token() {
            Token::Sign("==") => Comparison::Equal,
            Token::Sign("!=") => Comparison::NotEqual,
            Token::Sign("<") => Comparison::Less,
            Token::Sign("<=") => Comparison::LessOrEqual,
            Token::Sign(">") => Comparison::Greater,
            Token::Sign(">=") => Comparison::GreaterOrEqual,
            Token::Name(name) if name == "in" => Comparison::In,
            Token::Name(name) if name == "not" => {
                let (next, _) = self.tokens.get(self.at + 1)?;
                if *next != Token::Name("in".to_owned()) {
                    return None;
                }
                self.advance();
                Comparison::NotIn
            }
            _ => return None,
        };
        self.advance();
        Some(comparison)
    }

    fn sum(&mut self) -> Result<Expr, Error> {
        let signs = [("+", Operator::Add), ("-", Operator::Subtract)];
        self.binary(&signs, |parser| {
            parser.binary(&[("~", Operator::Concat)], |parser| {
                let signs = [
                    ("*", Operator::Multiply),
                    ("//", Operator::FloorDivide),
                    ("/", Operator::Divide),
                    ("%", Operator::Remainder),
                ];
                parser.binary(&signs, |parser| {
                    parser.binary(&[("**", Operator::Power)], |parser| parser.unary(true))
                })
            })
        })
    }

    fn binary(
        &mut self,
        signs: &[(&str, Operator)],
        operand: impl Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        let mut left = operand(self)?;
        loop {
            let found = signs.iter().find(|(sign, _)| self.accept_sign(sign));
            let Some((_, operator)) = found else { return Ok(left) };
            let right = operand(self)?;
            let height = left.height.max(right.height);
            left = self.node(NodeKind::Binary(*operator, left, right), height)?;
        }
    }

    fn unary(&mut self, with_filters: bool) -> Result<Expr, Error> {
        let is_minus = self.accept_sign("-");
        let mut value = if is_minus || self.accept_sign("+") {
            let value = self.deeper(|parser| parser.unary(false))?;
            let height = value.height;
            let kind = if is_minus { NodeKind::Negate(value) } else { NodeKind::Plus(value) };
            self.node(kind, height)?
        } else {
            let value = self.primary()?;
            self.postfix(value)?
        };
        if !with_filters {
            return Ok(value);
        }
        loop {
            if self.accept_sign("|") {
                let call = self.named_call()?;
                let height = value.height.max(height_of(&call));
                value = self.node(NodeKind::Filter(value, call), height)?;
            } else if self.accept_name("is") {
                value = self.test(value)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn test(&mut self, value: Expr) -> Result<Expr, Error> {
        let negated = self.accept_name("not");
        let mut call = Call { name: self.name()?, positional: Vec::new(), named: Vec::new() };
        let takes_operand = match self.token() {
            Token::Name(name) => !matches!(name.as_str(), "else" | "or" | "and" | "is" | "if"),
            Token::Quoted(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Sign(sign) => matches!(*sign, "[" | "{"),
            _ => false,
        };
        if self.accept_sign("(") {
            self.arguments(&mut call)?;
        } else if takes_operand && !self.is_name("in") && !self.is_name("not") {
            let operand = self.primary()?;
            call.positional.push(self.postfix(operand)?);
        }
        let height = value.height.max(height_of(&call));
        self.node(NodeKind::Test(value, call, negated), height)
    }

    fn primary(&mut self) -> Result<Expr, Error> {
        let kind = match self.token() {
            Token::Name(name) => {
                let kind = match name.as_str() {
                    "true" | "True" => NodeKind::Constant(Value::Bool(true)),
                    "false" | "False" => NodeKind::Constant(Value::Bool(false)),
                    "none" | "None" => NodeKind::Constant(Value::None),
                    "and" | "or" | "not" | "if" | "else" | "in" | "is" => {
                        return Err(self.unexpected("a value"));
                    }
                    name => NodeKind::Name(name.into()),
                };
                self.advance();
                kind
            }
            Token::Quoted(_) => {
                let mut text = String::new();
                while let Token::Quoted(part) = self.token() {
                    text.push_str(part);
                    self.at += 1;
                }
                NodeKind::Constant(Value::text(text))
            }
            Token::Int(value) => {
                let value = Value::Int(*value);
                self.advance();
                NodeKind::Constant(value)
            }
            Token::Float(value) => {
                let value = Value::Float(*value);
                self.advance();
                NodeKind::Constant(value)
            }
            Token::Sign("(") => return self.brackets(),
            Token::Sign("[") => {
                self.advance();
                let mut items = Vec::new();
                while !self.accept_sign("]") {
                    items.push(self.expression()?);
                    if !self.accept_sign(",") {
                        self.expect_sign("]")?;
                        break;
                    }
                }
                let height = highest(&items);
                return self.node(NodeKind::List(items), height);
            }
            Token::Sign("{") => return self.mapping(),
            _ => return Err(self.unexpected("a value")),
        };
        self.node(kind, 0)
    }

    fn brackets(&mut self) -> Result<Expr, Error> {
        self.advance();
        if self.accept_sign(")") {
            return self.node(NodeKind::Tuple(Vec::new()), 0);
        }
        let value = self.expression_list()?;
        self.expect_sign(")")?;
        Ok(value)
    }

    fn mapping(&mut self) -> Result<Expr, Error> {
        self.advance();
        let mut entries = Vec::new();
        let mut height = 0;
        while !self.accept_sign("}") {
            let key = self.expression()?;
            self.expect_sign(":")?;
            let value = self.expression()?;
            height = height.max(key.height).max(value.height);
            entries.push((key, value));
            if !self.accept_sign(",") {
                self.expect_sign("}")?;
                break;
            }
        }
        self.node(NodeKind::Map(entries), height)
    }

    fn postfix(&mut self, mut value: Expr) -> Result<Expr, Error> {
        loop {
            if self.accept_sign(".") {
                let name: Arc<str> = match self.token() {
                    Token::Int(index) => {
                        let index = Value::Int(*index);
                        self.advance();
                        let index = self.node(NodeKind::Constant(index), 0)?;
                        let height = value.height;
                        value = self.node(NodeKind::Item(value, index), height)?;
                        continue;
                    }
                    _ => self.name()?,
                };
                let mut height = value.height;
                let kind = if self.accept_sign("(") {
                    let mut call = Call { name, positional: Vec::new(), named: Vec::new() };
                    self.arguments(&mut call)?;
                    height = height.max(height_of(&call));
                    NodeKind::Method(value, call)
                } else {
                    NodeKind::Field(value, name)
                };
                value = self.node(kind, height)?;
            } else if self.accept_sign("[") {
                value = self.subscript(value)?;
            } else if self.accept_sign("(") {
                let mut call = Call { name: "".into(), positional: Vec::new(), named: Vec::new() };
                self.arguments(&mut call)?;
                let height = value.height.max(height_of(&call));
                value = self.node(NodeKind::Call(value, call), height)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn subscript(&mut self, value: Expr) -> Result<Expr, Error> {
        let mut parts = [None, None, None];
        let mut colons = 0;
        loop {
            if self.accept_sign("]") {
                break;
            }
            if self.accept_sign(":") {
                colons += 1;
                if colons > 2 {
                    return Err(self.error("a slice has at most three parts"));
                }
                continue;
            }
            if parts[colons].is_some() {
                return Err(self.unexpected("`]`"));
            }
            parts[colons] = Some(self.expression()?);
        }
        let height = parts.iter().flatten().map(|part| part.height).max().unwrap_or(0);
        let height = height.max(value.height);
        if colons > 0 {
            return self.node(NodeKind::Slice(value, parts), height);
        }
        match parts {
            [Some(index), ..] => self.node(NodeKind::Item(value, index), height),
            _ => Err(self.error("the index is missing")),
        }
    }

    /// The name of a filter with its arguments, if any.
    pub(super) fn named_call(&mut self) -> Result<Call, Error> {
        let mut call = Call { name: self.name()?, positional: Vec::new(), named: Vec::new() };
        if self.accept_sign("(") {
            self.arguments(&mut call)?;
        }
        Ok(call)
    }

    /// Arguments up to the closing bracket.
    fn arguments(&mut self, call: &mut Call) -> Result<(), Error> {
        while !self.accept_sign(")") {
            let is_named = matches!(self.token(), Token::Name(_))
                && matches!(self.tokens.get(self.at + 1), Some((Token::Sign("="), _)));
            if is_named {
                let name = self.name()?;
                self.advance();
                call.named.push((name, self.expression()?));
            } else if call.named.is_empty() {
                call.positional.push(self.expression()?);
            } else {
                return Err(self.error("a named argument comes before one without a name"));
            }
            if !self.accept_sign(",") {
                self.expect_sign(")")?;
                break;
            }
        }
        Ok(())
    }

    /// A node above children of `height`.
    fn node(&self, kind: NodeKind, height: u16) -> Result<Expr, Error> {
        if height >= MAX_HEIGHT {
            return Err(self.error(format!("the expression nests deeper than {MAX_HEIGHT}")));
        }
        Ok(Expr { kind: Box::new(kind), height: height + 1 })
    }
}

fn highest(items: &[Expr]) -> u16 {
    items.iter().map(|item| item.height).max().unwrap_or(0)
}

fn height_of(call: &Call) -> u16 {
    highest(&call.positional).max(call.named.iter().map(|(_, v)| v.height).max().unwrap_or(0))
}
