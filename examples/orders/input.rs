//! Reads what is ordered: JSON Lines, one arrival of goods or one order a line. A bad line never stops the others: it is
//! set aside with its number and the reason.
//!
//! Blank lines, Windows line ends and a byte order mark are no errors. Everything has a limit, since a file may be
//! anything, and standard input may never end.

use std::{
    borrow::Cow,
    collections::HashSet,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use hapax::ids::SagaKey;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Refusal,
    messages::{Line, PlaceOrder, StockArrived},
};

/// Most orders of a run: the books and the tables of the run hold them all in memory.
pub(crate) const ORDERS_MAX: u32 = 100_000;
/// Longest line, in bytes: far above any order that keeps the other limits.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most bad lines that are set aside; beyond it the input is not a file of orders.
const REJECTS_MAX: usize = 10_000;
/// So much of a bad line is kept, in bytes: enough to recognise it.
const KEPT_BYTES_MAX: usize = 4 << 10;
/// Longest customer's name, in bytes.
const CUSTOMER_BYTES_MAX: usize = 500;
/// Longest card number, in bytes. Whether it is one is not the input's business: who types it wrong has ordered all the same.
const CARD_NUMBER_BYTES_MAX: usize = 100;
/// Most articles in one order.
const LINES_MAX: usize = 100;
/// Most of one article in one order or one arrival.
const QUANTITY_MAX: u32 = 1_000_000;
/// Highest price of one, in cents: a million.
const PRICE_CENTS_MAX: u32 = 100_000_000;

/// The orders that come with the example.
const BUNDLED: &str = include_str!("orders.jsonl");

/// What is ordered.
#[derive(Debug, Default)]
pub struct Input {
    /// Goods that come in.
    pub stock: Vec<StockArrived>,
    /// Orders, each id once.
    pub orders: Vec<PlaceOrder>,
    /// Lines that are neither.
    pub rejects: Vec<Reject>,
    ids: HashSet<String>,
}

/// A line that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reject {
    /// Its number; the first is 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// The line, or its beginning; bytes that are not UTF-8 are replaced.
    pub text: String,
}

impl Input {
    /// The first `orders` of those that come with the example; when there are fewer, they are repeated under new ids.
    #[must_use]
    pub fn bundled(orders: Option<u32>) -> Self {
        let all = Self::from_reader(BUNDLED.as_bytes(), ORDERS_MAX).unwrap_or_default();
        let wanted = orders.map_or(all.orders.len(), |orders| orders as usize);
        let mut input = Self::default();
        for round in 1.. {
            let left = wanted - input.orders.len();
            if left == 0 || all.orders.is_empty() {
                break;
            }
            input.stock.extend_from_slice(&all.stock);
            let again = |order: &PlaceOrder| {
                let order_id = if round == 1 { order.order.clone() } else { format!("{}~{round}", order.order) };
                PlaceOrder { order: order_id, ..order.clone() }
            };
            input.orders.extend(all.orders.iter().take(left).map(again));
        }
        input
    }

    /// Reads a file, or standard input for `-`: at most `orders`, the rest is not looked at.
    ///
    /// # Errors
    /// [`Refusal`] when it cannot be read, or holds too many orders or too many bad lines.
    pub fn read(path: &Path, orders: Option<u32>) -> Result<Self, Refusal> {
        let name = name_of(path);
        let cannot = |e: io::Error| Refusal::new(format!("cannot read {name}: {e}; name a file of orders, or -"));
        let input = if path == Path::new("-") {
            Self::from_reader(io::stdin().lock(), orders.unwrap_or(ORDERS_MAX))
        } else {
            let file = File::open(path).map_err(cannot)?;
            Self::from_reader(BufReader::new(file), orders.unwrap_or(ORDERS_MAX))
        };
        let input = input.map_err(cannot)?;
        if input.rejects.len() >= REJECTS_MAX {
            let (line, reason) = (input.rejects[0].line, &input.rejects[0].reason);
            let why = format!("{name} has {REJECTS_MAX} bad lines, the first is line {line}: {reason}; see --help");
            return Err(Refusal::new(why));
        }
        Ok(input)
    }

    /// Reads lines until there are `orders_max` orders or too many bad lines.
    fn from_reader(mut reader: impl BufRead, orders_max: u32) -> io::Result<Self> {
        let (mut input, mut number, mut line) = (Self::default(), 0, Vec::new());
        while input.orders.len() < orders_max as usize && input.rejects.len() < REJECTS_MAX {
            let Some(bytes) = next_line(&mut reader, &mut line)? else { break };
            number += 1;
            if number == 1 && line.starts_with(b"\xef\xbb\xbf") {
                line.drain(..3);
            }
            let taken = if bytes > LINE_BYTES_MAX {
                Err(format!("has {bytes} bytes, more than the {LINE_BYTES_MAX} allowed"))
            } else {
                input.take(line.trim_ascii())
            };
            if let Err(reason) = taken {
                let kept = &line[..line.len().min(KEPT_BYTES_MAX)];
                let text = String::from_utf8_lossy(kept).trim_end_matches(['\r', '\n']).to_owned();
                input.rejects.push(Reject { line: number, reason, text });
            }
        }
        Ok(input)
    }

    /// Takes one line over, or says what is wrong with it.
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let text = str::from_utf8(line).map_err(|e| format!("is not UTF-8 at byte {}", e.valid_up_to() + 1))?;
        if !text.starts_with('{') {
            return Err("is not a JSON object".into());
        }
        let Kind { order, stock } = parse(text)?;
        if order.is_none() && stock.is_some() {
            self.stock.push(check_stock(parse(text)?)?);
            return Ok(());
        }
        let order = check_order(parse(text)?)?;
        if !self.ids.insert(order.order.clone()) {
            return Err(format!("orders {:?} again; each order needs an id of its own", order.order));
        }
        self.orders.push(order);
        Ok(())
    }
}

/// What to call the input at `path`.
pub(crate) fn name_of(path: &Path) -> Cow<'_, str> {
    if path == Path::new("-") { "standard input".into() } else { path.to_string_lossy() }
}

/// Reads one line into `line`, no more than the beginning of a line that is too long; answers how long it is.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
    line.clear();
    let mut bytes = reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    while bytes > LINE_BYTES_MAX && line.last() != Some(&b'\n') {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(skipped);
        bytes += skipped;
        if end.is_some() || skipped == 0 {
            break;
        }
    }
    Ok((bytes > 0).then_some(bytes))
}

/// What a line is about: looked at first, so that an error speaks of one kind of line only.
#[derive(Deserialize)]
struct Kind {
    order: Option<serde::de::IgnoredAny>,
    stock: Option<serde::de::IgnoredAny>,
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| {
        let said = e.to_string();
        // The parser was given one line, so "line 1" would only mislead.
        let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
        format!("{what} at column {}", e.column())
    })
}

fn check_stock(stock: StockArrived) -> Result<StockArrived, String> {
    check_key("stock", &stock.article)?;
    check_quantity(stock.quantity)?;
    Ok(stock)
}

fn check_order(order: PlaceOrder) -> Result<PlaceOrder, String> {
    check_key("order", &order.order)?;
    if order.customer.trim().is_empty() || order.customer.len() > CUSTOMER_BYTES_MAX {
        return Err(format!("customer must have 1 to {CUSTOMER_BYTES_MAX} bytes"));
    }
    if order.card_number.as_ref().is_some_and(|number| number.len() > CARD_NUMBER_BYTES_MAX) {
        return Err(format!("card_number has more than the {CARD_NUMBER_BYTES_MAX} bytes allowed"));
    }
    if order.lines.is_empty() || order.lines.len() > LINES_MAX {
        return Err(format!("has {} lines; an order needs 1 to {LINES_MAX}", order.lines.len()));
    }
    let mut articles = HashSet::new();
    for Line { article, quantity, price_cents } in &order.lines {
        check_key("article", article)?;
        check_quantity(*quantity)?;
        if *price_cents > PRICE_CENTS_MAX {
            return Err(format!("price_cents {price_cents} is more than the {PRICE_CENTS_MAX} allowed"));
        }
        if !articles.insert(article) {
            return Err(format!("has {article:?} on two lines; add them up"));
        }
    }
    Ok(order)
}

/// The ids become saga keys, so hapax has the last word.
fn check_key(field: &str, text: &str) -> Result<(), String> {
    SagaKey::parse(text).map(drop).map_err(|e| format!("{field} cannot be used: {e}"))
}

fn check_quantity(quantity: u32) -> Result<(), String> {
    if (1..=QUANTITY_MAX).contains(&quantity) {
        return Ok(());
    }
    Err(format!("quantity {quantity} is not between 1 and {QUANTITY_MAX}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GOOD: &str =
        r#"{"order":"A","customer":"Zoë","card":"good","lines":[{"article":"mug","quantity":1,"price_cents":5}]}"#;

    fn read(text: impl AsRef<[u8]>) -> Input {
        Input::from_reader(text.as_ref(), ORDERS_MAX).unwrap()
    }

    /// What is said about `line`, between two good ones that must get through.
    fn reason(line: impl AsRef<[u8]>) -> String {
        let mut text = GOOD.replace("\"A\"", "\"first\"").into_bytes();
        text.push(b'\n');
        text.extend(line.as_ref());
        text.push(b'\n');
        text.extend(GOOD.replace("\"A\"", "\"last\"").as_bytes());
        let input = read(text);
        assert_eq!(input.orders.len(), 2, "the good lines around {:?}", input.rejects);
        assert_eq!((input.rejects.len(), input.rejects[0].line), (1, 2));
        input.rejects[0].reason.clone()
    }

    fn with(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    }

    #[test]
    fn every_bad_line_is_set_aside_with_its_reason() {
        for (line, expected) in [
            ("order 12, please".into(), "is not a JSON object"),
            ("[1,2]".into(), "is not a JSON object"),
            (r#"{"order":"A""#.into(), "EOF while parsing an object at column 12"),
            (format!("{GOOD} {GOOD}"), "trailing characters"),
            ("{}".into(), "missing field `order`"),
            (with(r#""customer":"Zoë","#, ""), "missing field `customer`"),
            (with("customer", "costumer"), "unknown field `costumer`"),
            (with(r#""A""#, "7"), "invalid type: integer `7`, expected a string"),
            (with(r#""A""#, "null"), "invalid type: null"),
            (with(r#""A""#, r#""""#), "order cannot be used: saga key is empty"),
            (with(r#""A""#, r#""a\u0000b""#), "control character"),
            (with(r#""A""#, &format!("{:?}", "x".repeat(256))), "has 256 bytes"),
            (with(r#""mug""#, r#""""#), "article cannot be used"),
            (with("Zoë", "  "), "customer must have 1 to 500 bytes"),
            (with("good", "golden"), "unknown variant `golden`"),
            (
                with(r#""lines""#, &format!(r#""card_number":"{}","lines""#, "4".repeat(101))),
                "card_number has more than",
            ),
            (with(r#""price_cents":5"#, r#""price_cents":-5"#), "invalid value: integer `-5`"),
            (with(r#""price_cents":5"#, r#""price_cents":1.5"#), "floating point `1.5`"),
            (with(r#""price_cents":5"#, r#""price_cents":4000000000"#), "is more than"),
            (with(r#""quantity":1"#, r#""quantity":0"#), "quantity 0 is not between"),
            (with(r#""quantity":1"#, r#""quantity":99999999999"#), "invalid value"),
            (with(r#"{"article":"mug","quantity":1,"price_cents":5}"#, ""), "has 0 lines"),
            (with(r#""lines":["#, r#""lines":[{"article":"mug","quantity":1,"price_cents":5},"#), "on two lines"),
            (with(r#""order":"A","#, r#""order":"A","order":"B","#), "duplicate field `order`"),
            (r#"{"stock":"mug","quantity":-1}"#.into(), "invalid value"),
            (r#"{"stock":"mug","quantity":1,"colour":"red"}"#.into(), "unknown field `colour`"),
            (format!("{{\"stock\":{}", "[".repeat(60_000)), "EOF while parsing a list"),
        ] {
            let said = reason(&line);
            assert!(said.contains(expected), "{line:.200}: {said:?} does not say {expected:?}");
        }
    }

    #[test]
    fn a_line_that_is_not_utf8_is_set_aside() {
        assert_eq!(reason(b"{\"order\":\"\xff\xfe\"}"), "is not UTF-8 at byte 11");
    }

    #[test]
    fn a_line_of_ten_megabytes_is_set_aside_and_only_its_beginning_kept() {
        let mut text = vec![b'x'; 10 << 20];
        text.push(b'\n');
        text.extend(GOOD.as_bytes());
        let input = read(text);
        assert_eq!(input.orders.len(), 1);
        assert!(input.rejects[0].reason.starts_with("has 10485761 bytes"), "{}", input.rejects[0].reason);
        assert_eq!(input.rejects[0].text.len(), KEPT_BYTES_MAX);
    }

    #[test]
    fn an_order_id_is_taken_once() {
        let input = read(format!("{GOOD}\n{GOOD}\n"));
        assert_eq!((input.orders.len(), input.rejects.len()), (1, 1));
        assert!(input.rejects[0].reason.contains("again"));
    }

    #[test]
    fn blank_lines_windows_ends_a_mark_and_a_missing_last_end_are_no_errors() {
        let input = read(format!("\u{feff}{GOOD}\r\n\r\n  \n{{\"stock\":\"mug\",\"quantity\":3}}"));
        assert_eq!((input.orders.len(), input.stock.len(), input.rejects.len()), (1, 1, 0));
    }

    #[test]
    fn nothing_is_read_beyond_the_orders_asked_for() {
        let text = format!("{GOOD}\nnot looked at\n");
        let input = Input::from_reader(text.as_bytes(), 1).unwrap();
        assert_eq!((input.orders.len(), input.rejects.len()), (1, 0));
    }

    #[test]
    fn an_endless_input_of_rubbish_ends() {
        let endless = BufReader::new(io::repeat(b'\n').take(1).chain(Rubbish));
        assert_eq!(Input::from_reader(endless, ORDERS_MAX).unwrap().rejects.len(), REJECTS_MAX);
    }

    struct Rubbish;

    impl Read for Rubbish {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.chunks_mut(2).for_each(|chunk| chunk.copy_from_slice(&b"y\n"[..chunk.len()]));
            Ok(buffer.len())
        }
    }

    #[test]
    fn the_bundled_file_is_good_and_can_be_repeated() {
        let all = Input::bundled(None);
        assert!(all.orders.len() >= 3000 && all.rejects.is_empty() && !all.stock.is_empty());
        let more = Input::bundled(Some(7000));
        let ids: HashSet<_> = more.orders.iter().map(|order| &order.order).collect();
        assert_eq!(ids.len(), 7000);
    }
}
