//! Statements of a template.

mod expression;

use std::sync::Arc;

use crate::ast::{AssignmentTarget, Call, For, Macro, Node, Parameters, Statement, Statements};
use crate::error::Error;
use crate::lexer::{self, Token};

/// Bytes of a source. The largest templates of published models have about 30 KB.
const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Depth of blocks and brackets, and height of an expression.
pub(crate) const MAX_HEIGHT: u16 = 120;

/// A parsed template.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) body: Statements,
    pub(crate) macros: Vec<Macro>,
    pub(crate) callers: Vec<Macro>,
}

/// Parses a template.
pub(crate) fn parse(source: &str) -> Result<Tree, Error> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("the template is larger than {} KiB", MAX_SOURCE_BYTES >> 10);
        return Err(Error::Syntax { line: 1, message });
    }
    let tokens = lexer::tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, depth: 0, loops: 0, macros: Vec::new(), callers: Vec::new() };
    let (body, end) = parser.block(&[])?;
    match end.as_str() {
        "" => Ok(Tree { body, macros: parser.macros, callers: parser.callers }),
        end => Err(parser.error(format!("{end} has no beginning"))),
    }
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    /// The number of blocks and brackets around the current token.
    depth: u16,
    /// Loops around the current token, within its macro.
    loops: usize,
    macros: Vec<Macro>,
    callers: Vec<Macro>,
}

impl Parser {
    fn token(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, _)| token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::Syntax { line: self.line(), message: message.into() }
    }

    fn unexpected(&self, expected: &str) -> Error {
        let found = match self.token() {
            Token::Text(_) | Token::PrintStart | Token::TagStart => "the end of the tag".to_owned(),
            Token::PrintEnd => "`}}`".to_owned(),
            Token::TagEnd => "`%}`".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Quoted(_) => "a string".to_owned(),
            Token::Int(_) | Token::Float(_) => "a number".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the template".to_owned(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    fn advance(&mut self) {
        self.at += 1;
    }

    /// Runs `parse` one level deeper.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_HEIGHT {
            return Err(self.error(format!("the template nests deeper than {MAX_HEIGHT}")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn accept_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.token(), Token::Sign(found) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Error> {
        if self.accept_sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(found) if found == name)
    }

    fn accept_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Result<Arc<str>, Error> {
        let Token::Name(name) = self.token() else { return Err(self.unexpected("a name")) };
        let name = name.as_str().into();
        self.advance();
        Ok(name)
    }

    fn end_tag(&mut self) -> Result<(), Error> {
        if *self.token() != Token::TagEnd {
            return Err(self.unexpected("`%}`"));
        }
        self.advance();
        Ok(())
    }

    /// Statements up to a tag with one of the names `ends`, and that name, whose tag is still open.
    /// The name is empty at the end of the template.
    fn block(&mut self, ends: &[&str]) -> Result<(Statements, String), Error> {
        let mut block = Statements::new();
        loop {
            let line = self.line();
            let statement = match self.token() {
                Token::Text(text) => {
                    let text = text.clone();
                    self.advance();
                    Statement::Text(text)
                }
                Token::PrintStart => {
                    self.advance();
                    let value = self.expression_list()?;
                    if *self.token() != Token::PrintEnd {
                        return Err(self.unexpected("`}}`"));
                    }
                    self.advance();
                    Statement::Print(value)
                }
                Token::TagStart => {
                    self.advance();
                    let name = self.name()?;
                    if ends.contains(&&*name) {
                        return Ok((block, name.to_string()));
                    }
                    match self.deeper(|parser| parser.statement(&name))? {
                        Some(statement) => statement,
                        None => return Err(self.error(format!("unknown tag `{name}`"))),
                    }
                }
                _ if ends.is_empty() => return Ok((block, String::new())),
                _ => return Err(self.error(format!("{} is missing", ends[ends.len() - 1]))),
            };
            block.push(Node { line, statement });
        }
    }

    /// A block up to the tag `end`, the rest of the tag included.
    fn body(&mut self, end: &str) -> Result<Statements, Error> {
        self.end_tag()?;
        let (body, _) = self.block(&[end])?;
        Ok(body)
    }

    fn closed_body(&mut self, end: &str) -> Result<Statements, Error> {
        let body = self.body(end)?;
        // `endmacro` and others may repeat the name.
        if matches!(self.token(), Token::Name(_)) {
            self.advance();
        }
        self.end_tag()?;
        Ok(body)
    }

    fn statement(&mut self, name: &str) -> Result<Option<Statement>, Error> {
        Ok(Some(match name {
            "if" => self.conditional()?,
            "for" => self.for_loop()?,
            "set" => self.assignment()?,
            "macro" => {
                let name = self.name()?;
                self.expect_sign("(")?;
                let definition = self.macro_body(name, "endmacro")?;
                self.macros.push(definition);
                Statement::Macro(self.macros.len() - 1)
            }
            "call" => {
                let parameters_follow = self.accept_sign("(");
                let mut parameters = Vec::new();
                if parameters_follow {
                    parameters = self.parameters()?;
                }
                let call = self.expression()?;
                let body = self.within_macro(|parser| parser.closed_body("endcall"))?;
                self.callers.push(Macro {
                    name: "caller".into(),
                    parameters,
                    has_varargs: false,
                    has_kwargs: false,
                    body,
                });
                Statement::CallBlock(call, self.callers.len() - 1)
            }
            "filter" => {
                let filters = self.filters()?;
                Statement::Filter(filters, self.closed_body("endfilter")?)
            }
            "with" => {
                let mut assignments = Vec::new();
                while *self.token() != Token::TagEnd {
                    let target = self.target()?;
                    self.expect_sign("=")?;
                    assignments.push((target, self.expression()?));
                    self.accept_sign(",");
                }
                Statement::With(assignments, self.closed_body("endwith")?)
            }
            // Marks training data.
            "generation" => Statement::With(Vec::new(), self.closed_body("endgeneration")?),
            "do" => {
                let value = self.expression()?;
                self.end_tag()?;
                Statement::Do(value)
            }
            "break" | "continue" if self.loops == 0 => {
                return Err(self.error(format!("{name} outside of a loop")));
            }
            "break" | "continue" => {
                self.end_tag()?;
                if name == "break" { Statement::Break } else { Statement::Continue }
            }
            _ => return Ok(None),
        }))
    }

    fn conditional(&mut self) -> Result<Statement, Error> {
        let mut branches = Vec::new();
        loop {
            let condition = self.expression()?;
            self.end_tag()?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            let otherwise = match end.as_str() {
                "elif" => continue,
                "else" => self.body("endif")?,
                _ => Statements::new(),
            };
            self.end_tag()?;
            return Ok(Statement::If(branches, otherwise));
        }
    }

    fn for_loop(&mut self) -> Result<Statement, Error> {
        let target = self.target()?;
        if !self.accept_name("in") {
            return Err(self.unexpected("`in`"));
        }
        let items = self.expression_list_without_condition()?;
        let condition = if self.accept_name("if") { Some(self.expression()?) } else { None };
        if self.is_name("recursive") {
            return Err(self.error("recursive loops are not supported"));
        }
        self.end_tag()?;
        self.loops += 1;
        let block = self.block(&["else", "endfor"]);
        self.loops -= 1;
        let (body, end) = block?;
        let otherwise = if end == "else" { self.body("endfor")? } else { Statements::new() };
        self.end_tag()?;
        Ok(Statement::For(Box::new(For { target, items, condition, body, otherwise })))
    }

    fn assignment(&mut self) -> Result<Statement, Error> {
        let target = self.target()?;
        if self.accept_sign("=") {
            let value = self.expression_list()?;
            self.end_tag()?;
            return Ok(Statement::Set(target, value));
        }
        let filters = if self.accept_sign("|") { self.filters()? } else { Vec::new() };
        Ok(Statement::SetBlock(target, filters, self.closed_body("endset")?))
    }

    fn target(&mut self) -> Result<AssignmentTarget, Error> {
        let in_brackets = self.accept_sign("(");
        let first = self.name()?;
        if self.accept_sign(".") {
            return Ok(AssignmentTarget::Field(first, self.name()?));
        }
        let mut names = vec![first];
        let mut is_list = false;
        while self.accept_sign(",") {
            is_list = true;
            if matches!(self.token(), Token::Name(name) if name != "in") {
                names.push(self.name()?);
            }
        }
        if in_brackets {
            self.expect_sign(")")?;
        }
        match names.pop() {
            Some(name) if names.is_empty() && !is_list => Ok(AssignmentTarget::Name(name)),
            last => Ok(AssignmentTarget::Names(names.into_iter().chain(last).collect())),
        }
    }

    fn macro_body(&mut self, name: Arc<str>, end: &str) -> Result<Macro, Error> {
        let parameters = self.parameters()?;
        let start = self.at;
        let body = self.within_macro(|parser| parser.closed_body(end))?;
        // As in jinja2, a macro takes further arguments if it names them.
        let names = |wanted: &str| {
            let is_wanted = |token: &Token| matches!(token, Token::Name(name) if name == wanted);
            self.tokens[start..self.at].iter().any(|(token, ..)| is_wanted(token))
        };
        let (has_varargs, has_kwargs) = (names("varargs"), names("kwargs"));
        Ok(Macro { name, parameters, has_varargs, has_kwargs, body })
    }

    /// Runs `parse` for a body that `break` cannot leave.
    fn within_macro<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let loops = std::mem::take(&mut self.loops);
        let parsed = parse(self);
        self.loops = loops;
        parsed
    }

    /// Parameters with their defaults up to the closing bracket.
    fn parameters(&mut self) -> Result<Parameters, Error> {
        let mut parameters = Parameters::new();
        while !self.accept_sign(")") {
            let name = self.name()?;
            let default = if self.accept_sign("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
            if !self.accept_sign(",") {
                self.expect_sign(")")?;
                break;
            }
        }
        Ok(parameters)
    }

    /// Filters one after another, without a value.
    fn filters(&mut self) -> Result<Vec<Call>, Error> {
        let mut filters = vec![self.named_call()?];
        while self.accept_sign("|") {
            filters.push(self.named_call()?);
        }
        Ok(filters)
    }
}
