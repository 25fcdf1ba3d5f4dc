//! Names and values in SPDY: counted, and compressed against a dictionary
//! both ends know. One context a direction, for the whole connection.

use std::collections::BTreeMap;
use std::io;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::frame::wrong;

pub(super) struct Decompressor(Decompress);
pub(super) struct Compressor(Compress);

/// What one block may grow to.
const BLOCK_BYTES_MAX: usize = 16 << 10;

impl Default for Decompressor {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Default for Compressor {
    fn default() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(&dictionary()).expect("a new context takes a dictionary");
        Self(compress)
    }
}

impl Decompressor {
    pub(super) fn read(&mut self, block: &[u8]) -> io::Result<BTreeMap<String, String>> {
        let mut plain = Vec::with_capacity(BLOCK_BYTES_MAX);
        let begin = self.0.total_in();
        loop {
            let taken = usize::try_from(self.0.total_in() - begin).unwrap_or(block.len());
            match self.0.decompress_vec(&block[taken..], &mut plain, FlushDecompress::Sync) {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|_| wrong("headers use another dictionary"))?;
                }
                Err(_) => return Err(wrong("headers are not compressed as they should be")),
                Ok(_) => break,
            }
        }
        if usize::try_from(self.0.total_in() - begin).unwrap_or(0) < block.len() {
            return Err(wrong("headers are too long"));
        }
        parse(&plain)
    }
}

impl Compressor {
    pub(super) fn write(&mut self, headers: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
        let mut plain = length(headers.len());
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend(length(text.len()));
            plain.extend_from_slice(text.as_bytes());
        }
        // Enough for what cannot be compressed, and its frame.
        let mut block = Vec::with_capacity(plain.len() + 1024);
        let done = self.0.compress_vec(&plain, &mut block, FlushCompress::Sync);
        done.map_err(|_| wrong("headers cannot be compressed"))?;
        Ok(block)
    }
}

fn length(count: usize) -> Vec<u8> {
    u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

pub(super) fn parse(mut plain: &[u8]) -> io::Result<BTreeMap<String, String>> {
    let count = take_number(&mut plain)?;
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let name = take_text(&mut plain)?;
        headers.insert(name.to_ascii_lowercase(), take_text(&mut plain)?);
    }
    Ok(headers)
}

fn take_number(plain: &mut &[u8]) -> io::Result<usize> {
    let (number, rest) = plain.split_first_chunk().ok_or_else(|| wrong("headers end early"))?;
    *plain = rest;
    usize::try_from(u32::from_be_bytes(*number)).map_err(|_| wrong("headers are too long"))
}

fn take_text(plain: &mut &[u8]) -> io::Result<String> {
    let length = take_number(plain)?;
    let (text, rest) = plain.split_at_checked(length).ok_or_else(|| wrong("headers end early"))?;
    *plain = rest;
    String::from_utf8(text.to_vec()).map_err(|_| wrong("headers are not text"))
}

/// As the protocol fixes it: words with their lengths before them, then text.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS.split('|') {
        bytes.extend(length(word.len()));
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TEXT.as_bytes());
    bytes
}

const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|\
    accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|content-language|\
    content-length|content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|host|\
    if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|\
    proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|\
    user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|\
    keep-alive|origin";

const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
    Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=\
    utf-8charset=iso-8859-1,utf-,*,enq=0.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let mut compress = Compress::new(Compression::fast(), true);
        assert_eq!(dictionary().len(), 1423);
        assert_eq!(compress.set_dictionary(&dictionary()).unwrap(), 0xe3c6_a7c2);
    }

    #[test]
    fn headers_survive_one_after_the_other() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        for headers in [
            BTreeMap::from([("streamtype".to_owned(), "stdin".to_owned())]),
            BTreeMap::new(),
            BTreeMap::from([("port".to_owned(), "80".to_owned()), ("requestid".to_owned(), "ü".to_owned())]),
        ] {
            assert_eq!(decompressor.read(&compressor.write(&headers).unwrap()).unwrap(), headers);
        }
    }

    #[test]
    fn what_is_no_header_block_is_refused() {
        assert!(Decompressor::default().read(b"not compressed").is_err());
        assert!(Decompressor::default().read(b"").is_err());
        assert!(parse(&[0, 0, 0, 1, 0, 0, 0, 9, b'a']).is_err());
        let long = BTreeMap::from([("a".to_owned(), "b".repeat(2 * BLOCK_BYTES_MAX))]);
        assert!(Decompressor::default().read(&Compressor::default().write(&long).unwrap()).is_err());
    }
}
