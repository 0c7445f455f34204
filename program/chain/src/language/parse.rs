//! Parses the language into a syntax tree.

use remora_nic::wqe::WqeOpcode;
use std::collections::BTreeMap;

use crate::assemble::Mistake;
use crate::code::Test;

/// An operand of a statement: a number, a variable, or an element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A constant of 64 bits.
    Number(u64),
    /// Name of a variable.
    Var(String),
    /// Name of an array, and the index of the element as a number or variable.
    Element(String, Box<Amount>),
}

/// The target of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Name of a variable.
    Var(String),
    /// An element of an array.
    Element(String, Amount),
}

/// The condition of an `if` or `while`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Left operand of the comparison.
    pub left: Amount,
    /// Comparison of both operands.
    pub test: Test,
    /// Right operand of the comparison.
    pub right: Amount,
}

/// A statement of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Assignment `a = b`.
    Set(Target, Amount),
    /// Atomic update such as `a += b`.
    Change(Target, WqeOpcode, Amount),
    /// Subtraction `a -= b`.
    Subtract(Target, Amount),
    /// Conditional `if a < b { … } else { … }`.
    If(Condition, Vec<Statement>, Vec<Statement>),
    /// Loop `while a < b { … }`, or `loop { … }` without a condition.
    While(Option<Condition>, Vec<Statement>),
    /// `break`, which leaves the innermost loop.
    Break,
}

/// The syntax tree of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Variables and their initial values.
    pub vars: BTreeMap<String, u64>,
    /// Arrays and their initial elements.
    pub arrays: BTreeMap<String, Vec<u64>>,
    /// The statements of the program.
    pub body: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Number(u64),
    Mark(&'static str),
    /// The end of a line.
    End,
}

const MARKS: [&str; 20] = [
    "==", "!=", "<=", ">=", "+=", "-=", "&=", "|=", "^=", "<", ">", "=", "{", "}", "[", "]", ",", "-", "(",
    ")",
];

/// Parses a program.
///
/// # Errors
/// The first error in the text.
pub fn parse(text: &str) -> Result<Tree, Mistake> {
    let mut parser = Parser { tokens: tokens(text)?, position: 0, tree: Tree::default(), loops: 0 };
    parser.tree.body = parser.block(false)?;
    Ok(parser.tree)
}

fn tokens(text: &str) -> Result<Vec<(u32, u32, Token)>, Mistake> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number as u32 + 1;
        let mut rest = line;
        loop {
            rest = rest.trim_start();
            let column = line[..line.len() - rest.len()].chars().count() as u32 + 1;
            let Some(first) = rest.chars().next().filter(|c| *c != ';') else {
                all.push((number, column, Token::End));
                break;
            };
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let fault = |description: String| Mistake { line: number, column, what: description };
            let (token, len) = if first.is_ascii_digit() {
                let digits = rest[..word].replace('_', "");
                let value = match digits.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => digits.parse(),
                };
                (Token::Number(value.map_err(|_| fault(format!("`{}` is no number", &rest[..word])))?), word)
            } else if word > 0 {
                (Token::Name(rest[..word].to_owned()), word)
            } else if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
                (Token::Mark(mark), mark.len())
            } else {
                return Err(fault(format!("`{first}` means nothing here")));
            };
            all.push((number, column, token));
            rest = &rest[len..];
        }
    }
    Ok(all)
}

struct Parser {
    tokens: Vec<(u32, u32, Token)>,
    position: usize,
    tree: Tree,
    loops: u32,
}

impl Parser {
    fn fault<T>(&self, description: impl Into<String>) -> Result<T, Mistake> {
        let end = (1, 1, Token::End);
        let (line, column, _) = self.tokens.get(self.position).or(self.tokens.last()).unwrap_or(&end);
        Err(Mistake { line: *line, column: *column, what: description.into() })
    }

    fn fault_before<T>(&mut self, description: impl Into<String>) -> Result<T, Mistake> {
        self.position -= 1;
        self.fault(description)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position).map(|(_, _, token)| token)
    }

    fn is(&mut self, mark: &'static str) -> bool {
        let is = self.peek() == Some(&Token::Mark(mark));
        self.position += usize::from(is);
        is
    }

    fn expect(&mut self, mark: &'static str) -> Result<(), Mistake> {
        if self.is(mark) { Ok(()) } else { self.fault(format!("`{mark}` is missing here")) }
    }

    fn name(&mut self) -> Option<String> {
        let Some(Token::Name(name)) = self.peek() else { return None };
        let name = name.clone();
        self.position += 1;
        Some(name)
    }

    fn number(&mut self) -> Result<u64, Mistake> {
        let negative = self.is("-");
        let Some(Token::Number(number)) = self.peek() else { return self.fault("a number is missing here") };
        let number = if negative { number.wrapping_neg() } else { *number };
        self.position += 1;
        Ok(number)
    }

    fn skip_ends(&mut self) {
        while self.peek() == Some(&Token::End) {
            self.position += 1;
        }
    }

    /// Parses statements up to `}` or the end of the text.
    fn block(&mut self, inner: bool) -> Result<Vec<Statement>, Mistake> {
        let mut all = Vec::new();
        loop {
            self.skip_ends();
            if inner && self.is("}") {
                return Ok(all);
            }
            match self.peek() {
                None if inner => return self.fault("`}` is missing at the end"),
                None => return Ok(all),
                Some(_) => all.extend(self.statement()?),
            }
        }
    }

    fn statement(&mut self) -> Result<Option<Statement>, Mistake> {
        let Some(name) = self.name() else { return self.fault("a statement begins with a name") };
        let statement = match name.as_str() {
            "var" | "array" => return self.declaration(name == "array").map(|()| None),
            "if" => {
                let condition = self.condition()?;
                let then = self.braced()?;
                let has_else = matches!(self.peek(), Some(Token::Name(name)) if name == "else");
                self.position += usize::from(has_else);
                Statement::If(condition, then, if has_else { self.braced()? } else { Vec::new() })
            }
            "while" | "loop" => {
                let condition = if name == "while" { Some(self.condition()?) } else { None };
                self.loops += 1;
                let body = self.braced()?;
                self.loops -= 1;
                Statement::While(condition, body)
            }
            "break" if self.loops == 0 => return self.fault_before("there is no loop around this `break`"),
            "break" => Statement::Break,
            _ => self.assignment(name)?,
        };
        match self.peek() {
            None | Some(Token::End | Token::Mark("}")) => Ok(Some(statement)),
            _ => self.fault("a line is one statement"),
        }
    }

    fn braced(&mut self) -> Result<Vec<Statement>, Mistake> {
        self.expect("{")?;
        self.block(true)
    }

    fn declaration(&mut self, array: bool) -> Result<(), Mistake> {
        let Some(name) = self.name() else { return self.fault("a name is missing here") };
        if self.tree.vars.contains_key(&name) || self.tree.arrays.contains_key(&name) {
            return self.fault_before(format!("`{name}` is there already"));
        }
        if !array {
            let value = if self.is("=") { self.number()? } else { 0 };
            self.tree.vars.insert(name, value);
            return Ok(());
        }
        self.expect("[")?;
        let len = match self.number()? {
            len @ 1..=0x10_0000 => len as usize,
            _ => return self.fault_before("an array has 1 to 2^20 elements"),
        };
        self.expect("]")?;
        let mut values = vec![0; len];
        if self.is("=") {
            let mut next = 0;
            loop {
                self.skip_ends();
                let value = self.number()?;
                let Some(place) = values.get_mut(next) else {
                    return self.fault_before("more values than it has elements");
                };
                (*place, next) = (value, next + 1);
                if !self.is(",") {
                    break;
                }
            }
        }
        self.tree.arrays.insert(name, values);
        Ok(())
    }

    fn assignment(&mut self, name: String) -> Result<Statement, Mistake> {
        let target = self.place(name)?;
        let target = match target {
            Amount::Element(array, index) => Target::Element(array, *index),
            Amount::Var(name) => Target::Var(name),
            Amount::Number(_) => return self.fault_before("a number cannot be changed"),
        };
        let Some(Token::Mark(mark)) = self.peek().cloned() else {
            return self.fault("`=`, `+=` or the like is missing here");
        };
        self.position += 1;
        let opcode = match mark {
            "=" => return Ok(Statement::Set(target, self.amount()?)),
            "-=" => return Ok(Statement::Subtract(target, self.amount()?)),
            "+=" => WqeOpcode::FETCH_ADD,
            "&=" => WqeOpcode::BIT_AND,
            "|=" => WqeOpcode::BIT_OR,
            "^=" => WqeOpcode::BIT_XOR,
            _ => return self.fault_before("this changes nothing: `=`, `+=`, `-=`, `&=`, `|=` and `^=` do"),
        };
        Ok(Statement::Change(target, opcode, self.amount()?))
    }

    /// Parses a variable, or an element if `[` follows. The name must be declared.
    fn place(&mut self, name: String) -> Result<Amount, Mistake> {
        if self.tree.vars.contains_key(&name) {
            return Ok(Amount::Var(name));
        }
        if !self.tree.arrays.contains_key(&name) {
            return self.fault_before(format!("there is no `{name}`: `var {name} = 0` makes one"));
        }
        self.expect("[")?;
        let index = self.amount()?;
        if let Amount::Element(..) = index {
            return self.fault_before("an index is a number or a variable");
        }
        if let Amount::Number(number) = index
            && number >= self.tree.arrays[&name].len() as u64
        {
            return self.fault_before(format!("`{name}` has {} elements", self.tree.arrays[&name].len()));
        }
        self.expect("]")?;
        Ok(Amount::Element(name, Box::new(index)))
    }

    fn amount(&mut self) -> Result<Amount, Mistake> {
        match self.name() {
            Some(name) => self.place(name),
            None => self.number().map(Amount::Number),
        }
    }

    fn condition(&mut self) -> Result<Condition, Mistake> {
        let left = self.amount()?;
        let test = match self.peek() {
            Some(Token::Mark("==")) => Test::Equal,
            Some(Token::Mark("!=")) => Test::NotEqual,
            Some(Token::Mark("<")) => Test::Less,
            Some(Token::Mark("<=")) => Test::LessOrEqual,
            Some(Token::Mark(">")) => Test::Greater,
            Some(Token::Mark(">=")) => Test::GreaterOrEqual,
            _ => return self.fault("a comparison is missing here: `==`, `!=`, `<`, `<=`, `>` or `>=`"),
        };
        self.position += 1;
        Ok(Condition { left, test, right: self.amount()? })
    }
}
