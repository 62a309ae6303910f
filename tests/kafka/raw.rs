//! A record in the protocol itself: what no client library writes.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// What a batch says of itself: that it belongs to a transaction, and that nobody is given it.
const TRANSACTION: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// Puts a record into partition 0 of `topic`, with one header whose name is any bytes.
pub(crate) fn put(server: &str, topic: &str, header: &[u8], body: &[u8]) {
    let mut record = vec![0]; // Attributes.
    varint(&mut record, 0); // After the first, in milliseconds.
    varint(&mut record, 0); // And in offsets.
    varint(&mut record, -1); // No key.
    bytes(&mut record, body);
    varint(&mut record, 1);
    bytes(&mut record, header);
    bytes(&mut record, b"value");
    let mut records = Vec::new();
    bytes(&mut records, &record);
    assert_eq!(put_batch(server, topic, 0, &records), 0, "{topic}");
}

/// The end of a transaction that is committed, which nobody is given. Whether the broker takes that from a client: Kafka does not.
pub(crate) fn put_end(server: &str, topic: &str) -> bool {
    let mut record = vec![0];
    varint(&mut record, 0);
    varint(&mut record, 0);
    bytes(&mut record, &[0, 0, 0, 1]); // A commit.
    bytes(&mut record, &[0; 6]); // Of any coordinator.
    varint(&mut record, 0);
    let mut records = Vec::new();
    bytes(&mut records, &record);
    put_batch(server, topic, TRANSACTION | CONTROL, &records) == 0
}

/// A batch that says that it is compressed by zstd, and is not.
pub(crate) fn put_undecodable(server: &str, topic: &str) {
    assert_eq!(put_batch(server, topic, 4, b"this is no frame of zstd"), 0, "{topic}");
}

/// How it ended, as Kafka numbers that.
fn put_batch(server: &str, topic: &str, attributes: i16, records: &[u8]) -> i16 {
    // What the checksum is of: from the attributes of the batch on.
    let mut checked = Vec::new();
    checked.extend(attributes.to_be_bytes());
    checked.extend(0_i32.to_be_bytes());
    checked.extend([1_i64.to_be_bytes(); 2].concat());
    checked.extend((-1_i64).to_be_bytes());
    checked.extend((-1_i16).to_be_bytes());
    checked.extend((-1_i32).to_be_bytes());
    checked.extend(1_i32.to_be_bytes());
    checked.extend(records);
    let mut batch = Vec::new();
    batch.extend(0_i64.to_be_bytes());
    batch.extend(i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
    batch.extend((-1_i32).to_be_bytes());
    batch.push(2);
    batch.extend(crc32c(&checked).to_be_bytes());
    batch.extend(checked);

    let mut request = Vec::new();
    request.extend(0_i16.to_be_bytes()); // Produce.
    request.extend(3_i16.to_be_bytes());
    request.extend(7_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes()); // No client's name.
    request.extend((-1_i16).to_be_bytes()); // No transaction.
    request.extend((-1_i16).to_be_bytes()); // All replicas.
    request.extend(5000_i32.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
    request.extend(topic.as_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend(0_i32.to_be_bytes());
    request.extend(i32::try_from(batch.len()).unwrap().to_be_bytes());
    request.extend(batch);
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(&i32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut answer).unwrap();
    // A number, one topic with its name, one partition and its own number; and then how it ended.
    let at = 4 + 4 + 2 + topic.len() + 4 + 4;
    i16::from_be_bytes([answer[at], answer[at + 1]])
}

fn bytes(to: &mut Vec<u8>, part: &[u8]) {
    varint(to, i64::try_from(part.len()).unwrap());
    to.extend(part);
}

/// Signs are folded into the last bit, and seven bits go into each byte.
fn varint(to: &mut Vec<u8>, number: i64) {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while left > 0x7f {
        to.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}

fn crc32c(of: &[u8]) -> u32 {
    !of.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}
