//! Messages out of any bytes, for `tests/fuzz`.

/// Headers and a body: a header each line, an empty line, the body; so that a person can read what was found.
#[must_use]
pub fn parts(data: &[u8]) -> (Vec<(String, Vec<u8>)>, Vec<u8>) {
    let (mut headers, mut rest) = (Vec::new(), data);
    loop {
        let at = rest.iter().position(|byte| *byte == b'\n');
        let (line, behind) = at.map_or((rest, &[][..]), |at| (&rest[..at], &rest[at + 1..]));
        rest = behind;
        if line.is_empty() {
            return (headers, rest.to_vec());
        }
        let at = line.iter().position(|byte| *byte == b':');
        let (name, value) = at.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
        headers.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
    }
}
