//! Signatures as clients make them, written from the published description and not from the code under test.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A request before it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Percent-encoded.
    pub path: String,
    /// Percent-encoded, in any order.
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Request {
        let headers = Vec::new();
        Request {
            method: method.into(),
            path: encode(path, true),
            query: Vec::new(),
            headers,
            body: Vec::new(),
        }
    }

    pub fn query(mut self, name: &str, value: &str) -> Request {
        self.query.push((encode(name, false), encode(value, false)));
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }
}

/// Who signs, and for what.
#[derive(Clone, Debug)]
pub struct Signer {
    pub id: String,
    pub secret: String,
    pub region: String,
    /// `20130524T000000Z`.
    pub date: String,
}

impl Signer {
    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", &self.date[..8], self.region)
    }

    fn key(&self) -> Vec<u8> {
        let date = hmac(format!("AWS4{}", self.secret).as_bytes(), &self.date.as_bytes()[..8]);
        let region = hmac(&date, self.region.as_bytes());
        hmac(&hmac(&region, b"s3"), b"aws4_request")
    }

    fn signature(&self, algorithm: &str, rest: &str) -> String {
        let text = format!("{algorithm}\n{}\n{}\n{rest}", self.date, self.scope());
        hex(&hmac(&self.key(), text.as_bytes()))
    }

    /// By the header `Authorization`, over all headers that are there.
    pub fn sign(&self, request: &mut Request, content_sha256: &str) -> String {
        request.set("x-amz-date", &self.date);
        request.set("x-amz-content-sha256", content_sha256);
        let (canonical, signed) = canonical(request, content_sha256);
        let signature = self.signature("AWS4-HMAC-SHA256", &sha256(canonical.as_bytes()));
        let credential = format!("{}/{}", self.id, self.scope());
        let value = format!(
            "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
        );
        request.set("authorization", &value);
        signature
    }

    /// By the query, over the headers that are there.
    pub fn presign(&self, request: &mut Request, expires: u64) {
        let mut names: Vec<_> = request.headers.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        let credential = encode(&format!("{}/{}", self.id, self.scope()), false);
        let parameters = [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", credential),
            ("X-Amz-Date", self.date.clone()),
            ("X-Amz-Expires", expires.to_string()),
            ("X-Amz-SignedHeaders", encode(&names.join(";"), false)),
        ];
        request.query.extend(parameters.map(|(name, value)| (name.to_owned(), value)));
        let (canonical, _) = canonical(request, "UNSIGNED-PAYLOAD");
        let signature = self.signature("AWS4-HMAC-SHA256", &sha256(canonical.as_bytes()));
        request.query.push(("X-Amz-Signature".to_owned(), signature));
    }

    /// The body in chunks, signed one after the other; `trailer`: a line behind them.
    pub fn stream(&self, request: &mut Request, chunk: usize, trailer: Option<(&str, &str)>) {
        let body = std::mem::take(&mut request.body);
        request.set("x-amz-decoded-content-length", &body.len().to_string());
        request.set("content-encoding", "aws-chunked");
        let mut kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_owned();
        if let Some((name, _)) = trailer {
            request.set("x-amz-trailer", name);
            kind.push_str("-TRAILER");
        }
        let mut previous = self.sign(request, &kind);
        let empty = sha256(b"");
        for data in body.chunks(chunk).chain([&b""[..]]) {
            let rest = format!("{previous}\n{empty}\n{}", sha256(data));
            previous = self.signature("AWS4-HMAC-SHA256-PAYLOAD", &rest);
            let head = format!("{:x};chunk-signature={previous}\r\n", data.len());
            request.body.extend_from_slice(head.as_bytes());
            request.body.extend_from_slice(data);
            if !data.is_empty() {
                request.body.extend_from_slice(b"\r\n");
            }
        }
        if let Some((name, value)) = trailer {
            let rest = format!("{previous}\n{}", sha256(format!("{name}:{value}\n").as_bytes()));
            let signature = self.signature("AWS4-HMAC-SHA256-TRAILER", &rest);
            let lines = format!("{name}:{value}\r\nx-amz-trailer-signature:{signature}\r\n");
            request.body.extend_from_slice(lines.as_bytes());
        }
        request.body.extend_from_slice(b"\r\n");
    }

    /// The body in chunks that are not signed, with a trailer.
    pub fn stream_unsigned(&self, request: &mut Request, chunk: usize, (name, value): (&str, &str)) {
        let body = std::mem::take(&mut request.body);
        request.set("x-amz-decoded-content-length", &body.len().to_string());
        request.set("content-encoding", "aws-chunked");
        request.set("x-amz-trailer", name);
        self.sign(request, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        for data in body.chunks(chunk) {
            request.body.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
            request.body.extend_from_slice(data);
            request.body.extend_from_slice(b"\r\n");
        }
        request.body.extend_from_slice(format!("0\r\n{name}:{value}\r\n\r\n").as_bytes());
    }

    /// The trailer of a body in chunks as MinIO's SDK for Go frames it: `name:value`, LF, CR LF, and what follows.
    pub fn frame_as_minio_go(request: &mut Request, (name, value): (&str, &str)) {
        let usual = format!("{name}:{value}\r\n").into_bytes();
        let body = &request.body;
        let at = body.windows(usual.len()).position(|part| part == usual).expect("a trailer");
        let (head, tail) = (body[..at].to_vec(), body[at + usual.len()..].to_vec());
        request.body = [&head[..], format!("{name}:{value}\n\r\n").as_bytes(), &tail].concat();
    }
}

fn canonical(request: &Request, content_sha256: &str) -> (String, String) {
    let mut query = request.query.clone();
    query.sort();
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut headers = request.headers.clone();
    headers.retain(|(name, _)| name != "authorization");
    headers.sort();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let signed = names.join(";");
    let text = format!(
        "{}\n{}\n{}\n{lines}\n{signed}\n{content_sha256}",
        request.method,
        request.path,
        query.join("&")
    );
    (text, signed)
}

pub fn encode(text: &str, keep_slashes: bool) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            b'/' if keep_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

/// The time now, as signatures have it, some seconds off.
pub fn date_in(seconds: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now = i64::try_from(now.as_secs()).expect("this side of the end of time") + seconds;
    let (days, time) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    // Howard Hinnant's civil_from_days.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", time / 3600, time / 60 % 60, time % 60)
}
