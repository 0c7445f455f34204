//! The tokenizer of the assembler.

use super::Mistake;

/// A token of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, which may contain dots.
    Word(String),
    Number(u64),
    Text(Vec<u8>),
    /// A mark, such as `:` or `->`.
    Mark(&'static str),
}

const MARKS: [&str; 8] = ["->", "=>", ":", ",", "&", "+", "[", "]"];

/// Returns the tokens of a line, each with its column.
pub(super) fn tokens(line: u32, text: &str) -> Result<Vec<(u32, Token)>, Mistake> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let column = text[..text.len() - rest.len()].chars().count() as u32 + 1;
        let fault = |description: String| Mistake { line, column, what: description };
        let Some(first) = rest.chars().next().filter(|c| *c != ';') else { return Ok(all) };
        let (token, len) = if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
            (Token::Mark(mark), mark.len())
        } else if first == '"' {
            text_of(rest).ok_or_else(|| fault("a text without its end: put \" behind it".into()))?
        } else if first.is_ascii_digit() || first == '-' {
            let len =
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len());
            // In `1->x` the `-` belongs to the arrow.
            let word = rest[..len].trim_end_matches('-');
            let number = number(word).ok_or_else(|| fault(format!("`{word}` is not a 64-bit number")))?;
            (Token::Number(number), word.len())
        } else if first.is_alphabetic() || first == '_' {
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let len = rest.find(|c| !word(c)).unwrap_or(rest.len());
            (Token::Word(rest[..len].to_owned()), len)
        } else {
            return Err(fault(format!("`{first}` means nothing here")));
        };
        all.push((column, token));
        rest = &rest[len..];
    }
}

/// Parses a decimal, hexadecimal or binary number of 64 bits, which may be negative.
fn number(word: &str) -> Option<u64> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let digits = digits.replace('_', "");
    let value = match (digits.strip_prefix("0x"), digits.strip_prefix("0b")) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (_, Some(digits)) => u64::from_str_radix(digits, 2),
        _ => digits.parse(),
    };
    value.ok().map(|value| if negative { value.wrapping_neg() } else { value })
}

/// Parses a quoted text. Also returns its length including the quotation marks.
fn text_of(rest: &str) -> Option<(Token, usize)> {
    let mut bytes = Vec::new();
    let mut chars = rest.char_indices().skip(1);
    loop {
        match chars.next()? {
            (offset, '"') => return Some((Token::Text(bytes), offset + 1)),
            (_, '\\') => bytes.push(match chars.next()?.1 {
                'n' => b'\n',
                '0' => 0,
                other => u8::try_from(other).ok()?,
            }),
            (_, other) => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_marks_are_told_apart() {
        let all = tokens(1, r#"a.id: 0x10->-1, "x\"\n" [b] ; not this"#).unwrap();
        let only: Vec<_> = all.into_iter().map(|(_, token)| token).collect();
        let word = |name: &str| Token::Word(name.into());
        let mark = Token::Mark;
        let expected = [
            word("a.id"),
            mark(":"),
            Token::Number(16),
            mark("->"),
            Token::Number(u64::MAX),
            mark(","),
            Token::Text(b"x\"\n".to_vec()),
            mark("["),
            word("b"),
            mark("]"),
        ];
        assert_eq!(only, expected);
    }

    #[test]
    fn what_is_no_token_is_found_at_its_column() {
        let columns = ["add x, 12q", "add x, %", "x: text \"abc"].map(|text| tokens(7, text).unwrap_err());
        assert_eq!(columns.map(|mistake| (mistake.line, mistake.column)), [(7, 8), (7, 8), (7, 9)]);
    }
}
