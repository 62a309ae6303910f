//! Compression as a seal. What opens it bounds what comes out, since a small body may open to a huge one.

use miniz_oxide::{
    deflate::compress_to_vec,
    inflate::{TINFLStatus, decompress_to_vec_with_limit},
};

use super::{Seal, Sealed, too_large};
use crate::{envelope::Envelope, handler_error::HandlerError};

/// Compresses bodies, if that makes them smaller: raw DEFLATE streams, without the frame of zlib or gzip.
///
/// Not for bodies that hold a secret beside something that an attacker may choose: how long they are then tells of the secret (CRIME).
///
/// # Source
/// RFC 1951.
#[derive(Debug, Clone, Copy)]
pub struct Deflate {
    bytes_min: usize,
}

/// How hard it tries: where most of what can be won is won, at a good part of the highest speed.
const LEVEL: u8 = 6;

impl Deflate {
    /// Shorter bodies go as they are, if nothing else is said: 1 KiB. What could be won of less is about what the header takes, and not
    /// worth the time.
    pub const BYTES_MIN: usize = 1024;

    /// Compresses bodies of `bytes` or more.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Self {
        Self { bytes_min: bytes }
    }
}

impl Default for Deflate {
    fn default() -> Self {
        Self::from_bytes(Self::BYTES_MIN)
    }
}

impl Seal for Deflate {
    const NAME: &'static str = "deflate-raw";

    fn seal(&self, envelope: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        if envelope.body.len() < self.bytes_min {
            return Ok(None);
        }
        let compressed = compress_to_vec(&envelope.body, LEVEL);
        Ok((compressed.len() < envelope.body.len()).then(|| Sealed::new(compressed)))
    }

    fn open(&self, envelope: &Envelope, _: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError> {
        decompress_to_vec_with_limit(&envelope.body, bytes_max).map_err(|failed| match failed.status {
            TINFLStatus::HasMoreOutput => too_large(bytes_max),
            _ => HandlerError::permanent("the body is no stream of DEFLATE"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{super::Seals, *};

    fn envelope(body: Vec<u8>) -> Envelope {
        Envelope::new("m-1".parse().unwrap(), "shop.text".parse().unwrap(), body)
    }

    fn sealed(plain: Vec<u8>) -> Envelope {
        let Sealed { body, .. } = Deflate::default().seal(&envelope(plain)).unwrap().unwrap();
        envelope(body.to_vec())
    }

    #[test]
    fn what_is_compressed_opens_to_the_same_and_to_no_more_than_the_bound() {
        let plain = b"{\"tea\":1}".repeat(1000);
        let sealed = sealed(plain.clone());
        assert!(sealed.body.len() < 200, "{}", sealed.body.len());
        assert_eq!(Deflate::default().open(&sealed, None, plain.len()).unwrap(), plain);
        let error = Deflate::default().open(&sealed, None, plain.len() - 1).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("opens to more than 8999 bytes"), "{error}");
    }

    /// Messages that are sealed lie in queues and among dead letters; how hard it is tried may change, what opens may not. Method: a stream that
    /// zlib has made.
    #[test]
    fn a_stream_of_another_library_opens_and_the_name_in_the_header_stays() {
        const STREAM: &[u8] = b"\xab\x56\x2a\x49\x4d\x54\xb2\x32\xac\xad\x1e\x65\x8c\x32\x46\x19\x03\xc1\x00\x00";
        let plain = b"{\"tea\":1}".repeat(100);
        assert_eq!(Deflate::default().open(&envelope(STREAM.to_vec()), None, 1 << 20).unwrap(), plain);
        let seals = Seals::sealed_by(Deflate::from_bytes(1));
        let mut sent = envelope(plain.clone());
        seals.seal(&mut sent).unwrap();
        assert_eq!(sent.headers.iter().collect::<Vec<_>>(), [("sealed-by", "deflate-raw")]);
        let mut came = envelope(STREAM.to_vec());
        came.headers.set("sealed-by", "deflate-raw").unwrap();
        assert_eq!(seals.open(&came).unwrap().body, plain);
    }

    #[test]
    fn what_would_not_become_smaller_goes_as_it_is() {
        let random: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(5000).collect();
        assert_eq!(Deflate::default().seal(&envelope(random)).unwrap(), None);
        assert_eq!(Deflate::default().seal(&envelope(vec![0; Deflate::BYTES_MIN - 1])).unwrap(), None);
    }

    #[test]
    fn what_is_cut_short_or_no_stream_is_refused_for_good() {
        let whole = sealed(b"{\"tea\":1}".repeat(1000));
        let cut = envelope(whole.body[..whole.body.len() / 2].to_vec());
        for damaged in [cut, envelope(b"{\"tea\":1}".to_vec()), envelope(Vec::new())] {
            assert!(Deflate::default().open(&damaged, None, 1 << 20).unwrap_err().is_permanent());
        }
    }
}
